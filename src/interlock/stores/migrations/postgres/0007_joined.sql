-- Steps in a transaction of the caller (`join`): such a transaction may hold rows for as long as the caller likes, and it
-- has its own search path.

-- Times are those of the statement: in a long transaction `now()` is the time at which it began, so a timer of five
-- minutes would be overdue after ten.
CREATE OR REPLACE FUNCTION clock_ms() RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE AS $$
  SELECT floor(extract(epoch FROM statement_timestamp()) * 1000)::bigint
$$;

-- Called on the caller's connection; the functions that it calls inherit the search path.
ALTER FUNCTION keep_work(
  text, bigint[], text[], text[],
  bigint[], text[], bigint[], bigint[], text[], text[], bytea[], bigint[], bigint[],
  bigint[], text[], bigint[], bigint[], boolean[]
) SET search_path FROM CURRENT;

-- Which database a connection leads to. A copy of the database has the same row, so the name of the database is compared
-- as well.
CREATE TABLE store_identity (
  id text NOT NULL
);

INSERT INTO store_identity (id) VALUES (gen_random_uuid()::text);

-- Counters of joined transactions are rows of their own, with a negative stripe, until they are added to the others.
CREATE INDEX state_count_joined ON state_count (tenant) WHERE stripe < 0;

-- Extends claims: for each whether it was cancelled; null when it is no longer valid. A row that another transaction has
-- locked is not extended: no other worker can claim it meanwhile, and the next renewal tries again.
CREATE OR REPLACE FUNCTION renew_work(
  the_tenant text, kinds text[], ids text[], lanes text[], versions bigint[], ordinals bigint[],
  their_attempts bigint[], their_failures bigint[], until_ms bigint
) RETURNS boolean[] LANGUAGE plpgsql AS $$
DECLARE
  answers boolean[] := '{}';
  off boolean;
BEGIN
  FOR n IN 1 .. cardinality(kinds) LOOP
    SELECT cancelled INTO off FROM work
    WHERE tenant = the_tenant AND kind = kinds[n] AND id = ids[n] AND lane = lanes[n]
      AND version = versions[n] AND ordinal = ordinals[n]
      AND attempts = their_attempts[n] AND failures = their_failures[n] AND dead_ms IS NULL
    FOR NO KEY UPDATE SKIP LOCKED;
    IF FOUND THEN
      UPDATE work SET next_ms = until_ms
      WHERE tenant = the_tenant AND kind = kinds[n] AND id = ids[n] AND lane = lanes[n]
        AND version = versions[n] AND ordinal = ordinals[n];
    ELSE
      SELECT cancelled INTO off FROM work
      WHERE tenant = the_tenant AND kind = kinds[n] AND id = ids[n] AND lane = lanes[n]
        AND version = versions[n] AND ordinal = ordinals[n]
        AND attempts = their_attempts[n] AND failures = their_failures[n] AND dead_ms IS NULL;
    END IF;
    answers[n] := off;
  END LOOP;
  RETURN answers;
END
$$;

-- Releases claims: false for each that is no longer valid, null for each whose row another transaction has locked.
-- `wait_ms` is how long from now, for those `again`.
CREATE OR REPLACE FUNCTION settle_work(
  the_tenant text, kinds text[], ids text[], lanes text[], versions bigint[], ordinals bigint[],
  their_attempts bigint[], their_failures bigint[],
  verdicts text[], stays boolean[], wait_ms bigint[], errors bytea[], failed boolean[], begun boolean[]
) RETURNS boolean[] LANGUAGE plpgsql AS $$
DECLARE
  answers boolean[] := '{}';
  held record;
  is_valid boolean;
BEGIN
  FOR n IN 1 .. cardinality(kinds) LOOP
    SELECT cancelled, attempts, failures, dead_ms INTO held FROM work
    WHERE tenant = the_tenant AND kind = kinds[n] AND id = ids[n] AND lane = lanes[n]
      AND version = versions[n] AND ordinal = ordinals[n]
    FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
      PERFORM FROM work
      WHERE tenant = the_tenant AND kind = kinds[n] AND id = ids[n] AND lane = lanes[n]
        AND version = versions[n] AND ordinal = ordinals[n];
      answers[n] := CASE WHEN FOUND THEN NULL ELSE false END;
      CONTINUE;
    END IF;
    IF verdicts[n] = 'done' THEN
      answers[n] := drop_work(the_tenant, kinds[n], ids[n], lanes[n], versions[n], ordinals[n]);
      CONTINUE;
    END IF;
    is_valid := held.attempts = their_attempts[n] AND held.failures = their_failures[n] AND held.dead_ms IS NULL;
    answers[n] := is_valid;
    CONTINUE WHEN NOT is_valid;
    IF held.cancelled AND NOT stays[n] THEN
      PERFORM drop_work(the_tenant, kinds[n], ids[n], lanes[n], versions[n], ordinals[n]);
      CONTINUE;
    END IF;
    UPDATE work
    SET owner = NULL, error = errors[n], failures = failures + failed[n]::integer,
        attempts = attempts - (NOT begun[n])::integer,
        next_ms = CASE WHEN verdicts[n] = 'again' THEN clock_ms() + wait_ms[n] END,
        dead_ms = CASE WHEN verdicts[n] = 'dead' THEN clock_ms() END
    WHERE tenant = the_tenant AND kind = kinds[n] AND id = ids[n] AND lane = lanes[n]
      AND version = versions[n] AND ordinal = ordinals[n];
    IF verdicts[n] = 'dead' AND lanes[n] = ANY (ordered_lanes()) THEN
      PERFORM let_in(the_tenant, kinds[n], ids[n], lanes[n]);
    END IF;
  END LOOP;
  RETURN answers;
END
$$;

-- Waits for the row of one piece of work, for `patience_ms` at most; true when it is locked now, or does not exist.
CREATE FUNCTION wait_for_work(
  the_tenant text, the_kind text, the_id text, the_lane text, the_version bigint, the_ordinal bigint,
  patience_ms bigint
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('lock_timeout', patience_ms || 'ms', true);
  PERFORM FROM work
  WHERE tenant = the_tenant AND kind = the_kind AND id = the_id AND lane = the_lane
    AND version = the_version AND ordinal = the_ordinal
  FOR UPDATE;
  RETURN true;
EXCEPTION WHEN lock_not_available THEN
  RETURN false;
END
$$;
