-- Retention: old receipts' texts give way to stubs. What a stub may replace is for the triggers to
-- say, in `append_only.sql`.

-- Puts stubs in the place of texts. A role that runs actions needs no right to it.
CREATE OR REPLACE FUNCTION operators.log_prune(whose text, ids text, stubs text) RETURNS void
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

CREATE OR REPLACE FUNCTION operators.log_stub(whose text, which_receipt text)
RETURNS TABLE (stub text)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET jit = off
AS $$
BEGIN
  PERFORM set_config('operators.scope', 'store', true);
  RETURN QUERY SELECT r.body FROM operators.receipt r
    WHERE r.receipt_id = which_receipt AND r.tenant = whose AND starts_with(r.body, '{"pruned":');
END $$;
