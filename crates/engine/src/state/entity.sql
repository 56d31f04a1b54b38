-- What is declared, and the rows of it. Values are those of the event at `version`; secrets stand apart, sealed.
CREATE TABLE definition (
  kind TEXT NOT NULL, name TEXT NOT NULL, hash TEXT NOT NULL, managed_by TEXT NOT NULL,
  position INTEGER NOT NULL,       -- the record that last set it
  body TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX definition_of ON definition (kind, name);

CREATE TABLE entity (
  concept TEXT NOT NULL, id TEXT NOT NULL, space TEXT NOT NULL,
  version INTEGER NOT NULL,        -- the position of the event of its last change
  created_at TEXT NOT NULL, created_by TEXT NOT NULL, updated_at TEXT NOT NULL,
  fields TEXT NOT NULL,            -- JSON, secrets masked
  sealed TEXT, since TEXT,         -- JSON objects: secrets by pointer, instants by field; absent when empty
  provenance TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX entity_of ON entity (concept, id, space);
CREATE INDEX entity_at ON entity (version);
