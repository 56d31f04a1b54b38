-- Live runs, what is pending before gates, what gates remember. What has ended leaves no row.
CREATE TABLE run (
  position INTEGER PRIMARY KEY,    -- of its run.started
  ready INTEGER,                   -- since which position it could walk on; absent while it waits
  body TEXT NOT NULL
) STRICT;

CREATE TABLE pending (
  position INTEGER NOT NULL, n INTEGER NOT NULL,
  body TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX pending_of ON pending (position, n);

CREATE TABLE gate (
  automation TEXT NOT NULL, trigger TEXT NOT NULL, gate TEXT NOT NULL, key TEXT NOT NULL,
  value TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX gate_of ON gate (automation, trigger, gate, key);

CREATE TABLE event (               -- events that live runs and pending occurrences read
  position INTEGER PRIMARY KEY, body TEXT NOT NULL
) STRICT;

CREATE TABLE version (             -- definitions that are no longer declared, but still run
  hash TEXT PRIMARY KEY, body TEXT NOT NULL
) STRICT;

CREATE TABLE automation (          -- what an operator or the engine set beside the definition
  name TEXT PRIMARY KEY, enabled INTEGER, paused INTEGER NOT NULL, reason TEXT, hash TEXT NOT NULL
) STRICT;

CREATE TABLE schedule (
  automation TEXT NOT NULL, trigger TEXT NOT NULL, through TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX schedule_of ON schedule (automation, trigger);
