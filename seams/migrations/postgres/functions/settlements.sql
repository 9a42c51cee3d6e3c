-- The end of an attempt, by whoever holds its turn. Anything else is answered `slow`, for the
-- caller to decide under locks with the kernel's own rules. Arguments and answers are as in
-- `claims.sql`.

-- One settlement. Whoever holds this very turn made this very attempt, and nobody else moves its
-- key meanwhile: every change of a key in flight begins with its entity's lock.
CREATE OR REPLACE FUNCTION operators.settle_one(
  acked text, its_tenant text, its_entity text, its_key text, its_session bigint,
  its_fence bigint, its_generation bigint, its_attempt bigint, its_receipt text, its_phase text,
  its_revision bigint, its_application text, its_stamp bigint, its_body text)
RETURNS text
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET jit = off
SET lock_timeout = '5s'
AS $$
DECLARE
  now_us CONSTANT bigint := operators.arrive();
  is_contended boolean;
BEGIN
  UPDATE operators.entity e SET holder = NULL
    WHERE e.tenant = its_tenant AND e.entity_key = its_entity AND e.holder = its_session
      AND e.fence = its_fence AND e.doubt IS NULL
      AND (acked = '' OR EXISTS (SELECT FROM operators.receipt r WHERE r.receipt_id = acked))
    RETURNING e.contended INTO is_contended;
  IF is_contended IS NULL THEN
    PERFORM operators.enter(acked);
    RETURN 'slow';
  END IF;
  UPDATE operators.key k SET phase = its_phase, application = its_application,
      applied_receipt = CASE WHEN its_application IS NOT NULL THEN its_receipt END
    WHERE k.tenant = its_tenant AND k.idempotency_key = its_key AND k.phase = 'intent'
      AND k.generation = its_generation AND k.attempt = its_attempt
      AND k.session_id = its_session AND k.fence = its_fence AND k.receipt_id = its_receipt
      AND k.entity_key = its_entity AND k.open_attempts = '[]' AND k.application IS NULL;
  IF NOT FOUND THEN
    UPDATE operators.entity e SET holder = its_session
      WHERE e.tenant = its_tenant AND e.entity_key = its_entity;
    RETURN 'slow';
  END IF;
  INSERT INTO operators.receipt (tenant, idempotency_key, receipt_id, settled_at, body)
    VALUES (its_tenant, its_key, its_receipt, its_stamp, its_body);
  IF its_revision IS NOT NULL AND its_application IS NOT NULL THEN
    UPDATE operators.entity e SET revision = greatest(e.revision, its_revision)
      WHERE e.tenant = its_tenant AND e.entity_key = its_entity;
  END IF;
  IF is_contended THEN
    PERFORM operators.ring(its_tenant, its_entity);
  END IF;
  RETURN 'settled';
END $$;

-- A batch, sorted and without repetitions as `claim_many` takes one.
CREATE OR REPLACE FUNCTION operators.settle_many(
  acked text, tenants text, entities text, keys text, sessions text, fences text,
  generations text, attempts text, receipt_ids text, phases text, revisions text,
  applications text, stamps text, bodies text)
RETURNS text
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_nestloop = off SET jit = off
SET lock_timeout = '5s'
AS $$
DECLARE
  now_us CONSTANT bigint := operators.enter(acked);
  tenant_of CONSTANT text[] := string_to_array(tenants, E'\x1f');
  entity_of CONSTANT text[] := string_to_array(entities, E'\x1f');
  key_of CONSTANT text[] := string_to_array(keys, E'\x1f');
  session_of CONSTANT bigint[] := string_to_array(sessions, E'\x1f');
  fence_of CONSTANT bigint[] := string_to_array(fences, E'\x1f');
  receipt_of CONSTANT text[] := string_to_array(receipt_ids, E'\x1f');
  application_of CONSTANT text[] := string_to_array(applications, E'\x1f', E'\x1e');
  revision_of CONSTANT bigint[] := string_to_array(revisions, E'\x1f', E'\x1e');
  answers text[] := array_fill('slow'::text, ARRAY[cardinality(tenant_of)]);
  one record;
BEGIN
  FOR one IN
    -- Both rows are there, or somebody deleted them: written as inserts that always meet them, in
    -- the batch's order and by their own index, which no plan of a joined update promises.
    WITH turn AS (
      INSERT INTO operators.entity AS e (tenant, entity_key, fence, holder)
        SELECT i.tenant, i.entity, i.fence, i.session
          FROM unnest(tenant_of, entity_of, fence_of, session_of) WITH ORDINALITY
            AS i (tenant, entity, fence, session, n) ORDER BY i.n
        ON CONFLICT (tenant, entity_key) DO UPDATE SET holder = NULL
          WHERE e.holder = excluded.holder AND e.fence = excluded.fence AND e.doubt IS NULL
        RETURNING e.tenant, e.entity_key, e.contended, e.holder IS NOT NULL AS was_missing),
    moved AS (
      INSERT INTO operators.key AS k (tenant, idempotency_key, entity_key, fingerprint, effect,
          on_unknown, receipt_id, proposal, session_id, fence, first_intent_at, quiescent_at,
          open_until, generation, attempt, phase, open_attempts, applied_receipt, application)
        SELECT i.tenant, i.key, i.entity, '', '', '', i.receipt, '', i.session, i.fence, 0, 0, 0,
            i.generation, i.attempt, i.phase, '[]',
            CASE WHEN i.application IS NOT NULL THEN i.receipt END, i.application
          FROM unnest(tenant_of, entity_of, key_of, session_of, fence_of, receipt_of,
              application_of, string_to_array(phases, E'\x1f'),
              string_to_array(generations, E'\x1f')::integer[],
              string_to_array(attempts, E'\x1f')::integer[])
            AS i (tenant, entity, key, session, fence, receipt, application, phase, generation,
              attempt)
          JOIN turn t ON t.tenant = i.tenant AND t.entity_key = i.entity
        ON CONFLICT (tenant, idempotency_key) DO UPDATE SET phase = excluded.phase,
            applied_receipt = excluded.applied_receipt, application = excluded.application
          WHERE k.phase = 'intent' AND k.generation = excluded.generation
            AND k.attempt = excluded.attempt AND k.session_id = excluded.session_id
            AND k.fence = excluded.fence AND k.receipt_id = excluded.receipt_id
            AND k.entity_key = excluded.entity_key AND k.open_attempts = '[]'
            AND k.application IS NULL
        RETURNING k.tenant, k.entity_key, k.effect = '' AS was_missing),
    receipt AS (
      INSERT INTO operators.receipt (tenant, idempotency_key, receipt_id, settled_at, body)
        SELECT i.tenant, i.key, i.receipt, i.stamp, i.body
          FROM unnest(tenant_of, entity_of, key_of, receipt_of,
              string_to_array(stamps, E'\x1f')::bigint[], string_to_array(bodies, E'\x1f'))
            AS i (tenant, entity, key, receipt, stamp, body)
          JOIN moved m ON m.tenant = i.tenant AND m.entity_key = i.entity)
    SELECT i.n, t.contended, m.tenant IS NOT NULL AS is_settled,
        t.was_missing OR coalesce(m.was_missing, false) AS was_missing
      FROM unnest(tenant_of, entity_of) WITH ORDINALITY AS i (tenant, entity, n)
      JOIN turn t ON t.tenant = i.tenant AND t.entity_key = i.entity
      LEFT JOIN moved m ON m.tenant = i.tenant AND m.entity_key = i.entity
  LOOP
    IF one.was_missing THEN
      RAISE EXCEPTION 'a row in flight was deleted' USING ERRCODE = 'serialization_failure';
    ELSIF NOT one.is_settled THEN
      UPDATE operators.entity e SET holder = session_of[one.n]
        WHERE e.tenant = tenant_of[one.n] AND e.entity_key = entity_of[one.n];
    ELSE
      answers[one.n] := 'settled';
      IF revision_of[one.n] IS NOT NULL AND application_of[one.n] IS NOT NULL THEN
        UPDATE operators.entity e SET revision = greatest(e.revision, revision_of[one.n])
          WHERE e.tenant = tenant_of[one.n] AND e.entity_key = entity_of[one.n];
      END IF;
      IF one.contended THEN
        PERFORM operators.ring(tenant_of[one.n], entity_of[one.n]);
      END IF;
    END IF;
  END LOOP;
  RETURN array_to_string(answers, E'\x1e');
END $$;
