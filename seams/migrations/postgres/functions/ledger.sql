-- Looking: what people and auditors ask. Nothing here writes or locks.

CREATE OR REPLACE FUNCTION operators.glimpse(whose text, which_entity text, which_key text)
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

CREATE OR REPLACE FUNCTION operators.doubts(whose text)
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

-- The attempts that are in flight, each with what the session that owns it last showed.
CREATE OR REPLACE FUNCTION operators.in_flight(whose text)
RETURNS TABLE (kind text, doc text)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
BEGIN
  PERFORM set_config('operators.scope', 'store', true);
  RETURN QUERY
    SELECT 'now', (extract(epoch FROM clock_timestamp()) * 1000000)::bigint::text
    UNION ALL (SELECT 'in_flight', json_build_object('key', row_to_json(k), 'node', s.node,
        'lease_us', s.lease_us, 'alive_until', s.alive_until, 'dead_at', s.dead_at)::text
      FROM operators.key k LEFT JOIN operators.session s ON s.session_id = k.session_id
      WHERE CASE WHEN k.phase = 'intent' THEN k.session_id END IS NOT NULL AND k.tenant = whose
      ORDER BY k.first_intent_at, k.receipt_id);
END
$$;

-- Whether anything was ever kept of a tenant, and of any.
CREATE OR REPLACE FUNCTION operators.history_of(whose text, OUT is_known boolean, OUT is_used boolean)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
BEGIN
  PERFORM set_config('operators.scope', 'store', true);
  is_known := EXISTS (SELECT FROM operators.key k WHERE k.tenant = whose)
    OR EXISTS (SELECT FROM operators.receipt r WHERE r.tenant = whose);
  is_used := is_known OR EXISTS (SELECT FROM operators.key)
    OR EXISTS (SELECT FROM operators.receipt);
END
$$;

-- Up to which number a tenant's receipts can be read without passing over one.
--
-- Numbers are given out when a receipt is inserted and shown when it is committed, so a higher one
-- may be seen first. Whoever inserts holds a lock on the table from before its first number until
-- after its commit: so once those who hold it now have ended, no number up to the highest seen now
-- can come any more. Nobody is held up by this; a reader waits the milliseconds that a write takes,
-- and gives up on one that stands still.
CREATE OR REPLACE FUNCTION operators.last_settled(whose text) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
DECLARE
  last    bigint;
  writers text[];
  patience_until CONSTANT timestamptz := clock_timestamp() + interval '5 s';
BEGIN
  -- What is committed during the wait must be in sight after it.
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    PERFORM operators.refuse_isolation();
  END IF;
  SELECT r.sequence INTO last FROM operators.receipt r
    WHERE r.tenant = whose ORDER BY r.sequence DESC LIMIT 1;
  IF last IS NULL THEN RETURN 0; END IF;
  LOOP
    SELECT array_agg(l.virtualtransaction) INTO writers FROM pg_locks l
      WHERE l.locktype = 'relation' AND l.relation = 'operators.receipt'::regclass
        AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
        AND l.mode = 'RowExclusiveLock' AND l.granted AND l.pid IS DISTINCT FROM pg_backend_pid()
        AND (writers IS NULL OR l.virtualtransaction = ANY (writers));
    EXIT WHEN writers IS NULL;
    IF clock_timestamp() > patience_until THEN
      RAISE EXCEPTION 'a transaction that may hold earlier receipts has been open for 5 s; '
        'reading on could pass over them' USING ERRCODE = 'lock_not_available';
    END IF;
    PERFORM pg_sleep(0.002);
  END LOOP;
  RETURN last;
END $$;

-- One page of a tenant's receipts. `fragments` are what a body must hold to be looked for at all;
-- whether it really is what was asked is for the caller to see.
CREATE OR REPLACE FUNCTION operators.trail(whose text, after_sequence bigint,
  before_sequence bigint, newest_first boolean, how_many integer, which_receipt text,
  which_key text, since bigint, until bigint, fragments text)
RETURNS TABLE (sequence bigint, body text)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
  must_hold CONSTANT text[] := string_to_array(fragments, E'\x1f');
  ending bigint := before_sequence;
BEGIN
  PERFORM set_config('operators.scope', 'store', true);
  -- One receipt by its id is there or not; the store asks so in the middle of its own writes.
  IF NOT newest_first AND which_receipt IS NULL THEN
    ending := least(ending, operators.last_settled(whose) + 1);
  END IF;
  RETURN QUERY EXECUTE 'SELECT r.sequence, r.body FROM '
    -- OFFSET: a key's receipts are found by their key and then put in order. A planner that counts on
    -- meeting enough of them soon would rather read all there are in their order.
    || CASE WHEN which_key IS NULL THEN 'operators.receipt'
      ELSE '(SELECT * FROM operators.receipt k
        WHERE k.tenant = $1 AND k.idempotency_key = $6 OFFSET 0)' END
    || ' r WHERE r.tenant = $1 AND r.sequence > $2 AND r.sequence < $3'
    -- A stub is no receipt; whoever asks for this very one is to see that it was pruned.
    || CASE WHEN which_receipt IS NULL THEN ' AND NOT starts_with(r.body, ''{"pruned":'')'
      ELSE ' AND r.receipt_id = $5' END
    || CASE WHEN since IS NULL THEN '' ELSE ' AND r.settled_at >= $7' END
    || CASE WHEN until IS NULL THEN '' ELSE ' AND r.settled_at < $8' END
    || CASE WHEN must_hold = '{}' THEN ''
      ELSE ' AND NOT EXISTS (SELECT FROM unnest($9) AS f (part) WHERE strpos(r.body, f.part) = 0)'
      END
    || CASE WHEN newest_first THEN ' ORDER BY r.sequence DESC LIMIT $4'
      ELSE ' ORDER BY r.sequence LIMIT $4' END
    USING whose, after_sequence, ending, how_many, which_receipt, which_key, since,
      until, must_hold;
END $$;

-- What is amiss in the records, in words; for `doctor`.
CREATE OR REPLACE FUNCTION operators.problems() RETURNS TABLE (problem text)
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
