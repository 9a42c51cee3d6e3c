-- The tamper-evident log: each tenant's receipts in an order that never changes, and its head.
--
-- Writers take no lock for it. A receipt says which transaction wrote it, and a sequencer appends
-- what it sees. It remembers the oldest transaction that was open when it looked: whatever older ones
-- wrote was visible then and is in the log, so the next look begins there.
ALTER TABLE operators.receipt ADD COLUMN written_by xid8 NOT NULL DEFAULT '0';
ALTER TABLE operators.receipt ALTER COLUMN written_by SET DEFAULT pg_current_xact_id();
CREATE INDEX receipt_written ON operators.receipt (tenant, written_by, sequence);

CREATE TABLE operators.leaf (
  tenant     text COLLATE "C" NOT NULL,
  position   bigint NOT NULL,
  sequence   bigint NOT NULL,                      -- the receipt's
  receipt_id text COLLATE "C" NOT NULL,
  leaf       bytea NOT NULL,
  link       bytea NOT NULL,
  PRIMARY KEY (tenant, position)
);
CREATE UNIQUE INDEX leaf_receipt ON operators.leaf (tenant, sequence);
CREATE TRIGGER leaf_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON operators.leaf
  FOR EACH STATEMENT EXECUTE FUNCTION operators.refuse_change();

CREATE TABLE operators.log (
  tenant   text COLLATE "C" PRIMARY KEY,
  size     bigint NOT NULL DEFAULT 0,
  frontier bytea,                                  -- null while nothing is in it
  horizon  xid8 NOT NULL DEFAULT '0'               -- what older transactions wrote is in it
);

DO $$
DECLARE name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['leaf', 'log'] LOOP
    EXECUTE format('ALTER TABLE operators.%I ENABLE ROW LEVEL SECURITY', name);
    EXECUTE format('ALTER TABLE operators.%I FORCE ROW LEVEL SECURITY', name);
    EXECUTE format('CREATE POLICY one_tenant ON operators.%I FOR SELECT
      USING (tenant = current_setting(''operators.tenant'', true))', name);
    EXECUTE format('CREATE POLICY store ON operators.%I TO CURRENT_USER
      USING (current_setting(''operators.scope'', true) = ''store'')
      WITH CHECK (current_setting(''operators.scope'', true) = ''store'')', name);
  END LOOP;
END $$;

CREATE FUNCTION operators.log_head(whose text) RETURNS TABLE (size bigint, frontier text)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  PERFORM set_config('operators.scope', 'store', true);
  RETURN QUERY SELECT l.size, encode(l.frontier, 'hex') FROM operators.log l WHERE l.tenant = whose;
END $$;

-- What is not in the log yet, under the lock of its head. The first row is the head, with the oldest
-- open transaction in the place of an id.
CREATE FUNCTION operators.log_pending(acked text, whose text, how_many integer)
RETURNS TABLE (number bigint, id text, hash text)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET jit = off
AS $$
DECLARE
  head operators.log;
  oldest xid8;
BEGIN
  PERFORM operators.enter(acked);
  PERFORM set_config('lock_timeout', '5s', true);
  INSERT INTO operators.log (tenant) VALUES (whose) ON CONFLICT DO NOTHING;
  SELECT * INTO head FROM operators.log l WHERE l.tenant = whose FOR UPDATE;
  -- Looked at before the receipts are: what older transactions wrote is seen below.
  oldest := pg_snapshot_xmin(pg_current_snapshot());
  IF head.horizon > oldest THEN
    -- Restored into another cluster, which counts its transactions anew: look at everything once.
    head.horizon := '0';
  END IF;
  RETURN QUERY SELECT head.size, oldest::text, encode(head.frontier, 'hex');
  RETURN QUERY SELECT r.sequence, r.receipt_id,
      encode(sha256('\x00'::bytea || convert_to(r.body, 'UTF8')), 'hex')
    FROM operators.receipt r
    WHERE r.tenant = whose AND r.written_by >= head.horizon
      AND NOT EXISTS (SELECT FROM operators.leaf l
        WHERE l.tenant = whose AND l.sequence = r.sequence)
    ORDER BY r.written_by, r.sequence LIMIT how_many;
END $$;

-- Appends, in the transaction that asked what is pending.
CREATE FUNCTION operators.log_append(whose text, old_size bigint, sequences text, ids text,
  leaves text, links text, new_frontier text, new_horizon text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $$
DECLARE
  appended bigint;
BEGIN
  INSERT INTO operators.leaf (tenant, position, sequence, receipt_id, leaf, link)
    SELECT whose, old_size + n.place - 1, n.sequence::bigint, n.id, decode(n.leaf, 'hex'),
        decode(n.link, 'hex')
      FROM unnest(string_to_array(sequences, E'\x1f'), string_to_array(ids, E'\x1f'),
        string_to_array(leaves, E'\x1f'), string_to_array(links, E'\x1f'))
        WITH ORDINALITY AS n (sequence, id, leaf, link, place);
  GET DIAGNOSTICS appended = ROW_COUNT;
  UPDATE operators.log l SET size = old_size + appended,
      frontier = CASE WHEN appended = 0 THEN l.frontier ELSE decode(new_frontier, 'hex') END,
      horizon = coalesce(new_horizon::xid8, l.horizon)
    WHERE l.tenant = whose;
END $$;

CREATE FUNCTION operators.log_page(whose text, start bigint, how_many integer)
RETURNS TABLE (place bigint, id text, leaf_hash text, link_hash text, text_of text)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET jit = off
AS $$
BEGIN
  PERFORM set_config('operators.scope', 'store', true);
  RETURN QUERY SELECT l.position, l.receipt_id, encode(l.leaf, 'hex'), encode(l.link, 'hex'), r.body
    FROM operators.leaf l
      LEFT JOIN operators.receipt r ON r.tenant = l.tenant AND r.sequence = l.sequence
    WHERE l.tenant = whose AND l.position >= start ORDER BY l.position LIMIT how_many;
END $$;

-- Receipts that a look at the log must have seen and that are not in it.
CREATE FUNCTION operators.log_strays(whose text) RETURNS TABLE (id text)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  PERFORM set_config('operators.scope', 'store', true);
  RETURN QUERY SELECT r.receipt_id FROM operators.receipt r
    WHERE r.tenant = whose
      AND r.written_by < (SELECT l.horizon FROM operators.log l WHERE l.tenant = whose)
      AND NOT EXISTS (SELECT FROM operators.leaf l
        WHERE l.tenant = whose AND l.sequence = r.sequence)
    ORDER BY r.sequence LIMIT 20;
END $$;

CREATE FUNCTION operators.log_burned(whose text, behind text, how_many integer)
RETURNS TABLE (key text, its_generation integer, receipt text)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET jit = off
AS $$
BEGIN
  PERFORM set_config('operators.scope', 'store', true);
  RETURN QUERY SELECT k.idempotency_key, k.generation, coalesce(k.applied_receipt, '')
    FROM operators.key k
    WHERE k.tenant = whose AND k.idempotency_key > behind AND k.application IS NOT NULL
    ORDER BY k.idempotency_key LIMIT how_many;
END $$;

REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA operators FROM PUBLIC;
