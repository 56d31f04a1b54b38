-- state.db: only what deciding needs, derived from the ledger. Delete it and the next start rebuilds it, equal to the
-- byte in a canonical dump. Numbered migrations append to this file's list in `state.rs`; tables are never edited.

CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;

CREATE TABLE "group" (
  name          TEXT PRIMARY KEY,
  definition    TEXT NOT NULL,
  floor         INTEGER NOT NULL,
  settled       TEXT NOT NULL,     -- [[first,last],…] above the floor
  delivered_to  INTEGER NOT NULL,
  crashes       TEXT NOT NULL,     -- [position,…] each unclean start's delivered_to, newest last
  paused        INTEGER NOT NULL,
  halted_on     INTEGER NOT NULL,  -- 0: not halted
  reported      INTEGER NOT NULL,  -- the last position a workflow.dispatch_failed was recorded for
  processed     INTEGER NOT NULL,
  last_moved_at TEXT,
  since         INTEGER NOT NULL   -- the record that last set the cursor
) STRICT;

CREATE TABLE failure (
  "group" TEXT NOT NULL, position INTEGER NOT NULL, failures INTEGER NOT NULL,
  until TEXT NOT NULL, delay_ms INTEGER NOT NULL, error TEXT
) STRICT;
CREATE UNIQUE INDEX failure_at ON failure ("group", position);

CREATE TABLE dead_letter (
  "group" TEXT NOT NULL, position INTEGER NOT NULL, record INTEGER NOT NULL, event TEXT NOT NULL,
  attempts INTEGER NOT NULL, reason TEXT NOT NULL, error TEXT, parked_key TEXT, at TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX dead_letter_at ON dead_letter ("group", position);

-- Dead letters that were redriven and not yet settled again; with their event, because the ledger may be trimmed.
CREATE TABLE redriven ("group" TEXT NOT NULL, position INTEGER NOT NULL, record INTEGER NOT NULL, event TEXT NOT NULL) STRICT;
CREATE UNIQUE INDEX redriven_at ON redriven ("group", position);

CREATE TABLE key (
  source TEXT NOT NULL, key TEXT NOT NULL, position INTEGER NOT NULL, id TEXT NOT NULL,
  recorded_at TEXT NOT NULL, fingerprint BLOB NOT NULL,
  deferred_until TEXT              -- set while the event is only deferred
) STRICT;
CREATE UNIQUE INDEX key_of ON key (source, key);
CREATE INDEX key_at ON key (position);

CREATE TABLE deferred (
  position INTEGER PRIMARY KEY, until TEXT NOT NULL, delay_ms INTEGER NOT NULL,
  envelope TEXT NOT NULL, body TEXT
) STRICT;

CREATE TABLE snapshot (position INTEGER PRIMARY KEY, head TEXT NOT NULL, hash TEXT NOT NULL) STRICT;
