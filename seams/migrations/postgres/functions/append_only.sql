-- What the triggers of `receipt` and `leaf` call: both are append-only, for their owner too.

CREATE OR REPLACE FUNCTION operators.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'receipts are append-only' USING ERRCODE = 'restrict_violation';
END $$;

-- Retention: a receipt's text may leave the database, and nothing else about it may change. Only
-- where a pruning of its tenant, which the note tells of, reaches that far; only while the text is
-- the one that was appended to the log; only once, and only for a stub of its own. Whoever updates
-- in any other way than by `log_prune` is refused before a row is looked at.
CREATE OR REPLACE FUNCTION operators.refuse_update() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('operators.pruning', true) IS DISTINCT FROM 'yes' THEN
    RAISE EXCEPTION 'receipts are append-only' USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION operators.refuse_edit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF (NEW.tenant, NEW.sequence, NEW.receipt_id, NEW.idempotency_key, NEW.settled_at)
      = (OLD.tenant, OLD.sequence, OLD.receipt_id, OLD.idempotency_key, OLD.settled_at)
    AND NOT starts_with(OLD.body, '{"pruned":') AND starts_with(NEW.body, '{"pruned":')
    AND NEW.body::json -> 'receipt' ->> 'receipt_id' = OLD.receipt_id
    AND EXISTS (SELECT FROM operators.leaf l, operators.note n
      WHERE l.tenant = OLD.tenant AND l.sequence = OLD.sequence
        AND l.leaf = sha256('\x00'::bytea || convert_to(OLD.body, 'UTF8'))
        AND n.tenant = OLD.tenant AND n.kind = 'pruned' AND n.name = 'receipts'
        AND l.position < (n.body::json ->> 'to')::bigint)
  THEN
    RETURN NEW;
  END IF;
  RAISE EXCEPTION 'receipts are append-only' USING ERRCODE = 'restrict_violation';
END $$;
