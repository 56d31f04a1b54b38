-- What has happened: runs, their steps, decisions. Derived; may be deleted, and is then read again from the ledger.
CREATE TABLE meta (position INTEGER NOT NULL) STRICT;
INSERT INTO meta VALUES (0);
CREATE TABLE run (
  position INTEGER PRIMARY KEY,
  id TEXT NOT NULL, automation TEXT NOT NULL, status TEXT NOT NULL, event INTEGER NOT NULL,
  started_at TEXT NOT NULL, ended_at TEXT,
  decided INTEGER NOT NULL,        -- the record of its occurrence
  body TEXT NOT NULL               -- as contracts §11 shows it, without its steps
) STRICT;
CREATE UNIQUE INDEX run_of ON run (id);
CREATE INDEX run_by ON run (automation, position);
CREATE INDEX run_after ON run (event);
CREATE TABLE step (run INTEGER NOT NULL, n INTEGER NOT NULL, body TEXT NOT NULL) STRICT;
CREATE UNIQUE INDEX step_of ON step (run, n);
CREATE TABLE decision (
  position INTEGER NOT NULL, n INTEGER NOT NULL,
  event INTEGER NOT NULL, automation TEXT NOT NULL, outcome TEXT NOT NULL, at TEXT NOT NULL,
  taker INTEGER,                   -- the record of the occurrence whose fate it shares, while that is pending
  body TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX decision_of ON decision (position, n);
CREATE INDEX decision_by ON decision (automation, position);
CREATE INDEX decision_after ON decision (event);
CREATE INDEX decision_taken ON decision (taker) WHERE taker IS NOT NULL;
