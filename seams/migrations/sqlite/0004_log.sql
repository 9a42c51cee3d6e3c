-- Each receipt's place in its tenant's log, and what it hashes to. Those that are there already get
-- theirs right after this script (`log::backfill`), so the trigger that refuses changes comes back in
-- the next one.
DROP TRIGGER receipt_no_update;
ALTER TABLE receipt ADD COLUMN position INTEGER;
ALTER TABLE receipt ADD COLUMN leaf BLOB;
ALTER TABLE receipt ADD COLUMN link BLOB;
-- The right edge of each tenant's log.
CREATE TABLE log (
  tenant   TEXT PRIMARY KEY,
  size     INTEGER NOT NULL,
  frontier BLOB NOT NULL                           -- the last link, then the roots of the full subtrees
) STRICT, WITHOUT ROWID;
