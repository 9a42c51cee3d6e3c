-- Times named `…_at` and `…_until` are microseconds of the store's own clock.
CREATE TABLE session (
  session_id  INTEGER PRIMARY KEY AUTOINCREMENT,   -- also the byte whose lock is the sign of life
  node        TEXT NOT NULL,
  lease_us    INTEGER NOT NULL,
  alive_until INTEGER NOT NULL,
  dead_at     INTEGER                              -- set once: fenced for ever
) STRICT;
CREATE INDEX session_alive ON session (alive_until) WHERE dead_at IS NULL;

CREATE TABLE key (
  tenant          TEXT NOT NULL,
  idempotency_key TEXT NOT NULL,
  generation      INTEGER NOT NULL,
  phase           TEXT NOT NULL CHECK (phase IN ('intent', 'applied', 'failed', 'in_doubt', 'written_off', 'forgotten')),
  attempt         INTEGER NOT NULL,
  session_id      INTEGER NOT NULL,
  fence           INTEGER NOT NULL,
  entity_key      TEXT NOT NULL,
  fingerprint     TEXT NOT NULL,
  effect          TEXT NOT NULL,                   -- JSON
  on_unknown      TEXT NOT NULL,
  first_intent_at INTEGER NOT NULL,
  quiescent_at    INTEGER NOT NULL,
  open_attempts   TEXT NOT NULL,                   -- JSON array of attempts nobody knows about
  open_until      INTEGER NOT NULL,
  proposal        TEXT NOT NULL,                   -- JSON: what the last attempt's receipt says
  application     TEXT,                            -- JSON: how it came to be burned
  PRIMARY KEY (tenant, idempotency_key)
) STRICT;
CREATE INDEX key_intent ON key (session_id) WHERE phase = 'intent';
CREATE INDEX key_doubt ON key (tenant, first_intent_at) WHERE phase = 'in_doubt';

CREATE TABLE entity (
  tenant        TEXT NOT NULL,
  entity_key    TEXT NOT NULL,
  fence         INTEGER NOT NULL,
  holder        INTEGER,                           -- the session whose turn it is
  revision      INTEGER,
  doubt         TEXT,                              -- the key whose doubt holds the entity
  landing_until INTEGER NOT NULL,
  PRIMARY KEY (tenant, entity_key)
) STRICT;

CREATE TABLE waiter (
  ticket     INTEGER PRIMARY KEY AUTOINCREMENT,    -- arrival order
  tenant     TEXT NOT NULL,
  entity_key TEXT NOT NULL,
  session_id INTEGER NOT NULL
) STRICT;
CREATE INDEX waiter_queue ON waiter (tenant, entity_key, ticket);
CREATE INDEX waiter_session ON waiter (session_id);

CREATE TABLE receipt (
  sequence        INTEGER PRIMARY KEY AUTOINCREMENT,
  receipt_id      TEXT NOT NULL UNIQUE,
  tenant          TEXT NOT NULL,
  idempotency_key TEXT NOT NULL,
  settled_at      TEXT NOT NULL,                   -- RFC 3339, six digits: sorts as text
  body            TEXT NOT NULL                    -- RFC 8785 JSON
) STRICT;
CREATE INDEX receipt_key ON receipt (tenant, idempotency_key, sequence);
CREATE TRIGGER receipt_no_update BEFORE UPDATE ON receipt
  BEGIN SELECT RAISE(ABORT, 'receipts are append-only'); END;
CREATE TRIGGER receipt_no_delete BEFORE DELETE ON receipt
  BEGIN SELECT RAISE(ABORT, 'receipts are append-only'); END;
-- `INSERT OR REPLACE` deletes without asking the trigger above: what is there stays.
CREATE TRIGGER receipt_no_replace BEFORE INSERT ON receipt
  WHEN EXISTS (SELECT 1 FROM receipt WHERE receipt_id = NEW.receipt_id)
    OR EXISTS (SELECT 1 FROM receipt WHERE sequence = NEW.sequence)
  BEGIN SELECT RAISE(IGNORE); END;

CREATE TABLE tenant (
  tenant        TEXT PRIMARY KEY,
  redaction_key BLOB NOT NULL                      -- never exported
) STRICT;
