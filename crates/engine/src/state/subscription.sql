CREATE TABLE subscription (        -- events of a group that start runs
  id TEXT PRIMARY KEY, body TEXT NOT NULL
) STRICT;
