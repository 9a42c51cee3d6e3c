-- Claims, in the common cases. What is not common is answered `slow`, for the caller to decide
-- under locks with the kernel's own rules.
--
-- A call that comes alone is decided by a few plain statements, and a batch is looked at first, so
-- that only what it needs is run. Each answers with one text: fields are separated by U+001F and
-- items by U+001E, which no value holds.
--
-- What is paused is looked at FOR KEY SHARE, for the lock on its table, which even a look that finds
-- nothing takes, before the statement looks at anything: see `notes.sql`.

-- What the key's record alone says about a claim. `is_same`: burned by the same arguments, under a
-- receipt that a duplicate can cite. `is_its_own`: this very proposal was here before.
CREATE OR REPLACE FUNCTION operators.verdict(phase text, is_same boolean, is_its_own boolean,
  is_refused boolean, is_controlled boolean) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE
    WHEN phase = 'applied' OR phase = 'written_off' THEN
      CASE WHEN is_same THEN 'duplicate' ELSE 'slow' END
    WHEN phase = 'intent' OR phase = 'in_doubt' OR is_its_own THEN 'slow'
    WHEN is_refused THEN 'refused'
    -- Whether a limit or a person stops this one is not for here to know.
    WHEN is_controlled THEN 'slow'
    WHEN phase IS NULL THEN 'new'
    ELSE 'again' END
$$;

-- One claim. What must hold for it to go ahead is a condition of its first write; only if that was
-- not done is it looked into why.
CREATE OR REPLACE FUNCTION operators.claim_one(
  acked text, its_tenant text, its_entity text, its_key text, its_session bigint,
  its_fingerprint text, its_effect text, its_on_unknown text, its_span bigint,
  its_revision bigint, its_receipt text, its_proposal text, its_stamp bigint,
  duplicate_1 text, duplicate_2 text, duplicate_3 text, duplicate_4 text,
  refusal_1 text, refusal_2 text, refusal_3 text, is_controlled boolean)
RETURNS text
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET jit = off
SET lock_timeout = '5s'
AS $$
DECLARE
  now_us CONSTANT bigint := operators.arrive();
  verdict text;
  was text;
  its_generation integer := 1;
  its_attempt integer := 0;
  its_original text;
  its_application text;
  its_fence bigint;
BEGIN
  SELECT k.phase, k.generation, k.attempt, k.applied_receipt, k.application, operators.verdict(
      k.phase, k.fingerprint = its_fingerprint AND k.applied_receipt IS NOT NULL,
      k.receipt_id = its_receipt, refusal_1 IS NOT NULL, is_controlled)
    INTO was, its_generation, its_attempt, its_original, its_application, verdict
    FROM operators.key k WHERE k.tenant = its_tenant AND k.idempotency_key = its_key;
  IF NOT FOUND THEN
    its_generation := 1;
    its_attempt := 0;
    verdict := operators.verdict(NULL, NULL, NULL, refusal_1 IS NOT NULL, is_controlled);
  END IF;
  IF verdict = 'duplicate' OR verdict = 'refused' THEN
    -- A duplicate writes its receipt; no key row is written or locked.
    INSERT INTO operators.receipt (tenant, idempotency_key, receipt_id, settled_at, body)
      SELECT its_tenant, its_key, its_receipt, its_stamp, CASE verdict
          WHEN 'duplicate' THEN duplicate_1 || its_attempt || duplicate_2 || its_generation
            || duplicate_3 || to_json(its_original) || duplicate_4
          ELSE refusal_1 || its_attempt || refusal_2 || its_generation || refusal_3 END
        WHERE EXISTS (SELECT FROM operators.session s
            WHERE s.session_id = its_session AND s.dead_at IS NULL)
          AND (acked = '' OR EXISTS (SELECT FROM operators.receipt r WHERE r.receipt_id = acked))
          AND (verdict = 'duplicate'
            OR (SELECT e.holder IS NULL AND e.doubt IS NULL AND NOT e.contended
                AND e.landing_until <= now_us AND coalesce(its_revision >= e.revision, true)
              FROM operators.entity e
              WHERE e.tenant = its_tenant AND e.entity_key = its_entity) IS NOT FALSE);
    IF FOUND THEN
      RETURN concat_ws(E'\x1f', verdict, its_generation, its_attempt,
        CASE WHEN verdict = 'duplicate' THEN its_application END);
    END IF;
  ELSIF verdict = 'new' OR verdict = 'again' THEN
    -- The turn and the intent, or neither.
    INSERT INTO operators.entity AS e (tenant, entity_key, fence, holder)
      SELECT its_tenant, its_entity, 1, its_session
        WHERE EXISTS (SELECT FROM operators.session s
            WHERE s.session_id = its_session AND s.dead_at IS NULL)
          AND (acked = '' OR EXISTS (SELECT FROM operators.receipt r WHERE r.receipt_id = acked))
          -- Whether it stops this one is not for here to know.
          AND NOT EXISTS (SELECT FROM operators.pause p
            WHERE p.tenant = its_tenant FOR KEY SHARE)
      ON CONFLICT (tenant, entity_key)
        DO UPDATE SET fence = e.fence + 1, holder = excluded.holder
        WHERE e.holder IS NULL AND e.doubt IS NULL AND NOT e.contended
          AND e.landing_until <= now_us AND coalesce(its_revision >= e.revision, true)
      RETURNING e.fence INTO its_fence;
    IF its_fence IS NOT NULL THEN
      -- A statement that was long on its way may find that its proposal has its receipt: it was
      -- asked again meanwhile, and refused. Looked for under the turn's lock, where that is decided.
      IF verdict = 'new' THEN
        INSERT INTO operators.key (tenant, idempotency_key, entity_key, fingerprint, effect,
            on_unknown, receipt_id, proposal, session_id, fence, first_intent_at, quiescent_at,
            open_until, generation, attempt, phase, open_attempts)
          SELECT its_tenant, its_key, its_entity, its_fingerprint, its_effect, its_on_unknown,
              its_receipt, its_proposal, its_session, its_fence, now_us, now_us + its_span,
              -9223372036854775808, 1, 1, 'intent', '[]'
            WHERE NOT EXISTS (SELECT FROM operators.receipt r WHERE r.receipt_id = its_receipt)
          ON CONFLICT (tenant, idempotency_key) DO NOTHING;
      ELSE
        UPDATE operators.key k SET entity_key = its_entity, fingerprint = its_fingerprint,
            effect = its_effect, on_unknown = its_on_unknown, receipt_id = its_receipt,
            proposal = its_proposal, session_id = its_session, fence = its_fence,
            first_intent_at = now_us, quiescent_at = now_us + its_span,
            open_until = -9223372036854775808, attempt = its_attempt + 1, phase = 'intent',
            open_attempts = '[]', applied_receipt = NULL, application = NULL
          WHERE k.tenant = its_tenant AND k.idempotency_key = its_key AND k.phase = was
            AND k.generation = its_generation AND k.attempt = its_attempt
            AND NOT EXISTS (SELECT FROM operators.receipt r WHERE r.receipt_id = its_receipt);
      END IF;
      IF FOUND THEN
        RETURN concat_ws(E'\x1f', 'claimed', its_generation, its_attempt + 1, its_fence);
      END IF;
      -- Somebody claimed the key meanwhile, or this was ended: no intent, no turn.
      UPDATE operators.entity e SET holder = NULL
        WHERE e.tenant = its_tenant AND e.entity_key = its_entity;
    END IF;
  END IF;
  PERFORM operators.enter(acked);
  IF EXISTS (SELECT FROM operators.session s
      WHERE s.session_id = its_session AND s.dead_at IS NULL) THEN
    RETURN 'slow';
  END IF;
  RETURN 'dead';
END $$;

-- A batch: every argument but the first is a column of it, its values joined by U+001F, U+001E
-- standing for null. Batches come sorted by (tenant, entity), so that no two wait for each other,
-- and name no entity and no key twice.
--
-- Where every batch passes, columns are read by place, out of arrays that the function holds taken
-- apart. `unnest` of fifteen columns would copy each into a table of its own first, which is a
-- tenth of what a duplicate costs.
CREATE OR REPLACE FUNCTION operators.claim_many(
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
  refusal_1_of CONSTANT text[] := string_to_array(refusals_1, E'\x1f', E'\x1e');
  is_controlled_of CONSTANT boolean[] := string_to_array(controlled, E'\x1f');
  -- Of duplicates and refusals alone.
  stamp_of bigint[];
  duplicate_1_of text[];
  duplicate_2_of text[];
  duplicate_3_of text[];
  duplicate_4_of text[];
  refusal_2_of text[];
  refusal_3_of text[];
  alive bigint[];
  verdicts text[];
  phases text[];
  generations integer[];
  attempts integer[];
  originals text[];
  answers text[];
  writes_receipts boolean;
  wants_turns boolean;
  ended text[];
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
            WHEN session_of[i.n] <> ALL (alive) THEN 'dead'
            WHEN v.verdict = 'refused' AND (SELECT e.holder IS NULL AND e.doubt IS NULL
                AND NOT e.contended AND e.landing_until <= now_us
                AND coalesce(revision_of[i.n] >= e.revision, true)
              FROM operators.entity e
              WHERE e.tenant = tenant_of[i.n] AND e.entity_key = entity_of[i.n]) IS FALSE THEN 'slow'
            -- Whether it stops this one is not for here to know.
            WHEN (v.verdict = 'new' OR v.verdict = 'again') AND EXISTS (SELECT
              FROM operators.pause p WHERE p.tenant = tenant_of[i.n] FOR KEY SHARE) THEN 'slow'
            ELSE v.verdict END AS verdict
        FROM generate_series(1, cardinality(tenant_of)) AS i (n)
        LEFT JOIN LATERAL (SELECT * FROM operators.key f
          WHERE f.tenant = tenant_of[i.n] AND f.idempotency_key = key_of[i.n] LIMIT 1) k ON true
        CROSS JOIN LATERAL (SELECT operators.verdict(k.phase,
          k.fingerprint = fingerprint_of[i.n] AND k.applied_receipt IS NOT NULL,
          k.receipt_id = receipt_of[i.n], refusal_1_of[i.n] IS NOT NULL, is_controlled_of[i.n])
          AS verdict) v
        OFFSET 0) d;
  IF writes_receipts THEN
    stamp_of := string_to_array(stamps, E'\x1f');
    duplicate_1_of := string_to_array(duplicates_1, E'\x1f');
    duplicate_2_of := string_to_array(duplicates_2, E'\x1f');
    duplicate_3_of := string_to_array(duplicates_3, E'\x1f');
    duplicate_4_of := string_to_array(duplicates_4, E'\x1f');
    refusal_2_of := string_to_array(refusals_2, E'\x1f', E'\x1e');
    refusal_3_of := string_to_array(refusals_3, E'\x1f', E'\x1e');
    -- A duplicate writes its receipt; no key row is written or locked.
    INSERT INTO operators.receipt (tenant, idempotency_key, receipt_id, settled_at, body)
      SELECT tenant_of[i.n], key_of[i.n], receipt_of[i.n], stamp_of[i.n], CASE verdicts[i.n]
          WHEN 'duplicate' THEN duplicate_1_of[i.n] || attempts[i.n] || duplicate_2_of[i.n]
            || generations[i.n] || duplicate_3_of[i.n] || to_json(originals[i.n])
            || duplicate_4_of[i.n]
          ELSE refusal_1_of[i.n] || attempts[i.n] || refusal_2_of[i.n] || generations[i.n]
            || refusal_3_of[i.n] END
        FROM generate_series(1, cardinality(tenant_of)) AS i (n)
        WHERE verdicts[i.n] = 'duplicate' OR verdicts[i.n] = 'refused';
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
    -- As in `claim_one`, and as late: with the first row all turns are taken and all intents of new
    -- keys written. Those ended while this waited for them are taken back.
    IF ended IS NULL THEN
      SELECT coalesce(array_agg(r.receipt_id), '{}') INTO ended FROM operators.receipt r
        WHERE r.receipt_id = ANY (receipt_of);
    END IF;
    IF receipt_of[one.n] = ANY (ended) THEN
      DELETE FROM operators.key k WHERE one.is_claimed AND k.tenant = tenant_of[one.n]
        AND k.idempotency_key = key_of[one.n];
      one.is_claimed := false;
    ELSIF verdicts[one.n] = 'again' AND one.is_newest THEN
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
      -- Somebody claimed the key meanwhile, did something newer, or ended this: no intent, no turn.
      UPDATE operators.entity e SET holder = NULL
        WHERE e.tenant = tenant_of[one.n] AND e.entity_key = entity_of[one.n];
    END IF;
  END LOOP;
  RETURN array_to_string(answers, E'\x1e');
END $$;
