-- `write` as before, but for keys that came meanwhile. A key that nobody has seen cannot be locked: its
-- entity is, and another process may claim the same key on another entity at the same time. What that
-- one wrote was written over, and both claims stood. Now the later of the two is decided again.

CREATE OR REPLACE FUNCTION operators.write(changes json) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
  one record;
  written bigint;
BEGIN
  INSERT INTO operators.key AS k
    SELECT * FROM json_populate_recordset(NULL::operators.key, changes -> 'keys')
    ON CONFLICT (tenant, idempotency_key) DO UPDATE SET entity_key = excluded.entity_key,
      fingerprint = excluded.fingerprint, effect = excluded.effect,
      on_unknown = excluded.on_unknown, receipt_id = excluded.receipt_id,
      proposal = excluded.proposal, session_id = excluded.session_id, fence = excluded.fence,
      first_intent_at = excluded.first_intent_at, quiescent_at = excluded.quiescent_at,
      open_until = excluded.open_until, generation = excluded.generation,
      attempt = excluded.attempt, phase = excluded.phase, open_attempts = excluded.open_attempts,
      applied_receipt = excluded.applied_receipt, application = excluded.application
    -- The attempt that was seen, moved on, or the one after it.
    WHERE k.receipt_id = excluded.receipt_id
      OR (k.generation, k.attempt + 1) = (excluded.generation, excluded.attempt);
  GET DIAGNOSTICS written = ROW_COUNT;
  IF written <> json_array_length(changes -> 'keys') THEN
    RAISE EXCEPTION 'a key came meanwhile' USING ERRCODE = 'serialization_failure';
  END IF;
  INSERT INTO operators.waiter (ticket, tenant, entity_key, session_id, asker)
    SELECT w.ticket, w.tenant, w.entity_key, w.session_id, w.asker
      FROM json_populate_recordset(NULL::operators.waiter, changes -> 'waiters_added') AS w;
  DELETE FROM operators.waiter w
    USING json_populate_recordset(NULL::operators.waiter, changes -> 'waiters_removed') AS gone
    WHERE w.ticket = gone.ticket;
  -- Every entity whose record or queue was touched is listed, as it is now.
  UPDATE operators.entity e SET fence = new.fence, holder = new.holder, revision = new.revision,
      doubt = new.doubt, landing_until = new.landing_until,
      contended = EXISTS (SELECT FROM operators.waiter w
        WHERE w.tenant = e.tenant AND w.entity_key = e.entity_key)
    FROM json_populate_recordset(NULL::operators.entity, changes -> 'entities') AS new
    WHERE e.tenant = new.tenant AND e.entity_key = new.entity_key;
  INSERT INTO operators.receipt (tenant, idempotency_key, receipt_id, settled_at, body)
    SELECT r.tenant, r.idempotency_key, r.receipt_id, r.settled_at, r.body
      FROM json_populate_recordset(NULL::operators.receipt, changes -> 'receipts') AS r
    ON CONFLICT DO NOTHING;
  FOR one IN SELECT e.tenant, e.entity_key
      FROM json_populate_recordset(NULL::operators.entity, changes -> 'entities') AS e
      WHERE e.holder IS NULL LOOP
    PERFORM operators.ring(one.tenant, one.entity_key);
  END LOOP;
  UPDATE operators.session s
    SET dead_at = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
    FROM json_array_elements_text(changes -> 'buried') AS gone (session_id)
    WHERE s.session_id = gone.session_id::bigint AND s.dead_at IS NULL;
  FOR one IN
    WITH left_behind AS (
      DELETE FROM operators.waiter w
        USING json_array_elements_text(changes -> 'buried') AS gone (session_id)
        WHERE w.session_id = gone.session_id::bigint RETURNING w.tenant, w.entity_key)
    SELECT DISTINCT tenant, entity_key FROM left_behind LOOP
    PERFORM operators.ring(one.tenant, one.entity_key);
  END LOOP;
END $$;

REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA operators FROM PUBLIC;
