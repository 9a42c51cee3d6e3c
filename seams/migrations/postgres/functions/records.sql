-- Receipts that touch no key, in batches: every argument but the first is a column, its values
-- joined by U+001F.
CREATE OR REPLACE FUNCTION operators.record(acked text, tenants text, keys text, receipt_ids text,
  stamps text, bodies text)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET jit = off
SET lock_timeout = '5s'
AS $$
BEGIN
  PERFORM operators.enter(acked);
  INSERT INTO operators.receipt (tenant, idempotency_key, receipt_id, settled_at, body)
    SELECT * FROM unnest(string_to_array(tenants, E'\x1f'), string_to_array(keys, E'\x1f'),
      string_to_array(receipt_ids, E'\x1f'), string_to_array(stamps, E'\x1f')::bigint[],
      string_to_array(bodies, E'\x1f'))
    ON CONFLICT DO NOTHING;
END $$;
