-- Events suspected of ending the process: which one is out alone now, and which were alone when it ended.
CREATE TABLE suspect (
  "group" TEXT NOT NULL, position INTEGER NOT NULL,
  convicted INTEGER NOT NULL       -- 0: handed out with nothing beside it and not yet answered for
) STRICT;
CREATE UNIQUE INDEX suspect_at ON suspect ("group", position);
