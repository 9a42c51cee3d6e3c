-- The key of a tenant's hashes of secrets: the one that is there, or `fresh` from now on.
CREATE OR REPLACE FUNCTION operators.redaction_key(acked text, whose text, fresh text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  its_key text;
BEGIN
  PERFORM operators.enter(acked);
  LOOP
    SELECT encode(t.redaction_key, 'hex') INTO its_key FROM operators.tenant t
      WHERE t.tenant = whose;
    IF FOUND THEN
      RETURN its_key;
    END IF;
    INSERT INTO operators.tenant (tenant, redaction_key) VALUES (whose, decode(fresh, 'hex'))
      ON CONFLICT DO NOTHING;
  END LOOP;
END $$;
