-- What is not common: one transaction that locks the records a decision needs, hands them to the
-- caller as JSON rows, and writes back what it decided. Locks are taken in the order session,
-- entities (sorted), keys.

-- The records around one key or entity. Without an entity, the key's own is meant. Of the queue
-- only those that matter: whoever is first, and the one who asks.
CREATE OR REPLACE FUNCTION operators.page(acked text, whose text, which_entity text, which_key text,
  who bigint, which_ticket bigint, whose_place text)
RETURNS TABLE (kind text, doc text)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
  an_entity text := which_entity;
  its_entity text;
  found_entity operators.entity;
  found_key operators.key;
  first_waiter operators.waiter;
  own_place operators.waiter;
BEGIN
  PERFORM operators.enter(acked);
  PERFORM set_config('lock_timeout', '5s', true);
  LOOP
    IF which_entity IS NULL THEN
      SELECT k.entity_key INTO an_entity FROM operators.key k
        WHERE k.tenant = whose AND k.idempotency_key = which_key;
      EXIT WHEN NOT FOUND;
    END IF;
    INSERT INTO operators.entity (tenant, entity_key) VALUES (whose, an_entity)
      ON CONFLICT DO NOTHING;
    SELECT * INTO found_entity FROM operators.entity e
      WHERE e.tenant = whose AND e.entity_key = an_entity FOR UPDATE;
    SELECT * INTO found_key FROM operators.key k
      WHERE k.tenant = whose AND k.idempotency_key = which_key FOR UPDATE;
    EXIT WHEN which_entity IS NOT NULL OR found_key.entity_key = an_entity;
  END LOOP;
  -- Read after the locks, however long they took.
  kind := 'now';
  doc := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
  RETURN NEXT;
  IF found_entity.tenant IS NOT NULL THEN
    kind := 'entity'; doc := row_to_json(found_entity); RETURN NEXT;
  END IF;
  IF found_key.tenant IS NOT NULL THEN
    kind := 'key'; doc := row_to_json(found_key); RETURN NEXT;
  END IF;
  IF who IS NULL THEN
    RETURN;
  END IF;
  SELECT * INTO first_waiter FROM operators.waiter w
    WHERE w.tenant = whose AND w.entity_key = an_entity ORDER BY w.ticket LIMIT 1;
  IF FOUND THEN
    kind := 'waiter'; doc := row_to_json(first_waiter); RETURN NEXT;
    SELECT * INTO own_place FROM operators.waiter w
      WHERE w.tenant = whose AND w.entity_key = an_entity
        AND (w.ticket = which_ticket OR w.asker = whose_place) ORDER BY w.ticket LIMIT 1;
    IF FOUND THEN
      kind := 'waiter'; doc := row_to_json(own_place); RETURN NEXT;
      kind := 'place'; doc := own_place.ticket; RETURN NEXT;
    END IF;
  END IF;
  RETURN QUERY SELECT 'session', row_to_json(s)::text FROM operators.session s
    WHERE s.session_id IN (who, found_entity.holder, first_waiter.session_id);
  kind := 'ticket';
  doc := nextval(pg_get_serial_sequence('operators.waiter', 'ticket'));
  RETURN NEXT;
END $$;

-- One session and what it left open: its intents with their entities, and `which_entity` if it
-- still holds that without an intent.
CREATE OR REPLACE FUNCTION operators.estate(acked text, who bigint, whose text, which_entity text)
RETURNS TABLE (kind text, doc text)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
  one record;
BEGIN
  PERFORM operators.enter(acked);
  PERFORM set_config('lock_timeout', '5s', true);
  PERFORM FROM operators.session s WHERE s.session_id = who FOR UPDATE;
  FOR one IN
    SELECT k.tenant, k.entity_key FROM operators.key k
      WHERE CASE WHEN k.phase = 'intent' THEN k.session_id END = who
    UNION SELECT whose, which_entity WHERE which_entity IS NOT NULL
    ORDER BY 1, 2
  LOOP
    PERFORM FROM operators.entity e
      WHERE e.tenant = one.tenant AND e.entity_key = one.entity_key FOR UPDATE;
  END LOOP;
  kind := 'now';
  doc := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
  RETURN NEXT;
  RETURN QUERY SELECT 'session', row_to_json(s)::text FROM operators.session s
    WHERE s.session_id = who;
  -- What was settled before its entity was locked is no longer an intent, and is not seen here;
  -- what was claimed since is left to the next heartbeat.
  FOR one IN
    SELECT k.tenant, k.entity_key, row_to_json(k)::text AS doc FROM operators.key k
      WHERE CASE WHEN k.phase = 'intent' THEN k.session_id END = who
      ORDER BY k.first_intent_at, k.receipt_id FOR UPDATE
  LOOP
    kind := 'key'; doc := one.doc; RETURN NEXT;
    RETURN QUERY SELECT 'entity', row_to_json(e)::text FROM operators.entity e
      WHERE e.tenant = one.tenant AND e.entity_key = one.entity_key FOR UPDATE;
  END LOOP;
  RETURN QUERY SELECT 'entity', row_to_json(e)::text FROM operators.entity e
    WHERE e.tenant = whose AND e.entity_key = which_entity;
END $$;

-- Writes what was decided.
--
-- A key that nobody has seen cannot be locked: its entity is, and another process may claim the
-- same key on another entity at the same time. The later of the two is decided again: if it were
-- written over the earlier one, both claims would stand.
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
