-- Definitions that were replaced say when they were in force, and stay while events of that time do.
ALTER TABLE version ADD COLUMN name TEXT NOT NULL DEFAULT '';
ALTER TABLE version ADD COLUMN spans TEXT NOT NULL DEFAULT '[]';   -- [[since, until]…], positions
ALTER TABLE version ADD COLUMN until INTEGER NOT NULL DEFAULT 0;   -- the last of them
CREATE INDEX version_of ON version (name);
