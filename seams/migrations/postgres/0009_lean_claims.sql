-- The same decisions as `claim` and `settle`, for less: a call that comes alone is decided by a few
-- plain statements, and a batch is looked at first, so that only what it needs is run. Each answers
-- with one text: fields are separated by U+001F and items by U+001E, which no value holds.
-- `claim` and `settle` stay for processes of the version before, which may still be running.

CREATE FUNCTION operators.refuse_open_transaction() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'a transaction was left open' USING ERRCODE = 'active_sql_transaction';
END $$;

-- What every writing call does first, with the server's time; see `enter`. One expression, so that it
-- becomes a part of whatever asks.
CREATE FUNCTION operators.arrive() RETURNS bigint LANGUAGE sql AS $$
  SELECT CASE
    WHEN set_config('operators.scope', 'store', true) = 'store'
      AND transaction_timestamp() = statement_timestamp()
      AND (current_setting('synchronous_commit') IN ('on', 'remote_apply')
        OR set_config('synchronous_commit', 'on', true) = 'on')
      THEN (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
    ELSE operators.refuse_open_transaction() END
$$;

CREATE OR REPLACE FUNCTION operators.enter(acked text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  now_us CONSTANT bigint := operators.arrive();
  is_lost boolean := false;
BEGIN
  -- What this caller was told is durable must still be there; nearly always it names one receipt.
  IF strpos(acked, E'\x1f') > 0 THEN
    is_lost := EXISTS (SELECT FROM unnest(string_to_array(acked, E'\x1f')) AS told (id)
      WHERE NOT EXISTS (SELECT FROM operators.receipt r WHERE r.receipt_id = told.id));
  ELSIF acked <> '' THEN
    is_lost := NOT EXISTS (SELECT FROM operators.receipt r WHERE r.receipt_id = acked);
  END IF;
  IF is_lost THEN
    RAISE EXCEPTION 'store rolled back' USING ERRCODE = 'OP001';
  END IF;
  RETURN now_us;
END $$;

-- What the key's record alone says about a claim. `is_same`: burned by the same arguments, under a
-- receipt that a duplicate can cite. `is_its_own`: this very proposal was here before.
CREATE FUNCTION operators.verdict(phase text, is_same boolean, is_its_own boolean,
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
CREATE FUNCTION operators.claim_one(
  acked text, its_tenant text, its_entity text, its_key text, its_session bigint,
  its_fingerprint text, its_effect text, its_on_unknown text, its_span bigint,
  its_revision bigint, its_receipt text, its_proposal text, its_stamp bigint,
  duplicate_1 text, duplicate_2 text, duplicate_3 text, duplicate_4 text,
  refusal_1 text, refusal_2 text, refusal_3 text, is_controlled boolean)
RETURNS text
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
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
          AND NOT EXISTS (SELECT FROM operators.pause p WHERE p.tenant = its_tenant)
      ON CONFLICT (tenant, entity_key)
        DO UPDATE SET fence = e.fence + 1, holder = excluded.holder
        WHERE e.holder IS NULL AND e.doubt IS NULL AND NOT e.contended
          AND e.landing_until <= now_us AND coalesce(its_revision >= e.revision, true)
      RETURNING e.fence INTO its_fence;
    IF its_fence IS NOT NULL THEN
      IF verdict = 'new' THEN
        INSERT INTO operators.key (tenant, idempotency_key, entity_key, fingerprint, effect,
            on_unknown, receipt_id, proposal, session_id, fence, first_intent_at, quiescent_at,
            open_until, generation, attempt, phase, open_attempts)
          VALUES (its_tenant, its_key, its_entity, its_fingerprint, its_effect, its_on_unknown,
            its_receipt, its_proposal, its_session, its_fence, now_us, now_us + its_span,
            -9223372036854775808, 1, 1, 'intent', '[]')
          ON CONFLICT (tenant, idempotency_key) DO NOTHING;
      ELSE
        UPDATE operators.key k SET entity_key = its_entity, fingerprint = its_fingerprint,
            effect = its_effect, on_unknown = its_on_unknown, receipt_id = its_receipt,
            proposal = its_proposal, session_id = its_session, fence = its_fence,
            first_intent_at = now_us, quiescent_at = now_us + its_span,
            open_until = -9223372036854775808, attempt = its_attempt + 1, phase = 'intent',
            open_attempts = '[]', applied_receipt = NULL, application = NULL
          WHERE k.tenant = its_tenant AND k.idempotency_key = its_key AND k.phase = was
            AND k.generation = its_generation AND k.attempt = its_attempt;
      END IF;
      IF FOUND THEN
        RETURN concat_ws(E'\x1f', 'claimed', its_generation, its_attempt + 1, its_fence);
      END IF;
      -- Somebody claimed the key meanwhile: no intent, no turn.
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

-- The end of one attempt, by whoever holds its turn. Whoever holds this very turn made this very
-- attempt, and nobody else moves its key meanwhile: every change of a key in flight begins with its
-- entity's lock.
CREATE FUNCTION operators.settle_one(
  acked text, its_tenant text, its_entity text, its_key text, its_session bigint,
  its_fence bigint, its_generation bigint, its_attempt bigint, its_receipt text, its_phase text,
  its_revision bigint, its_application text, its_stamp bigint, its_body text)
RETURNS text
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
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

REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA operators FROM PUBLIC;
