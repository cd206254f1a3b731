-- Entities that ended without a final state stand in no state any more, but under how they ended: `:cancelled` or
-- `:failed`, since their last entry; and they have no tags. Until now they stood where they were when they ended.
-- They are held while they are moved: a late step of one waits, and, of a process that has read nothing of it yet, then
-- builds on what was made of it here.

CREATE TABLE entity_ended (
  tenant   text COLLATE "C" NOT NULL,
  kind     text COLLATE "C" NOT NULL,
  id       text COLLATE "C" NOT NULL,
  revision text COLLATE "C" NOT NULL,
  state    text COLLATE "C" NOT NULL,
  ended_ms bigint NOT NULL,
  PRIMARY KEY (tenant, kind, id)
);

INSERT INTO entity_ended (tenant, kind, id, revision, state, ended_ms)
  SELECT tenant, kind, id, revision, ':' || ended, changed_ms FROM entity
  WHERE ended IN ('cancelled', 'failed') ORDER BY tenant, kind, id FOR NO KEY UPDATE;

CREATE TABLE entity_stood (
  tenant   text COLLATE "C" NOT NULL,
  kind     text COLLATE "C" NOT NULL,
  revision text COLLATE "C" NOT NULL,
  state    text COLLATE "C" NOT NULL,
  entities bigint NOT NULL
);

WITH stood AS (
  DELETE FROM entity_state AS s USING entity_ended AS e
  WHERE e.tenant = s.tenant AND e.kind = s.kind AND e.id = s.id
  RETURNING e.tenant, e.kind, e.revision, s.state)
INSERT INTO entity_stood (tenant, kind, revision, state, entities)
  SELECT tenant, kind, revision, state, count(*) FROM stood WHERE state <> '' GROUP BY tenant, kind, revision, state;

INSERT INTO entity_state (tenant, kind, state, entered_ms, id)
  SELECT e.tenant, e.kind, p.state, e.ended_ms, e.id
  FROM entity_ended AS e CROSS JOIN LATERAL (VALUES (e.state), ('')) AS p (state);

DELETE FROM entity_tag AS t USING entity_ended AS e
WHERE e.tenant = t.tenant AND e.kind = t.kind AND e.id = t.id;

UPDATE entity AS t
SET active = convert_to('{"' || e.state || '":' || e.ended_ms || '}', 'UTF8'), tags = convert_to('[]', 'UTF8'),
    entered_ms = e.ended_ms
FROM entity_ended AS e
WHERE e.tenant = t.tenant AND e.kind = t.kind AND e.id = t.id;

-- Last, because whoever counts on the same stripe waits for it.

WITH changed AS (
  SELECT tenant, kind, revision, state, -entities AS change FROM entity_stood
  UNION ALL
  SELECT tenant, kind, revision, state, count(*) FROM entity_ended GROUP BY tenant, kind, revision, state)
INSERT INTO state_count AS c (tenant, kind, revision, state, stripe, entities)
  SELECT tenant, kind, revision, state, pg_backend_pid() % 64, sum(change) FROM changed
  GROUP BY tenant, kind, revision, state ORDER BY tenant, kind, revision, state
  ON CONFLICT (tenant, kind, revision, state, stripe) DO UPDATE SET entities = c.entities + excluded.entities;

DROP TABLE entity_stood;
DROP TABLE entity_ended;
