-- What entries leave to do, who must be alone, and when nobody was there.
-- Work changes hands without the lock of its entity, beside appends. So what changes it stands here as functions: each
-- of their statements sees what was committed until then, which the parts of one statement do not.
-- They are called on our own connections, whose search path is this schema.

-- The clock that decides: the server's. Hosts differ, and each gives its own time with what it asks for; only how long
-- something is to last is taken from that.
CREATE FUNCTION clock_ms() RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE AS $$
  SELECT floor(extract(epoch FROM now()) * 1000)::bigint
$$;

-- `line` is who waits together: the handler's name for effects, nothing for the other lanes. `due_ms` is when the work
-- is due by the clock of whoever left it, `ready_ms` by ours. `next_ms` is when it may be taken up, or when its lease
-- lapses; null: it waits for something else. In an ordered lane only an entity's first living row has one, so that a
-- claim never walks over those behind it.
CREATE TABLE work (
  tenant    text COLLATE "C" NOT NULL,
  kind      text COLLATE "C" NOT NULL,
  id        text COLLATE "C" NOT NULL,
  lane      text COLLATE "C" NOT NULL,
  version   bigint  NOT NULL,
  ordinal   bigint  NOT NULL,
  line      text COLLATE "C" NOT NULL,
  name      text COLLATE "C" NOT NULL,
  body      bytea   NOT NULL,
  due_ms    bigint,
  ready_ms  bigint,
  next_ms   bigint,
  attempts  bigint  NOT NULL DEFAULT 0,
  failures  bigint  NOT NULL DEFAULT 0,
  owner     text,
  error     bytea,
  cancelled boolean NOT NULL DEFAULT false,
  dead_ms   bigint,
  PRIMARY KEY (tenant, kind, id, lane, version, ordinal)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);

CREATE INDEX work_by_time ON work (tenant, lane, line, next_ms) WHERE next_ms IS NOT NULL;
CREATE INDEX work_dead ON work (tenant, kind, id, lane, version, ordinal) WHERE dead_ms IS NOT NULL;

CREATE FUNCTION ordered_lanes() RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT ARRAY['outbox', 'message']
$$;

-- Puts the first living row of an ordered lane in line, unless it stands there. The row is locked: whoever is about to
-- take it out of the line waits, and then sees what was left behind it.
CREATE FUNCTION let_in(the_tenant text, the_kind text, the_id text, the_lane text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  first record;
BEGIN
  SELECT version, ordinal, next_ms INTO first FROM work
  WHERE tenant = the_tenant AND kind = the_kind AND id = the_id AND lane = the_lane AND dead_ms IS NULL
  ORDER BY version, ordinal LIMIT 1 FOR NO KEY UPDATE;
  IF FOUND AND first.next_ms IS NULL THEN
    UPDATE work SET next_ms = ready_ms
    WHERE tenant = the_tenant AND kind = the_kind AND id = the_id AND lane = the_lane
      AND version = first.version AND ordinal = first.ordinal;
  END IF;
END
$$;

-- Forgets work; false when there is no such.
CREATE FUNCTION drop_work(
  the_tenant text, the_kind text, the_id text, the_lane text, the_version bigint, the_ordinal bigint
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM work
  WHERE tenant = the_tenant AND kind = the_kind AND id = the_id AND lane = the_lane
    AND version = the_version AND ordinal = the_ordinal;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  IF the_lane = ANY (ordered_lanes()) THEN
    PERFORM let_in(the_tenant, the_kind, the_id, the_lane);
  END IF;
  RETURN true;
END
$$;

-- Calls work off: what nobody began goes, what is in hand is told at its next renewal, what waits is due at once.
CREATE FUNCTION call_off(
  the_tenant text, the_kind text, the_id text, the_lane text, the_version bigint, the_ordinal bigint
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM work
  WHERE tenant = the_tenant AND kind = the_kind AND id = the_id AND lane = the_lane
    AND version = the_version AND ordinal = the_ordinal AND (attempts = 0 OR dead_ms IS NOT NULL);
  IF NOT FOUND THEN
    UPDATE work SET cancelled = true, next_ms = CASE WHEN owner IS NULL THEN ready_ms ELSE next_ms END
    WHERE tenant = the_tenant AND kind = the_kind AND id = the_id AND lane = the_lane
      AND version = the_version AND ordinal = the_ordinal;
  ELSIF the_lane = ANY (ordered_lanes()) THEN
    PERFORM let_in(the_tenant, the_kind, the_id, the_lane);
  END IF;
END
$$;

-- What a batch of entries leaves, ends and calls off. Only those are meant whose number is among those that were kept.
-- `born_wait` is how long after its entry work is due.
CREATE FUNCTION keep_work(
  the_tenant text, numbers bigint[], kinds text[], ids text[],
  born_n bigint[], born_lane text[], born_version bigint[], born_ordinal bigint[], born_line text[], born_name text[],
  born_body bytea[], born_due bigint[], born_wait bigint[],
  gone_n bigint[], gone_lane text[], gone_version bigint[], gone_ordinal bigint[], gone_off boolean[]
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  each record;
BEGIN
  IF cardinality(born_n) > 0 THEN
    INSERT INTO work (tenant, kind, id, lane, version, ordinal, line, name, body, due_ms, ready_ms, next_ms)
    SELECT the_tenant, m.kind, m.id, b.lane, b.version, b.ordinal, b.line, b.name, b.body, b.due_ms,
           clock_ms() + b.wait_ms, CASE WHEN b.lane = ANY (ordered_lanes()) THEN NULL ELSE clock_ms() + b.wait_ms END
    FROM unnest(born_n, born_lane, born_version, born_ordinal, born_line, born_name, born_body, born_due, born_wait)
           AS b (n, lane, version, ordinal, line, name, body, due_ms, wait_ms)
    JOIN unnest(numbers, kinds, ids) AS m (n, kind, id) ON m.n = b.n;
  END IF;
  IF cardinality(gone_n) > 0 THEN
    FOR each IN
      SELECT m.kind, m.id, g.lane, g.version, g.ordinal, g.off
      FROM unnest(gone_n, gone_lane, gone_version, gone_ordinal, gone_off) AS g (n, lane, version, ordinal, off)
      JOIN unnest(numbers, kinds, ids) AS m (n, kind, id) ON m.n = g.n
      ORDER BY m.kind COLLATE "C", m.id COLLATE "C", g.lane COLLATE "C", g.version, g.ordinal
    LOOP
      IF each.off THEN
        PERFORM call_off(the_tenant, each.kind, each.id, each.lane, each.version, each.ordinal);
      ELSE
        PERFORM drop_work(the_tenant, each.kind, each.id, each.lane, each.version, each.ordinal);
      END IF;
    END LOOP;
  END IF;
  IF born_lane && ordered_lanes() THEN
    FOR each IN
      SELECT DISTINCT m.kind COLLATE "C" AS kind, m.id COLLATE "C" AS id, b.lane COLLATE "C" AS lane
      FROM unnest(born_n, born_lane) AS b (n, lane)
      JOIN unnest(numbers, kinds, ids) AS m (n, kind, id) ON m.n = b.n
      WHERE b.lane = ANY (ordered_lanes())
      ORDER BY 1, 2, 3
    LOOP
      PERFORM let_in(the_tenant, each.kind, each.id, each.lane);
    END LOOP;
  END IF;
  RETURN true;
END
$$;

-- Holds claims longer: for each whether it was called off; null when it is no longer held.
CREATE FUNCTION renew_work(
  the_tenant text, kinds text[], ids text[], lanes text[], versions bigint[], ordinals bigint[],
  their_attempts bigint[], their_failures bigint[], until_ms bigint
) RETURNS boolean[] LANGUAGE plpgsql AS $$
DECLARE
  answers boolean[] := '{}';
  off boolean;
BEGIN
  FOR n IN 1 .. cardinality(kinds) LOOP
    UPDATE work SET next_ms = until_ms
    WHERE tenant = the_tenant AND kind = kinds[n] AND id = ids[n] AND lane = lanes[n]
      AND version = versions[n] AND ordinal = ordinals[n]
      AND attempts = their_attempts[n] AND failures = their_failures[n] AND dead_ms IS NULL
    RETURNING cancelled INTO off;
    answers[n] := off;
  END LOOP;
  RETURN answers;
END
$$;

-- Lets go of claims; false for each that was not held any more. `wait_ms` is how long from now, for those `again`.
CREATE FUNCTION settle_work(
  the_tenant text, kinds text[], ids text[], lanes text[], versions bigint[], ordinals bigint[],
  their_attempts bigint[], their_failures bigint[],
  verdicts text[], stays boolean[], wait_ms bigint[], errors bytea[], failed boolean[], begun boolean[]
) RETURNS boolean[] LANGUAGE plpgsql AS $$
DECLARE
  answers boolean[] := '{}';
  off boolean;
BEGIN
  FOR n IN 1 .. cardinality(kinds) LOOP
    IF verdicts[n] = 'done' THEN
      answers[n] := drop_work(the_tenant, kinds[n], ids[n], lanes[n], versions[n], ordinals[n]);
      CONTINUE;
    END IF;
    SELECT cancelled INTO off FROM work
    WHERE tenant = the_tenant AND kind = kinds[n] AND id = ids[n] AND lane = lanes[n]
      AND version = versions[n] AND ordinal = ordinals[n]
      AND attempts = their_attempts[n] AND failures = their_failures[n] AND dead_ms IS NULL
    FOR UPDATE;
    answers[n] := FOUND;
    CONTINUE WHEN NOT FOUND;
    IF off AND NOT stays[n] THEN
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

-- Names that one worker at a time may hold: until when, and how often each changed hands. One that was given back
-- keeps its row, or its fence would begin anew.
CREATE TABLE lease (
  tenant   text COLLATE "C" NOT NULL,
  name     text COLLATE "C" NOT NULL,
  owner    text   NOT NULL,
  fence    bigint NOT NULL,
  until_ms bigint NOT NULL,
  PRIMARY KEY (tenant, name)
);

-- The last sign of life of any worker, and the times in which there was none.
CREATE TABLE alive (
  tenant   text COLLATE "C" NOT NULL PRIMARY KEY,
  alive_ms bigint NOT NULL
);

CREATE TABLE downtime (
  tenant   text COLLATE "C" NOT NULL,
  began_ms bigint NOT NULL,
  ended_ms bigint NOT NULL,
  PRIMARY KEY (tenant, ended_ms)
);

-- Notes that a worker is alive; since when there was none and until when, when that is longer ago than `gap_ms`.
CREATE FUNCTION note_alive(the_tenant text, gap_ms bigint, kept integer, OUT since_ms bigint, OUT until_ms bigint)
LANGUAGE plpgsql AS $$
DECLARE
  last_ms bigint;
BEGIN
  INSERT INTO alive (tenant, alive_ms) VALUES (the_tenant, clock_ms()) ON CONFLICT DO NOTHING;
  IF FOUND THEN
    RETURN;
  END IF;
  SELECT alive_ms INTO last_ms FROM alive WHERE tenant = the_tenant FOR UPDATE;
  UPDATE alive SET alive_ms = greatest(alive_ms, clock_ms()) WHERE tenant = the_tenant;
  IF clock_ms() - last_ms <= gap_ms THEN
    RETURN;
  END IF;
  since_ms := last_ms;
  until_ms := clock_ms();
  INSERT INTO downtime (tenant, began_ms, ended_ms) VALUES (the_tenant, since_ms, until_ms)
  ON CONFLICT DO NOTHING;
  DELETE FROM downtime WHERE tenant = the_tenant AND ended_ms <= (
    SELECT ended_ms FROM downtime WHERE tenant = the_tenant ORDER BY ended_ms DESC LIMIT 1 OFFSET kept);
END
$$;
