-- A receipt's text may leave the file, and nothing else about it may change: only where a pruning of
-- its tenant, which the note tells of, reaches that far, only once, and only for a stub of its own.
DROP TRIGGER receipt_no_update;
CREATE TRIGGER receipt_no_update BEFORE UPDATE ON receipt
  WHEN NOT coalesce(
    NEW.sequence = OLD.sequence AND NEW.receipt_id = OLD.receipt_id AND NEW.tenant = OLD.tenant
    AND NEW.idempotency_key = OLD.idempotency_key AND NEW.settled_at = OLD.settled_at
    AND NEW.position = OLD.position AND NEW.leaf = OLD.leaf AND NEW.link = OLD.link
    AND substr(OLD.body, 1, 10) <> '{"pruned":' AND substr(NEW.body, 1, 10) = '{"pruned":'
    AND NEW.body ->> '$.receipt.receipt_id' = OLD.receipt_id
    AND OLD.position < (SELECT body ->> '$.to' FROM note
      WHERE tenant = OLD.tenant AND kind = 'pruned' AND name = 'receipts'), 0)
  BEGIN SELECT RAISE(ABORT, 'receipts are append-only'); END;
-- What is in no log, of which there is nothing: an audit asks.
CREATE INDEX receipt_stray ON receipt (tenant) WHERE position IS NULL;
