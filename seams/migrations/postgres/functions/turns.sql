-- The queue before an entity.

-- Tells whoever has waited longest for an entity that its turn may have come.
CREATE OR REPLACE FUNCTION operators.ring(whose text, which text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE first bigint;
BEGIN
  SELECT w.ticket INTO first FROM operators.waiter w
    WHERE w.tenant = whose AND w.entity_key = which ORDER BY w.ticket LIMIT 1;
  IF first IS NOT NULL THEN
    PERFORM pg_notify('operators', first::text);
  END IF;
END $$;

-- Whether a read may go ahead as things stand, without taking a place in the queue.
CREATE OR REPLACE FUNCTION operators.pass(acked text, whose text, which_entity text, who bigint)
RETURNS text
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off
AS $$
BEGIN
  PERFORM operators.enter(acked);
  IF NOT EXISTS (SELECT FROM operators.session s
      WHERE s.session_id = who AND s.dead_at IS NULL) THEN
    RETURN 'dead';
  ELSIF EXISTS (SELECT FROM operators.entity e WHERE e.tenant = whose
      AND e.entity_key = which_entity AND (e.holder IS NOT NULL OR e.contended)) THEN
    RETURN 'slow';
  END IF;
  RETURN 'free';
END $$;

-- Gives up a place in the queue.
CREATE OR REPLACE FUNCTION operators.leave(acked text, whose text, which_entity text,
  which_ticket bigint)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off
SET lock_timeout = '5s'
AS $$
BEGIN
  PERFORM operators.enter(acked);
  PERFORM FROM operators.entity e
    WHERE e.tenant = whose AND e.entity_key = which_entity FOR UPDATE;
  DELETE FROM operators.waiter w
    WHERE w.ticket = which_ticket AND w.tenant = whose AND w.entity_key = which_entity;
  UPDATE operators.entity e SET contended = EXISTS (SELECT FROM operators.waiter w
      WHERE w.tenant = whose AND w.entity_key = which_entity)
    WHERE e.tenant = whose AND e.entity_key = which_entity;
  PERFORM operators.ring(whose, which_entity);
END $$;
