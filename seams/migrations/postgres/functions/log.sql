-- The tamper-evident log: each tenant's receipts in an order that never changes, and its head.
--
-- Writers take no lock for it: a sequencer appends what it sees, and finds what is not in the log
-- yet by the receipts' numbers. As in `last_settled`: whoever inserts holds a lock on the table
-- from before its first number until after its commit. So once everybody who held it at one look
-- has let go, all numbers given out before that look are in sight or will never be; up to there
-- nothing has to be looked at again.

CREATE OR REPLACE FUNCTION operators.log_head(whose text) RETURNS TABLE (size bigint, frontier text)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  PERFORM set_config('operators.scope', 'store', true);
  RETURN QUERY SELECT l.size, encode(l.frontier, 'hex') FROM operators.log l WHERE l.tenant = whose;
END $$;

-- What is not in the log yet, under the lock of its head, which is the first row.
CREATE OR REPLACE FUNCTION operators.log_pending(acked text, whose text, how_many integer)
RETURNS TABLE (number bigint, id text, hash text)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET jit = off
AS $$
DECLARE
  head operators.log;
  last_number bigint;
  writing text[];
BEGIN
  PERFORM operators.enter(acked);
  PERFORM set_config('lock_timeout', '5s', true);
  INSERT INTO operators.log (tenant) VALUES (whose) ON CONFLICT DO NOTHING;
  SELECT * INTO head FROM operators.log l WHERE l.tenant = whose FOR UPDATE;
  -- In this order: first the numbers, then who may hold one of them, then the receipts in sight.
  SELECT CASE WHEN s.is_called THEN s.last_value ELSE 0 END INTO last_number
    FROM operators.receipt_sequence_seq s;
  SELECT coalesce(array_agg(l.virtualtransaction), '{}') INTO writing FROM pg_locks l
    WHERE l.locktype = 'relation' AND l.relation = 'operators.receipt'::regclass
      AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
      AND l.mode = 'RowExclusiveLock' AND l.granted AND l.pid IS DISTINCT FROM pg_backend_pid();
  IF NOT string_to_array(head.writers, ',') && writing THEN
    head.settled := greatest(head.settled, head.given_out);
    head.given_out := last_number;
    head.writers := array_to_string(writing, ',');
  END IF;
  IF head.writers = '' THEN
    head.settled := greatest(head.settled, head.given_out);
  END IF;
  -- The head, with what `log_append` is to be told in the place of an id.
  RETURN QUERY SELECT head.size, concat_ws(' ', head.settled, head.given_out, head.writers),
    encode(head.frontier, 'hex');
  RETURN QUERY SELECT r.sequence, r.receipt_id,
      encode(sha256('\x00'::bytea || convert_to(r.body, 'UTF8')), 'hex')
    FROM operators.receipt r
    WHERE r.tenant = whose
      AND r.sequence > (SELECT l.settled FROM operators.log l WHERE l.tenant = whose)
      AND NOT EXISTS (SELECT FROM operators.leaf l
        WHERE l.tenant = whose AND l.sequence = r.sequence)
    ORDER BY r.sequence LIMIT how_many;
END $$;

-- Appends, in the transaction that asked what is pending. `new_horizon` is what that was told; with
-- `behind` before it there was more than was asked for.
CREATE OR REPLACE FUNCTION operators.log_append(whose text, old_size bigint, sequences text,
  ids text, leaves text, links text, new_frontier text, new_horizon text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $$
DECLARE
  is_behind CONSTANT boolean := starts_with(new_horizon, 'behind ');
  said CONSTANT text[] := string_to_array(regexp_replace(new_horizon, '^behind ', ''), ' ');
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
      given_out = said[2]::bigint, writers = coalesce(said[3], ''),
      -- Pending receipts come in the order of their numbers: all up to the last one are in.
      settled = greatest(l.settled, least(said[1]::bigint, CASE WHEN is_behind
        THEN (string_to_array(sequences, E'\x1f'))[appended]::bigint END))
    WHERE l.tenant = whose;
END $$;

CREATE OR REPLACE FUNCTION operators.log_page(whose text, start bigint, how_many integer)
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
CREATE OR REPLACE FUNCTION operators.log_strays(whose text) RETURNS TABLE (id text)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  PERFORM set_config('operators.scope', 'store', true);
  RETURN QUERY SELECT r.receipt_id FROM operators.receipt r
    WHERE r.tenant = whose
      AND r.sequence <= (SELECT l.settled FROM operators.log l WHERE l.tenant = whose)
      AND NOT EXISTS (SELECT FROM operators.leaf l
        WHERE l.tenant = whose AND l.sequence = r.sequence)
    ORDER BY r.sequence LIMIT 20;
END $$;

-- The keys that are burned, with the receipts that say so, which must be in the log.
CREATE OR REPLACE FUNCTION operators.log_burned(whose text, behind text, how_many integer)
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
      AND k.phase IN ('applied', 'written_off')
    ORDER BY k.idempotency_key LIMIT how_many;
END $$;
