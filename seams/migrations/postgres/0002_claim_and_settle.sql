-- The common cases, one statement for a batch: every argument but the first is a column of the
-- batch, its values joined by U+001F (which no value holds), U+001E standing for null. What is not
-- common is answered `slow`, for the caller to decide under locks with the kernel's own rules.
-- Batches come sorted by (tenant, entity), so that no two wait for each other, and name no entity
-- and no key twice.

-- What every writing call does first, with the server's time. The call must begin its transaction:
-- one that somebody left open would take back what is acknowledged here.
CREATE FUNCTION operators.enter(acked text) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  -- For row-level security, until the transaction ends: these functions speak for all tenants.
  PERFORM set_config('operators.scope', 'store', true);
  IF transaction_timestamp() <> statement_timestamp() THEN
    RAISE EXCEPTION 'a transaction was left open' USING ERRCODE = 'active_sql_transaction';
  END IF;
  -- Until the transaction ends; a SET clause of the function would end before the commit.
  IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
  -- What this caller was told is durable must still be there.
  IF acked <> '' THEN
    IF EXISTS (SELECT FROM unnest(string_to_array(acked, E'\x1f')) AS told (id)
        WHERE NOT EXISTS (SELECT FROM operators.receipt r WHERE r.receipt_id = told.id)) THEN
      RAISE EXCEPTION 'store rolled back' USING ERRCODE = 'OP001';
    END IF;
  END IF;
  RETURN (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
END $$;

-- Tells whoever has waited longest for an entity that its turn may have come.
CREATE FUNCTION operators.ring(whose text, which text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE first bigint;
BEGIN
  SELECT w.ticket INTO first FROM operators.waiter w
    WHERE w.tenant = whose AND w.entity_key = which ORDER BY w.ticket LIMIT 1;
  IF first IS NOT NULL THEN
    PERFORM pg_notify('operators', first::text);
  END IF;
END $$;

CREATE FUNCTION operators.claim(
  acked text, tenants text, entities text, keys text, sessions text, fingerprints text,
  effects text, on_unknowns text, spans text, revisions text, receipt_ids text, proposals text,
  stamps text, duplicates_1 text, duplicates_2 text, duplicates_3 text, duplicates_4 text,
  refusals_1 text, refusals_2 text, refusals_3 text, controlled text)
RETURNS TABLE (item integer, answer text, its_generation integer, its_attempt integer,
  its_fence bigint, its_application text)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET lock_timeout = '5s'
AS $$
#variable_conflict use_column
DECLARE
  now_us CONSTANT bigint := operators.enter(acked);
  asked record;
  is_free boolean;
BEGIN
  FOR asked IN
    WITH item AS MATERIALIZED (
      SELECT * FROM unnest(string_to_array(tenants, E'\x1f'), string_to_array(entities, E'\x1f'),
          string_to_array(keys, E'\x1f'), string_to_array(sessions, E'\x1f')::bigint[],
          string_to_array(fingerprints, E'\x1f'), string_to_array(effects, E'\x1f'),
          string_to_array(on_unknowns, E'\x1f'), string_to_array(spans, E'\x1f')::bigint[],
          string_to_array(revisions, E'\x1f', E'\x1e')::bigint[],
          string_to_array(receipt_ids, E'\x1f'), string_to_array(proposals, E'\x1f'),
          string_to_array(stamps, E'\x1f')::bigint[],
          string_to_array(duplicates_1, E'\x1f'), string_to_array(duplicates_2, E'\x1f'),
          string_to_array(duplicates_3, E'\x1f'), string_to_array(duplicates_4, E'\x1f'),
          string_to_array(refusals_1, E'\x1f', E'\x1e'),
          string_to_array(refusals_2, E'\x1f', E'\x1e'),
          string_to_array(refusals_3, E'\x1f', E'\x1e'),
          string_to_array(controlled, E'\x1f')::boolean[]) WITH ORDINALITY
        AS i (tenant, entity, key, session, fingerprint, effect, on_unknown, span, revision,
          receipt, proposal, stamp, duplicate_1, duplicate_2, duplicate_3, duplicate_4,
          refusal_1, refusal_2, refusal_3, is_controlled, n)),
    -- Key and entity as of one moment. LIMIT keeps each look-up a look-up: whatever the planner
    -- thinks of the tables' sizes, it cannot turn these into a join over all rows.
    seen AS MATERIALIZED (
      SELECT i.*, k.phase, k.application, k.applied_receipt,
          coalesce(k.generation, 1) AS generation, coalesce(k.attempt, 0) AS attempt,
          CASE
            WHEN i.session NOT IN (SELECT s.session_id FROM operators.session s
                WHERE s.session_id = ANY (string_to_array(sessions, E'\x1f')::bigint[])
                  AND s.dead_at IS NULL)
              THEN 'dead'
            WHEN k.phase = 'applied' OR k.phase = 'written_off' THEN CASE
              WHEN k.fingerprint = i.fingerprint AND k.applied_receipt IS NOT NULL
                THEN 'duplicate'
              ELSE 'slow' END
            WHEN k.phase = 'intent' OR k.phase = 'in_doubt' OR k.receipt_id = i.receipt
              THEN 'slow'
            WHEN i.refusal_1 IS NOT NULL THEN CASE
              WHEN (SELECT e.holder IS NULL AND e.doubt IS NULL AND NOT e.contended
                  AND e.landing_until <= now_us AND coalesce(i.revision >= e.revision, true)
                FROM operators.entity e
                WHERE e.tenant = i.tenant AND e.entity_key = i.entity) IS NOT FALSE
                THEN 'refused'
              ELSE 'slow' END
            -- Whether a pause or a limit stops this one is not for here to know.
            WHEN i.is_controlled OR EXISTS (SELECT FROM operators.pause p WHERE p.tenant = i.tenant) THEN 'slow'
            WHEN k.phase IS NULL THEN 'new'
            ELSE 'again' END AS verdict
        FROM item i LEFT JOIN LATERAL (
          SELECT * FROM operators.key k
            WHERE k.tenant = i.tenant AND k.idempotency_key = i.key LIMIT 1) k ON true),
    -- The turn and the intent, or neither. In the batch's order, so that no two wait for each other.
    turn AS (
      INSERT INTO operators.entity AS e (tenant, entity_key, fence, holder)
        SELECT s.tenant, s.entity, 1, s.session FROM seen s WHERE s.verdict = 'new' ORDER BY s.n
        ON CONFLICT (tenant, entity_key)
          DO UPDATE SET fence = e.fence + 1, holder = excluded.holder
          WHERE e.holder IS NULL AND e.doubt IS NULL AND NOT e.contended
            AND e.landing_until <= now_us
        RETURNING e.tenant, e.entity_key, e.fence, e.revision),
    intent AS (
      INSERT INTO operators.key (tenant, idempotency_key, entity_key, fingerprint, effect,
          on_unknown, receipt_id, proposal, session_id, fence, first_intent_at, quiescent_at,
          open_until, generation, attempt, phase, open_attempts)
        SELECT s.tenant, s.key, s.entity, s.fingerprint, s.effect, s.on_unknown, s.receipt,
            s.proposal, s.session, t.fence, now_us, now_us + s.span, -9223372036854775808, 1, 1,
            'intent', '[]'
          FROM seen s JOIN turn t ON t.tenant = s.tenant AND t.entity_key = s.entity
          WHERE s.verdict = 'new' AND coalesce(s.revision >= t.revision, true)
          ORDER BY s.n
        ON CONFLICT DO NOTHING
        RETURNING tenant, idempotency_key),
    -- A duplicate writes its receipt; no key row is written or locked.
    receipt AS (
      INSERT INTO operators.receipt (tenant, idempotency_key, receipt_id, settled_at, body)
        SELECT s.tenant, s.key, s.receipt, s.stamp, CASE s.verdict
            WHEN 'duplicate' THEN s.duplicate_1 || s.attempt || s.duplicate_2 || s.generation
              || s.duplicate_3 || to_json(s.applied_receipt) || s.duplicate_4
            ELSE s.refusal_1 || s.attempt || s.refusal_2 || s.generation || s.refusal_3 END
          FROM seen s WHERE s.verdict IN ('duplicate', 'refused') ORDER BY s.n
        ON CONFLICT DO NOTHING)
    SELECT s.n, s.verdict, s.generation, s.attempt, s.phase, s.tenant, s.entity, s.key, s.session,
        t.fence, i.tenant IS NOT NULL AS is_claimed,
        CASE WHEN s.verdict = 'duplicate' THEN s.application END AS application,
        -- Only for what is written again.
        CASE WHEN s.verdict = 'again' THEN s.fingerprint END AS fingerprint,
        CASE WHEN s.verdict = 'again' THEN s.effect END AS effect,
        CASE WHEN s.verdict = 'again' THEN s.on_unknown END AS on_unknown,
        CASE WHEN s.verdict = 'again' THEN s.receipt END AS receipt,
        CASE WHEN s.verdict = 'again' THEN s.proposal END AS proposal, s.span, s.revision
      FROM seen s
      LEFT JOIN turn t ON s.verdict = 'new' AND t.tenant = s.tenant AND t.entity_key = s.entity
      LEFT JOIN intent i ON s.verdict = 'new' AND i.tenant = s.tenant AND i.idempotency_key = s.key
      ORDER BY s.n
  LOOP
    item := asked.n;
    answer := asked.verdict;
    its_generation := asked.generation;
    its_attempt := asked.attempt;
    its_fence := asked.fence;
    its_application := asked.application;
    is_free := asked.is_claimed;
    IF answer = 'again' THEN
      WITH turn AS (
        UPDATE operators.entity e SET fence = e.fence + 1, holder = asked.session
          WHERE e.tenant = asked.tenant AND e.entity_key = asked.entity
            AND e.holder IS NULL AND e.doubt IS NULL AND NOT e.contended
            AND e.landing_until <= now_us AND coalesce(asked.revision >= e.revision, true)
          RETURNING e.fence),
      intent AS (
        UPDATE operators.key k SET entity_key = asked.entity, fingerprint = asked.fingerprint,
            effect = asked.effect, on_unknown = asked.on_unknown, receipt_id = asked.receipt,
            proposal = asked.proposal, session_id = asked.session, fence = turn.fence,
            first_intent_at = now_us, quiescent_at = now_us + asked.span,
            open_until = -9223372036854775808, attempt = its_attempt + 1, phase = 'intent',
            open_attempts = '[]', applied_receipt = NULL, application = NULL
          FROM turn
          WHERE k.tenant = asked.tenant AND k.idempotency_key = asked.key
            AND k.phase = asked.phase AND k.generation = its_generation
            AND k.attempt = its_attempt
          RETURNING k.fence)
      SELECT turn.fence, EXISTS (SELECT FROM intent) INTO its_fence, is_free FROM turn;
    END IF;
    IF its_fence IS NOT NULL AND is_free THEN
      answer := 'claimed';
      its_attempt := its_attempt + 1;
    ELSIF its_fence IS NOT NULL THEN
      -- Somebody claimed the key meanwhile, or did something newer: no intent, no turn.
      UPDATE operators.entity e SET holder = NULL
        WHERE e.tenant = asked.tenant AND e.entity_key = asked.entity;
      answer := 'slow';
    END IF;
    RETURN NEXT;
  END LOOP;
END $$;

CREATE FUNCTION operators.settle(
  acked text, tenants text, entities text, keys text, sessions text, fences text,
  generations text, attempts text, receipt_ids text, phases text, revisions text,
  applications text, stamps text, bodies text)
RETURNS TABLE (item integer, answer text)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET lock_timeout = '5s'
AS $$
#variable_conflict use_column
DECLARE
  now_us CONSTANT bigint := operators.enter(acked);
  ended record;
BEGIN
  FOR ended IN
    WITH item AS MATERIALIZED (
      SELECT * FROM unnest(string_to_array(tenants, E'\x1f'), string_to_array(entities, E'\x1f'),
          string_to_array(keys, E'\x1f'), string_to_array(sessions, E'\x1f')::bigint[],
          string_to_array(fences, E'\x1f')::bigint[],
          string_to_array(generations, E'\x1f')::integer[],
          string_to_array(attempts, E'\x1f')::integer[], string_to_array(receipt_ids, E'\x1f'),
          string_to_array(phases, E'\x1f'),
          string_to_array(revisions, E'\x1f', E'\x1e')::bigint[],
          string_to_array(applications, E'\x1f', E'\x1e'),
          string_to_array(stamps, E'\x1f')::bigint[], string_to_array(bodies, E'\x1f'))
          WITH ORDINALITY
        AS i (tenant, entity, key, session, fence, generation, attempt, receipt, phase, revision,
          application, stamp, body, n)),
    -- Both rows are there, or somebody deleted them: written as inserts that always meet them, in
    -- the batch's order and by their own index, which no plan of a joined update promises.
    --
    -- Whoever holds this very turn made this very attempt, and nobody else moves its key meanwhile:
    -- every change of a key in flight begins with its entity's lock.
    turn AS (
      INSERT INTO operators.entity AS e (tenant, entity_key, fence, holder)
        SELECT i.tenant, i.entity, i.fence, i.session FROM item i ORDER BY i.n
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
          FROM item i JOIN turn t ON t.tenant = i.tenant AND t.entity_key = i.entity
          ORDER BY i.n
        ON CONFLICT (tenant, idempotency_key) DO UPDATE SET phase = excluded.phase,
            applied_receipt = excluded.applied_receipt, application = excluded.application
          WHERE k.phase = 'intent' AND k.generation = excluded.generation
            AND k.attempt = excluded.attempt AND k.session_id = excluded.session_id
            AND k.fence = excluded.fence AND k.receipt_id = excluded.receipt_id
            AND k.entity_key = excluded.entity_key AND k.open_attempts = '[]'
            AND k.application IS NULL
        RETURNING k.tenant, k.idempotency_key, k.effect = '' AS was_missing),
    receipt AS (
      INSERT INTO operators.receipt (tenant, idempotency_key, receipt_id, settled_at, body)
        SELECT i.tenant, i.key, i.receipt, i.stamp, i.body
          FROM item i JOIN moved m ON m.tenant = i.tenant AND m.idempotency_key = i.key
          ORDER BY i.n
        ON CONFLICT DO NOTHING)
    SELECT i.n, i.tenant, i.entity, i.session, t.contended, m.tenant IS NOT NULL AS is_settled,
        t.was_missing OR coalesce(m.was_missing, false) AS was_missing,
        CASE WHEN i.application IS NOT NULL THEN i.revision END AS revision
      FROM item i
      LEFT JOIN turn t ON t.tenant = i.tenant AND t.entity_key = i.entity
      LEFT JOIN moved m ON m.tenant = i.tenant AND m.idempotency_key = i.key
      ORDER BY i.n
  LOOP
    item := ended.n;
    answer := 'slow';
    IF ended.was_missing THEN
      RAISE EXCEPTION 'a row in flight was deleted' USING ERRCODE = 'serialization_failure';
    ELSIF ended.contended IS NOT NULL AND NOT ended.is_settled THEN
      UPDATE operators.entity e SET holder = ended.session
        WHERE e.tenant = ended.tenant AND e.entity_key = ended.entity;
    ELSIF ended.contended IS NOT NULL THEN
      answer := 'settled';
      IF ended.revision IS NOT NULL THEN
        UPDATE operators.entity e SET revision = greatest(e.revision, ended.revision)
          WHERE e.tenant = ended.tenant AND e.entity_key = ended.entity;
      END IF;
      IF ended.contended THEN
        PERFORM operators.ring(ended.tenant, ended.entity);
      END IF;
    END IF;
    RETURN NEXT;
  END LOOP;
END $$;

CREATE FUNCTION operators.record(acked text, tenants text, keys text, receipt_ids text,
  stamps text, bodies text)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
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
