-- What the file knows of itself, in one row. The name is long because tables of others may lie in the
-- same file.
CREATE TABLE operators_store (
  one          INTEGER PRIMARY KEY CHECK (one = 1),
  identity     TEXT NOT NULL,                      -- made once; a copy has it too
  boot         TEXT,                               -- the boot in which its clock was anchored
  anchor_boot  INTEGER NOT NULL DEFAULT 0,         -- microseconds after that boot, at which
  anchor_store INTEGER NOT NULL DEFAULT 0,         -- the store's clock showed this
  alive_file   TEXT,                               -- the lock file that was seen last, and
  alive_since  INTEGER NOT NULL DEFAULT 0          -- from when on its locks speak for everybody
) STRICT;
INSERT INTO operators_store (one, identity) VALUES (1, lower(hex(randomblob(16))));
