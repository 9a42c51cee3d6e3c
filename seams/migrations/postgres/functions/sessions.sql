-- Sessions: how a process shows that it lives, by the server's clock.

CREATE OR REPLACE FUNCTION operators.open_session(acked text, its_node text, its_lease_us bigint)
RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  opened bigint;
BEGIN
  INSERT INTO operators.session (node, lease_us, alive_until)
    VALUES (its_node, its_lease_us, operators.enter(acked) + its_lease_us)
    RETURNING session_id INTO opened;
  RETURN opened;
END $$;

-- Keeps a session alive, and names those that are not: over their lease, or dead with an intent
-- that was under way when they were buried.
CREATE OR REPLACE FUNCTION operators.beat(acked text, who bigint,
  OUT is_alive boolean, OUT lifeless text)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off
SET lock_timeout = '5s'
AS $$
DECLARE
  now_us CONSTANT bigint := operators.enter(acked);
BEGIN
  UPDATE operators.session s SET alive_until = now_us + s.lease_us
    WHERE s.session_id = who AND s.dead_at IS NULL;
  is_alive := FOUND;
  SELECT string_agg(found.session_id::text, ',') INTO lifeless FROM (
    SELECT s.session_id FROM operators.session s
      WHERE s.dead_at IS NULL AND s.alive_until < now_us
    UNION
    SELECT s.session_id FROM operators.key k
      JOIN operators.session s ON s.session_id = CASE WHEN k.phase = 'intent' THEN k.session_id END
      WHERE CASE WHEN k.phase = 'intent' THEN k.session_id END IS NOT NULL
        AND s.dead_at IS NOT NULL
  ) AS found;
END $$;
