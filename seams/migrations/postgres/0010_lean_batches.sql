-- Batches, as `claim_one` and `settle_one` are for one: every argument but the first is a column of
-- the batch, its values joined by U+001F, U+001E standing for null. Batches come sorted by
-- (tenant, entity), so that no two wait for each other, and name no entity and no key twice.

CREATE FUNCTION operators.claim_many(
  acked text, tenants text, entities text, keys text, sessions text, fingerprints text,
  effects text, on_unknowns text, spans text, revisions text, receipt_ids text, proposals text,
  stamps text, duplicates_1 text, duplicates_2 text, duplicates_3 text, duplicates_4 text,
  refusals_1 text, refusals_2 text, refusals_3 text, controlled text)
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
  fingerprint_of CONSTANT text[] := string_to_array(fingerprints, E'\x1f');
  revision_of CONSTANT bigint[] := string_to_array(revisions, E'\x1f', E'\x1e');
  receipt_of CONSTANT text[] := string_to_array(receipt_ids, E'\x1f');
  alive bigint[];
  verdicts text[];
  phases text[];
  generations integer[];
  attempts integer[];
  originals text[];
  answers text[];
  writes_receipts boolean;
  wants_turns boolean;
  one record;
BEGIN
  SELECT coalesce(array_agg(s.session_id), '{}') INTO alive FROM operators.session s
    WHERE s.session_id = ANY (session_of) AND s.dead_at IS NULL;
  -- All keys and entities as of one moment. LIMIT keeps each look-up a look-up: whatever the planner
  -- thinks of the tables' sizes, it cannot turn these into a join over all rows.
  SELECT array_agg(d.verdict), array_agg(d.phase), array_agg(d.generation), array_agg(d.attempt),
      array_agg(d.applied_receipt), bool_or(d.verdict = 'duplicate' OR d.verdict = 'refused'),
      bool_or(d.verdict = 'new' OR d.verdict = 'again'), array_agg(CASE d.verdict
        WHEN 'duplicate' THEN concat_ws(E'\x1f', 'duplicate', d.generation, d.attempt, d.application)
        WHEN 'refused' THEN concat_ws(E'\x1f', 'refused', d.generation, d.attempt)
        WHEN 'dead' THEN 'dead'
        ELSE 'slow' END)
    INTO verdicts, phases, generations, attempts, originals, writes_receipts, wants_turns, answers
    FROM (
      -- OFFSET: each is decided once, however often it is asked what was decided.
      SELECT k.phase, coalesce(k.generation, 1) AS generation, coalesce(k.attempt, 0) AS attempt,
          k.applied_receipt, k.application, CASE
            WHEN i.session <> ALL (alive) THEN 'dead'
            WHEN v.verdict = 'refused' AND (SELECT e.holder IS NULL AND e.doubt IS NULL
                AND NOT e.contended AND e.landing_until <= now_us
                AND coalesce(i.revision >= e.revision, true)
              FROM operators.entity e
              WHERE e.tenant = i.tenant AND e.entity_key = i.entity) IS FALSE THEN 'slow'
            -- Whether it stops this one is not for here to know.
            WHEN (v.verdict = 'new' OR v.verdict = 'again') AND EXISTS (SELECT
              FROM operators.pause p WHERE p.tenant = i.tenant) THEN 'slow'
            ELSE v.verdict END AS verdict
        FROM unnest(tenant_of, entity_of, key_of, session_of, fingerprint_of, revision_of,
            receipt_of, string_to_array(refusals_1, E'\x1f', E'\x1e'),
            string_to_array(controlled, E'\x1f')::boolean[])
          AS i (tenant, entity, key, session, fingerprint, revision, receipt, refusal,
            is_controlled)
        LEFT JOIN LATERAL (SELECT * FROM operators.key f
          WHERE f.tenant = i.tenant AND f.idempotency_key = i.key LIMIT 1) k ON true
        CROSS JOIN LATERAL (SELECT operators.verdict(k.phase,
          k.fingerprint = i.fingerprint AND k.applied_receipt IS NOT NULL,
          k.receipt_id = i.receipt, i.refusal IS NOT NULL, i.is_controlled) AS verdict) v
        OFFSET 0) d;
  IF writes_receipts THEN
    -- A duplicate writes its receipt; no key row is written or locked.
    INSERT INTO operators.receipt (tenant, idempotency_key, receipt_id, settled_at, body)
      SELECT i.tenant, i.key, i.receipt, i.stamp, CASE i.verdict
          WHEN 'duplicate' THEN i.duplicate_1 || i.attempt || i.duplicate_2 || i.generation
            || i.duplicate_3 || to_json(i.original) || i.duplicate_4
          ELSE i.refusal_1 || i.attempt || i.refusal_2 || i.generation || i.refusal_3 END
        FROM unnest(tenant_of, key_of, receipt_of, string_to_array(stamps, E'\x1f')::bigint[],
            string_to_array(duplicates_1, E'\x1f'), string_to_array(duplicates_2, E'\x1f'),
            string_to_array(duplicates_3, E'\x1f'), string_to_array(duplicates_4, E'\x1f'),
            string_to_array(refusals_1, E'\x1f', E'\x1e'),
            string_to_array(refusals_2, E'\x1f', E'\x1e'),
            string_to_array(refusals_3, E'\x1f', E'\x1e'),
            verdicts, generations, attempts, originals)
          AS i (tenant, key, receipt, stamp, duplicate_1, duplicate_2, duplicate_3, duplicate_4,
            refusal_1, refusal_2, refusal_3, verdict, generation, attempt, original)
        WHERE i.verdict = 'duplicate' OR i.verdict = 'refused';
  END IF;
  IF NOT wants_turns THEN
    RETURN array_to_string(answers, E'\x1e');
  END IF;
  -- The turn and the intent, or neither. In the batch's order, so that no two wait for each other.
  FOR one IN
    WITH turn AS (
      INSERT INTO operators.entity AS e (tenant, entity_key, fence, holder)
        SELECT i.tenant, i.entity, 1, i.session
          FROM unnest(tenant_of, entity_of, session_of, verdicts) WITH ORDINALITY
            AS i (tenant, entity, session, verdict, n)
          WHERE i.verdict = 'new' OR i.verdict = 'again' ORDER BY i.n
        ON CONFLICT (tenant, entity_key)
          DO UPDATE SET fence = e.fence + 1, holder = excluded.holder
          WHERE e.holder IS NULL AND e.doubt IS NULL AND NOT e.contended
            AND e.landing_until <= now_us
        RETURNING e.tenant, e.entity_key, e.fence, e.revision),
    intent AS (
      INSERT INTO operators.key (tenant, idempotency_key, entity_key, fingerprint, effect,
          on_unknown, receipt_id, proposal, session_id, fence, first_intent_at, quiescent_at,
          open_until, generation, attempt, phase, open_attempts)
        SELECT i.tenant, i.key, i.entity, i.fingerprint, i.effect, i.on_unknown, i.receipt,
            i.proposal, i.session, t.fence, now_us, now_us + i.span, -9223372036854775808, 1, 1,
            'intent', '[]'
          FROM unnest(tenant_of, entity_of, key_of, session_of, fingerprint_of, revision_of,
              receipt_of, verdicts, string_to_array(effects, E'\x1f'),
              string_to_array(on_unknowns, E'\x1f'), string_to_array(spans, E'\x1f')::bigint[],
              string_to_array(proposals, E'\x1f'))
            AS i (tenant, entity, key, session, fingerprint, revision, receipt, verdict, effect,
              on_unknown, span, proposal)
          JOIN turn t ON t.tenant = i.tenant AND t.entity_key = i.entity
          WHERE i.verdict = 'new' AND coalesce(i.revision >= t.revision, true)
        ON CONFLICT (tenant, idempotency_key) DO NOTHING
        RETURNING tenant, entity_key)
    SELECT i.n, t.fence, n.tenant IS NOT NULL AS is_claimed,
        coalesce(revision_of[i.n] >= t.revision, true) AS is_newest
      FROM unnest(tenant_of, entity_of) WITH ORDINALITY AS i (tenant, entity, n)
      JOIN turn t ON t.tenant = i.tenant AND t.entity_key = i.entity
      LEFT JOIN intent n ON n.tenant = i.tenant AND n.entity_key = i.entity
  LOOP
    IF verdicts[one.n] = 'again' AND one.is_newest THEN
      UPDATE operators.key k SET entity_key = entity_of[one.n],
          fingerprint = fingerprint_of[one.n], effect = split_part(effects, E'\x1f', one.n::integer),
          on_unknown = split_part(on_unknowns, E'\x1f', one.n::integer), receipt_id = receipt_of[one.n],
          proposal = split_part(proposals, E'\x1f', one.n::integer), session_id = session_of[one.n],
          fence = one.fence, first_intent_at = now_us,
          quiescent_at = now_us + split_part(spans, E'\x1f', one.n::integer)::bigint,
          open_until = -9223372036854775808, attempt = attempts[one.n] + 1, phase = 'intent',
          open_attempts = '[]', applied_receipt = NULL, application = NULL
        WHERE k.tenant = tenant_of[one.n] AND k.idempotency_key = key_of[one.n]
          AND k.phase = phases[one.n] AND k.generation = generations[one.n]
          AND k.attempt = attempts[one.n];
      one.is_claimed := FOUND;
    END IF;
    IF one.is_claimed THEN
      answers[one.n] := concat_ws(E'\x1f', 'claimed', generations[one.n], attempts[one.n] + 1,
        one.fence);
    ELSE
      -- Somebody claimed the key meanwhile, or did something newer: no intent, no turn.
      UPDATE operators.entity e SET holder = NULL
        WHERE e.tenant = tenant_of[one.n] AND e.entity_key = entity_of[one.n];
    END IF;
  END LOOP;
  RETURN array_to_string(answers, E'\x1e');
END $$;

CREATE FUNCTION operators.settle_many(
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

REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA operators FROM PUBLIC;
