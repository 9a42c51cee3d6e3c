-- What every writing call does first, with the server's time.
--
-- The call must begin its transaction: one that somebody left open would take back what is
-- acknowledged here. Until the transaction ends it speaks for all tenants, to row-level security,
-- and commits for good: a SET clause of the function would end before the commit.

CREATE OR REPLACE FUNCTION operators.refuse_open_transaction() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'a transaction was left open' USING ERRCODE = 'active_sql_transaction';
END $$;

-- Above `read committed` every statement of a call sees what was there as the call began, however
-- long it waited since: a claim would miss a pause that was acknowledged meanwhile, and the log a
-- receipt.
CREATE OR REPLACE FUNCTION operators.refuse_isolation() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'its transactions begin as `%`, where a claim can miss a pause and the log a '
    'receipt; say `ALTER ROLE % SET default_transaction_isolation = ''read committed''`, or undo '
    'that setting where it was made, for the database, the server or in the URL',
    current_setting('transaction_isolation'), quote_ident(session_user)
    USING ERRCODE = 'object_not_in_prerequisite_state';
END $$;

-- One expression, so that it becomes a part of whatever asks.
CREATE OR REPLACE FUNCTION operators.arrive() RETURNS bigint LANGUAGE sql AS $$
  SELECT CASE
    WHEN current_setting('transaction_isolation') <> 'read committed'
      THEN operators.refuse_isolation()
    WHEN set_config('operators.scope', 'store', true) = 'store'
      AND transaction_timestamp() = statement_timestamp()
      AND (current_setting('synchronous_commit') IN ('on', 'remote_apply')
        OR set_config('synchronous_commit', 'on', true) = 'on')
      THEN (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
    ELSE operators.refuse_open_transaction() END
$$;

-- The same for a caller who was told that something is durable.
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
