-- The common cases, one statement for a batch: every argument but the first is a column of the
-- batch, its values joined by U+001F (which no value holds), U+001E standing for null. What is not
-- common is answered `slow`, for the caller to decide under locks with the kernel's own rules.
-- Batches come sorted by (tenant, entity, key), so that no two wait for each other.

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
  refusals_1 text, refusals_2 text, refusals_3 text)
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
  tenant_of CONSTANT text[] := string_to_array(tenants, E'\x1f');
  entity_of CONSTANT text[] := string_to_array(entities, E'\x1f');
  key_of CONSTANT text[] := string_to_array(keys, E'\x1f');
  session_of CONSTANT bigint[] := string_to_array(sessions, E'\x1f')::bigint[];
  fingerprint_of CONSTANT text[] := string_to_array(fingerprints, E'\x1f');
  effect_of CONSTANT text[] := string_to_array(effects, E'\x1f');
  on_unknown_of CONSTANT text[] := string_to_array(on_unknowns, E'\x1f');
  span_of CONSTANT bigint[] := string_to_array(spans, E'\x1f')::bigint[];
  revision_of CONSTANT bigint[] := string_to_array(revisions, E'\x1f', E'\x1e')::bigint[];
  receipt_of CONSTANT text[] := string_to_array(receipt_ids, E'\x1f');
  proposal_of CONSTANT text[] := string_to_array(proposals, E'\x1f');
  stamp_of CONSTANT bigint[] := string_to_array(stamps, E'\x1f')::bigint[];
  duplicate_1 CONSTANT text[] := string_to_array(duplicates_1, E'\x1f');
  duplicate_2 CONSTANT text[] := string_to_array(duplicates_2, E'\x1f');
  duplicate_3 CONSTANT text[] := string_to_array(duplicates_3, E'\x1f');
  duplicate_4 CONSTANT text[] := string_to_array(duplicates_4, E'\x1f');
  refusal_1 CONSTANT text[] := string_to_array(refusals_1, E'\x1f', E'\x1e');
  refusal_2 CONSTANT text[] := string_to_array(refusals_2, E'\x1f', E'\x1e');
  refusal_3 CONSTANT text[] := string_to_array(refusals_3, E'\x1f', E'\x1e');
  known_session bigint;
  is_alive boolean;
  is_free boolean;
  seen record;
  -- The receipts to write at the end: which items, and what they say.
  item_of integer[]; body_of text[];
BEGIN
  FOR n IN 1 .. array_length(tenant_of, 1) LOOP
    item := n;
    answer := 'slow';
    its_fence := NULL;
    its_application := NULL;
    IF known_session IS DISTINCT FROM session_of[n] THEN
      known_session := session_of[n];
      is_alive := EXISTS (SELECT FROM operators.session s
        WHERE s.session_id = known_session AND s.dead_at IS NULL);
    END IF;
    SELECT k.phase, k.generation, k.attempt, k.application, k.applied_receipt,
        k.fingerprint = fingerprint_of[n] AS says_the_same,
        k.receipt_id = receipt_of[n] AS is_this_proposal
      INTO seen FROM operators.key k
      WHERE k.tenant = tenant_of[n] AND k.idempotency_key = key_of[n];
    its_generation := coalesce(seen.generation, 1);
    its_attempt := coalesce(seen.attempt, 0);

    IF NOT is_alive THEN
      answer := 'dead';
    ELSIF seen.phase = 'applied' OR seen.phase = 'written_off' THEN
      -- A duplicate writes its receipt; no key row is written or locked.
      IF seen.says_the_same AND seen.applied_receipt IS NOT NULL THEN
        answer := 'duplicate';
        its_application := seen.application;
        item_of := item_of || n;
        body_of := body_of || (duplicate_1[n] || its_attempt || duplicate_2[n] || its_generation
          || duplicate_3[n] || to_json(seen.applied_receipt) || duplicate_4[n]);
      END IF;
    ELSIF seen.phase = 'intent' OR seen.phase = 'in_doubt' OR seen.is_this_proposal THEN
      NULL;
    ELSIF refusal_1[n] IS NOT NULL THEN
      -- Key and entity as of one moment.
      SELECT e.holder IS NULL AND e.doubt IS NULL AND NOT coalesce(e.contended, false)
          AND coalesce(e.landing_until <= now_us, true)
          AND coalesce(revision_of[n] >= e.revision, true)
          AND (k.phase IS NULL OR k.phase IN ('failed', 'forgotten'))
          AND coalesce(k.attempt, 0) = its_attempt AND coalesce(k.generation, 1) = its_generation
        INTO is_free FROM (VALUES (tenant_of[n], entity_of[n], key_of[n])) AS i (tenant, entity, key)
        LEFT JOIN operators.entity e ON e.tenant = i.tenant AND e.entity_key = i.entity
        LEFT JOIN operators.key k ON k.tenant = i.tenant AND k.idempotency_key = i.key;
      IF is_free THEN
        answer := 'refused';
        item_of := item_of || n;
        body_of := body_of || (refusal_1[n] || its_attempt || refusal_2[n] || its_generation
          || refusal_3[n]);
      END IF;
    ELSIF seen.phase IS NULL THEN
      -- The turn and the intent, or neither.
      WITH turn AS (
        INSERT INTO operators.entity AS e (tenant, entity_key, fence, holder)
          VALUES (tenant_of[n], entity_of[n], 1, known_session)
          ON CONFLICT (tenant, entity_key)
            DO UPDATE SET fence = e.fence + 1, holder = excluded.holder
            WHERE e.holder IS NULL AND e.doubt IS NULL AND NOT e.contended
              AND e.landing_until <= now_us AND coalesce(revision_of[n] >= e.revision, true)
          RETURNING e.fence),
      intent AS (
        INSERT INTO operators.key (tenant, idempotency_key, entity_key, fingerprint, effect,
            on_unknown, receipt_id, proposal, session_id, fence, first_intent_at, quiescent_at,
            open_until, generation, attempt, phase, open_attempts)
          SELECT tenant_of[n], key_of[n], entity_of[n], fingerprint_of[n], effect_of[n],
            on_unknown_of[n], receipt_of[n], proposal_of[n], known_session, turn.fence, now_us,
            now_us + span_of[n], -9223372036854775808, 1, 1, 'intent', '[]' FROM turn
          ON CONFLICT DO NOTHING
          RETURNING fence)
      SELECT turn.fence, EXISTS (SELECT FROM intent) INTO its_fence, is_free FROM turn;
    ELSE
      WITH turn AS (
        UPDATE operators.entity e SET fence = e.fence + 1, holder = known_session
          WHERE e.tenant = tenant_of[n] AND e.entity_key = entity_of[n]
            AND e.holder IS NULL AND e.doubt IS NULL AND NOT e.contended
            AND e.landing_until <= now_us AND coalesce(revision_of[n] >= e.revision, true)
          RETURNING e.fence),
      intent AS (
        UPDATE operators.key k SET entity_key = entity_of[n], fingerprint = fingerprint_of[n],
            effect = effect_of[n], on_unknown = on_unknown_of[n], receipt_id = receipt_of[n],
            proposal = proposal_of[n], session_id = known_session, fence = turn.fence,
            first_intent_at = now_us, quiescent_at = now_us + span_of[n],
            open_until = -9223372036854775808, attempt = its_attempt + 1, phase = 'intent',
            open_attempts = '[]', applied_receipt = NULL, application = NULL
          FROM turn
          WHERE k.tenant = tenant_of[n] AND k.idempotency_key = key_of[n]
            AND k.phase = seen.phase AND k.generation = its_generation
            AND k.attempt = its_attempt
          RETURNING k.fence)
      SELECT turn.fence, EXISTS (SELECT FROM intent) INTO its_fence, is_free FROM turn;
    END IF;
    IF its_fence IS NOT NULL THEN
      IF is_free THEN
        answer := 'claimed';
        its_attempt := its_attempt + 1;
      ELSE
        -- Somebody claimed the key meanwhile: no intent, no turn.
        UPDATE operators.entity e SET holder = NULL
          WHERE e.tenant = tenant_of[n] AND e.entity_key = entity_of[n];
      END IF;
    END IF;
    RETURN NEXT;
  END LOOP;
  IF item_of IS NOT NULL THEN
    INSERT INTO operators.receipt (tenant, idempotency_key, receipt_id, settled_at, body)
      SELECT tenant_of[i.n], key_of[i.n], receipt_of[i.n], stamp_of[i.n], i.body
        FROM unnest(item_of, body_of) AS i (n, body)
      ON CONFLICT DO NOTHING;
  END IF;
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
  tenant_of CONSTANT text[] := string_to_array(tenants, E'\x1f');
  entity_of CONSTANT text[] := string_to_array(entities, E'\x1f');
  key_of CONSTANT text[] := string_to_array(keys, E'\x1f');
  session_of CONSTANT bigint[] := string_to_array(sessions, E'\x1f')::bigint[];
  fence_of CONSTANT bigint[] := string_to_array(fences, E'\x1f')::bigint[];
  generation_of CONSTANT integer[] := string_to_array(generations, E'\x1f')::integer[];
  attempt_of CONSTANT integer[] := string_to_array(attempts, E'\x1f')::integer[];
  receipt_of CONSTANT text[] := string_to_array(receipt_ids, E'\x1f');
  phase_of CONSTANT text[] := string_to_array(phases, E'\x1f');
  revision_of CONSTANT bigint[] := string_to_array(revisions, E'\x1f', E'\x1e')::bigint[];
  application_of CONSTANT text[] := string_to_array(applications, E'\x1f', E'\x1e');
  stamp_of CONSTANT bigint[] := string_to_array(stamps, E'\x1f')::bigint[];
  body_of CONSTANT text[] := string_to_array(bodies, E'\x1f');
  is_contended boolean;
  is_settled boolean;
  item_of integer[];
BEGIN
  FOR n IN 1 .. array_length(tenant_of, 1) LOOP
    item := n;
    answer := 'slow';
    is_contended := NULL;
    -- Whoever holds this very turn made this very attempt, and nobody else moves its key meanwhile:
    -- every change of a key in flight begins with its entity's lock.
    WITH turn AS (
      UPDATE operators.entity e SET holder = NULL
        WHERE e.tenant = tenant_of[n] AND e.entity_key = entity_of[n]
          AND e.holder = session_of[n] AND e.fence = fence_of[n] AND e.doubt IS NULL
        RETURNING e.contended),
    moved AS (
      UPDATE operators.key k SET phase = phase_of[n], application = application_of[n],
          applied_receipt = CASE WHEN application_of[n] IS NOT NULL THEN receipt_of[n] END
        FROM turn
        WHERE k.tenant = tenant_of[n] AND k.idempotency_key = key_of[n]
          AND k.phase = 'intent' AND k.generation = generation_of[n]
          AND k.attempt = attempt_of[n] AND k.session_id = session_of[n]
          AND k.fence = fence_of[n] AND k.receipt_id = receipt_of[n]
          AND k.entity_key = entity_of[n] AND k.open_attempts = '[]' AND k.application IS NULL
        RETURNING 1)
    SELECT turn.contended, EXISTS (SELECT FROM moved) INTO is_contended, is_settled FROM turn;
    IF is_contended IS NOT NULL AND NOT is_settled THEN
      UPDATE operators.entity e SET holder = session_of[n]
        WHERE e.tenant = tenant_of[n] AND e.entity_key = entity_of[n];
    ELSIF is_contended IS NOT NULL THEN
      answer := 'settled';
      item_of := item_of || n;
      IF application_of[n] IS NOT NULL AND revision_of[n] IS NOT NULL THEN
        UPDATE operators.entity e SET revision = greatest(e.revision, revision_of[n])
          WHERE e.tenant = tenant_of[n] AND e.entity_key = entity_of[n];
      END IF;
      IF is_contended THEN
        PERFORM operators.ring(tenant_of[n], entity_of[n]);
      END IF;
    END IF;
    RETURN NEXT;
  END LOOP;
  IF item_of IS NOT NULL THEN
    INSERT INTO operators.receipt (tenant, idempotency_key, receipt_id, settled_at, body)
      SELECT tenant_of[n], key_of[n], receipt_of[n], stamp_of[n], body_of[n]
        FROM unnest(item_of) AS n
      ON CONFLICT DO NOTHING;
  END IF;
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
