-- Looking: what people and auditors ask. Nothing here writes or locks.

CREATE FUNCTION operators.glimpse(whose text, which_entity text, which_key text)
RETURNS TABLE (kind text, doc text)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
BEGIN
  PERFORM set_config('operators.scope', 'store', true);
  RETURN QUERY
    SELECT 'now', (extract(epoch FROM clock_timestamp()) * 1000000)::bigint::text
    UNION ALL SELECT 'key', row_to_json(k)::text FROM operators.key k
      WHERE k.tenant = whose AND k.idempotency_key = which_key
    UNION ALL SELECT 'entity', row_to_json(e)::text FROM operators.entity e
      WHERE e.tenant = whose AND e.entity_key = which_entity;
END
$$;

CREATE FUNCTION operators.doubts(whose text)
RETURNS TABLE (kind text, doc text)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
BEGIN
  PERFORM set_config('operators.scope', 'store', true);
  RETURN QUERY
    SELECT 'now', (extract(epoch FROM clock_timestamp()) * 1000000)::bigint::text
    UNION ALL (SELECT 'key', row_to_json(k)::text FROM operators.key k
      WHERE k.tenant = whose AND k.phase = 'in_doubt' ORDER BY k.first_intent_at, k.receipt_id);
END
$$;

-- One page of a tenant's receipts. `fragments` are what a body must hold to be looked for at all;
-- whether it really is what was asked is for the caller to see.
CREATE FUNCTION operators.trail(whose text, after_sequence bigint, before_sequence bigint,
  newest_first boolean, how_many integer, which_receipt text, which_key text, since bigint,
  until bigint, fragments text)
RETURNS TABLE (sequence bigint, body text)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
  must_hold CONSTANT text[] := string_to_array(fragments, E'\x1f');
BEGIN
  PERFORM set_config('operators.scope', 'store', true);
  RETURN QUERY EXECUTE 'SELECT r.sequence, r.body FROM operators.receipt r
    WHERE r.tenant = $1 AND r.sequence > $2 AND r.sequence < $3'
    || CASE WHEN which_receipt IS NULL THEN '' ELSE ' AND r.receipt_id = $5' END
    || CASE WHEN which_key IS NULL THEN '' ELSE ' AND r.idempotency_key = $6' END
    || CASE WHEN since IS NULL THEN '' ELSE ' AND r.settled_at >= $7' END
    || CASE WHEN until IS NULL THEN '' ELSE ' AND r.settled_at < $8' END
    || CASE WHEN must_hold = '{}' THEN ''
      ELSE ' AND NOT EXISTS (SELECT FROM unnest($9) AS f (part) WHERE strpos(r.body, f.part) = 0)'
      END
    || CASE WHEN newest_first THEN ' ORDER BY r.sequence DESC LIMIT $4'
      ELSE ' ORDER BY r.sequence LIMIT $4' END
    USING whose, after_sequence, before_sequence, how_many, which_receipt, which_key, since,
      until, must_hold;
END $$;

-- What is amiss in the records, in words; for `doctor`.
CREATE FUNCTION operators.problems() RETURNS TABLE (problem text)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  PERFORM set_config('operators.scope', 'store', true);
  RETURN QUERY
    (SELECT format('entity `%s` is held by session %s, which is dead', e.entity_key, e.holder)
      FROM operators.entity e LEFT JOIN operators.session s ON s.session_id = e.holder
      WHERE e.holder IS NOT NULL AND (s.session_id IS NULL OR s.dead_at IS NOT NULL) LIMIT 20)
    UNION ALL (SELECT format('key `%s` is burned but its receipt is gone', k.idempotency_key)
      FROM operators.key k WHERE k.phase = 'applied'
        AND NOT EXISTS (SELECT FROM operators.receipt r WHERE r.receipt_id = k.applied_receipt)
      LIMIT 20)
    UNION ALL (SELECT format('key `%s` is in doubt but does not hold its entity', k.idempotency_key)
      FROM operators.key k LEFT JOIN operators.entity e
        ON e.tenant = k.tenant AND e.entity_key = k.entity_key
      WHERE k.phase = 'in_doubt' AND e.doubt IS DISTINCT FROM k.idempotency_key LIMIT 20);
END
$$;

CREATE FUNCTION operators.schema_version() RETURNS integer
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$ SELECT max(m.version) FROM operators.migration m $$;

-- Whoever may see the schema may not therefore act: that is granted on its own.
REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA operators FROM PUBLIC;
