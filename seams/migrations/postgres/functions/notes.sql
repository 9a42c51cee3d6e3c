-- Notes: what people and limits say about claims, small texts that only the kernel understands.
-- What is paused has a table of its own, for the sake of its lock. Whoever claims has looked at it
-- FOR KEY SHARE and so holds ROW SHARE on the table until the claim is committed, taken before the
-- look's snapshot; whoever pauses or resumes takes EXCLUSIVE, and so waits for those claims: after a
-- pause is acknowledged, none is granted that did not see it. Whoever only reads the table, a backup
-- for one, holds up neither.

-- The notes that a decision needs, in the transaction of its page: what is paused as it is, the
-- others locked, in the order of their names, so that no two wait for each other.
CREATE OR REPLACE FUNCTION operators.notes(whose text, wanted json)
RETURNS TABLE (kind text, doc text)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
  one record;
  found_body text;
BEGIN
  PERFORM set_config('operators.scope', 'store', true);
  kind := 'note';
  FOR one IN
    SELECT w.kind AS which_kind, w.name AS which_name
      FROM json_populate_recordset(NULL::operators.note, wanted) AS w ORDER BY 1, 2
  LOOP
    found_body := NULL;
    IF one.which_kind = 'pause' THEN
      SELECT p.body INTO found_body FROM operators.pause p
        WHERE p.tenant = whose FOR KEY SHARE;
    ELSE
      INSERT INTO operators.note (tenant, kind, name)
        VALUES (whose, one.which_kind, one.which_name) ON CONFLICT DO NOTHING;
      SELECT n.body INTO found_body FROM operators.note n
        WHERE n.tenant = whose AND n.kind = one.which_kind AND n.name = one.which_name FOR UPDATE;
    END IF;
    doc := json_build_object('tenant', whose, 'kind', one.which_kind, 'name', one.which_name,
      'body', found_body);
    RETURN NEXT;
  END LOOP;
END $$;

-- The same for an order, which begins its transaction with it.
CREATE OR REPLACE FUNCTION operators.desk(acked text, whose text, wanted json)
RETURNS TABLE (kind text, doc text)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  PERFORM operators.enter(acked);
  PERFORM set_config('lock_timeout', '5s', true);
  IF EXISTS (SELECT FROM json_populate_recordset(NULL::operators.note, wanted) AS w
      WHERE w.kind = 'pause') THEN
    LOCK TABLE operators.pause IN EXCLUSIVE MODE;
  END IF;
  RETURN QUERY
    SELECT 'now', (extract(epoch FROM clock_timestamp()) * 1000000)::bigint::text;
  RETURN QUERY SELECT n.kind, n.doc FROM operators.notes(whose, wanted) AS n;
END $$;

-- Writes the notes among what was decided.
CREATE OR REPLACE FUNCTION operators.write_notes(changes json) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
  one operators.note;
BEGIN
  FOR one IN SELECT * FROM json_populate_recordset(NULL::operators.note, changes -> 'notes') LOOP
    IF one.kind <> 'pause' THEN
      INSERT INTO operators.note AS n (tenant, kind, name, body)
        VALUES (one.tenant, one.kind, one.name, one.body)
        ON CONFLICT (tenant, kind, name) DO UPDATE SET body = excluded.body;
    ELSIF one.body IS NULL THEN
      DELETE FROM operators.pause p WHERE p.tenant = one.tenant;
    ELSE
      INSERT INTO operators.pause AS p (tenant, body) VALUES (one.tenant, one.body)
        ON CONFLICT (tenant) DO UPDATE SET body = excluded.body;
    END IF;
  END LOOP;
END $$;

-- Looking: one note, or all of a kind.
CREATE OR REPLACE FUNCTION operators.jottings(whose text, which_kind text, which_name text)
RETURNS TABLE (name text, body text)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
BEGIN
  PERFORM set_config('operators.scope', 'store', true);
  IF which_kind = 'pause' THEN
    RETURN QUERY SELECT 'all'::text, p.body FROM operators.pause p WHERE p.tenant = whose;
    RETURN;
  END IF;
  RETURN QUERY SELECT n.name, n.body FROM operators.note n
    WHERE n.tenant = whose AND n.kind = which_kind AND n.body IS NOT NULL
      AND (which_name IS NULL OR n.name = which_name) ORDER BY 1;
END $$;
