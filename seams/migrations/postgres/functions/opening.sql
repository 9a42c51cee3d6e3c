-- What a process asks before it trusts a database, or a new connection to it.

CREATE OR REPLACE FUNCTION operators.schema_version() RETURNS integer
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$ SELECT max(m.version) FROM operators.migration m $$;

-- Which cluster answers, for a caller that remembers what it was told here; null if the owner may
-- not know.
CREATE OR REPLACE FUNCTION operators.identity(acked text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  PERFORM operators.enter(acked);
  RETURN (SELECT system_identifier::text FROM pg_control_system());
EXCEPTION WHEN insufficient_privilege THEN
  RETURN NULL;
END $$;
