-- Retention: a receipt's text may leave the database, and nothing else about it may change. Only where
-- a pruning of its tenant, which the note tells of, reaches that far; only while the text is the one
-- that was appended to the log; only once, and only for a stub of its own. Whoever updates in any
-- other way than by `log_prune` is refused before a row is looked at.
CREATE FUNCTION operators.refuse_update() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('operators.pruning', true) IS DISTINCT FROM 'yes' THEN
    RAISE EXCEPTION 'receipts are append-only' USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN NULL;
END $$;

CREATE FUNCTION operators.refuse_edit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF (NEW.tenant, NEW.sequence, NEW.receipt_id, NEW.idempotency_key, NEW.settled_at, NEW.written_by)
      = (OLD.tenant, OLD.sequence, OLD.receipt_id, OLD.idempotency_key, OLD.settled_at, OLD.written_by)
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

DROP TRIGGER receipt_append_only ON operators.receipt;
CREATE TRIGGER receipt_append_only BEFORE DELETE OR TRUNCATE ON operators.receipt
  FOR EACH STATEMENT EXECUTE FUNCTION operators.refuse_change();
CREATE TRIGGER receipt_no_update BEFORE UPDATE ON operators.receipt
  FOR EACH STATEMENT EXECUTE FUNCTION operators.refuse_update();
CREATE TRIGGER receipt_no_edit BEFORE UPDATE ON operators.receipt
  FOR EACH ROW EXECUTE FUNCTION operators.refuse_edit();

-- Puts stubs in the place of texts. A role that runs actions needs no right to it.
CREATE FUNCTION operators.log_prune(whose text, ids text, stubs text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET jit = off
AS $$
BEGIN
  PERFORM set_config('operators.scope', 'store', true);
  PERFORM set_config('operators.pruning', 'yes', true);
  UPDATE operators.receipt r SET body = n.stub
    FROM unnest(string_to_array(ids, E'\x1f'), string_to_array(stubs, E'\x1f')) AS n (id, stub)
    WHERE r.receipt_id = n.id AND r.tenant = whose AND NOT starts_with(r.body, '{"pruned":');
  PERFORM set_config('operators.pruning', 'no', true);
END $$;

CREATE FUNCTION operators.log_stub(whose text, which_receipt text) RETURNS TABLE (stub text)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET jit = off
AS $$
BEGIN
  PERFORM set_config('operators.scope', 'store', true);
  RETURN QUERY SELECT r.body FROM operators.receipt r
    WHERE r.receipt_id = which_receipt AND r.tenant = whose AND starts_with(r.body, '{"pruned":');
END $$;

CREATE OR REPLACE FUNCTION operators.trail(whose text, after_sequence bigint,
  before_sequence bigint, newest_first boolean, how_many integer, which_receipt text,
  which_key text, since bigint, until bigint, fragments text)
RETURNS TABLE (sequence bigint, body text)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
  must_hold CONSTANT text[] := string_to_array(fragments, E'\x1f');
  ending bigint := before_sequence;
BEGIN
  PERFORM set_config('operators.scope', 'store', true);
  -- One receipt by its id is there or not; the store asks so in the middle of its own writes.
  IF NOT newest_first AND which_receipt IS NULL THEN
    ending := least(ending, operators.last_settled(whose) + 1);
  END IF;
  RETURN QUERY EXECUTE 'SELECT r.sequence, r.body FROM operators.receipt r
    WHERE r.tenant = $1 AND r.sequence > $2 AND r.sequence < $3'
    -- A stub is no receipt; whoever asks for this very one is to see that it was pruned.
    || CASE WHEN which_receipt IS NULL THEN ' AND NOT starts_with(r.body, ''{"pruned":'')'
      ELSE ' AND r.receipt_id = $5' END
    || CASE WHEN which_key IS NULL THEN '' ELSE ' AND r.idempotency_key = $6' END
    || CASE WHEN since IS NULL THEN '' ELSE ' AND r.settled_at >= $7' END
    || CASE WHEN until IS NULL THEN '' ELSE ' AND r.settled_at < $8' END
    || CASE WHEN must_hold = '{}' THEN ''
      ELSE ' AND NOT EXISTS (SELECT FROM unnest($9) AS f (part) WHERE strpos(r.body, f.part) = 0)'
      END
    || CASE WHEN newest_first THEN ' ORDER BY r.sequence DESC LIMIT $4'
      ELSE ' ORDER BY r.sequence LIMIT $4' END
    USING whose, after_sequence, ending, how_many, which_receipt, which_key, since,
      until, must_hold;
END $$;

REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA operators FROM PUBLIC;
