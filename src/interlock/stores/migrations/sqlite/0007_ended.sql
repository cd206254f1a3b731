-- Entities that ended without a final state stand in no state any more, but under how they ended: `:cancelled` or
-- `:failed`, since their last entry; and they have no tags. Until now they stood where they were when they ended.
-- One walk over the entities, and, only when there are such, one over the states and one over the tags.

CREATE TABLE entity_ended (
  tenant   TEXT    NOT NULL,
  kind     TEXT    NOT NULL,
  id       TEXT    NOT NULL,
  revision TEXT    NOT NULL,
  state    TEXT    NOT NULL,
  ended_ms INTEGER NOT NULL,
  PRIMARY KEY (tenant, kind, id)
) STRICT, WITHOUT ROWID;

INSERT INTO entity_ended (tenant, kind, id, revision, state, ended_ms)
  SELECT tenant, kind, id, revision, ':' || ended, changed_ms FROM entity WHERE ended IN ('cancelled', 'failed');

CREATE TABLE entity_stood (
  tenant     TEXT    NOT NULL,
  kind       TEXT    NOT NULL,
  state      TEXT    NOT NULL,
  entered_ms INTEGER NOT NULL,
  id         TEXT    NOT NULL,
  revision   TEXT    NOT NULL,
  PRIMARY KEY (tenant, kind, state, entered_ms, id)
) STRICT, WITHOUT ROWID;

INSERT INTO entity_stood (tenant, kind, state, entered_ms, id, revision)
  SELECT s.tenant, s.kind, s.state, s.entered_ms, s.id, e.revision
  FROM entity_state AS s CROSS JOIN entity_ended AS e ON e.tenant = s.tenant AND e.kind = s.kind AND e.id = s.id
  WHERE EXISTS (SELECT 1 FROM entity_ended);

DELETE FROM entity_state WHERE (tenant, kind, state, entered_ms, id) IN (
  SELECT tenant, kind, state, entered_ms, id FROM entity_stood);

INSERT INTO state_count (tenant, kind, revision, state, entities)
  SELECT tenant, kind, revision, state, -count(*) FROM entity_stood WHERE true GROUP BY tenant, kind, revision, state
  ON CONFLICT (tenant, kind, revision, state) DO UPDATE SET entities = entities + excluded.entities;

INSERT INTO entity_state (tenant, kind, id, state, entered_ms)
  SELECT tenant, kind, id, state, ended_ms FROM entity_ended;

INSERT INTO state_count (tenant, kind, revision, state, entities)
  SELECT tenant, kind, revision, state, count(*) FROM entity_ended WHERE true GROUP BY tenant, kind, revision, state
  ON CONFLICT (tenant, kind, revision, state) DO UPDATE SET entities = entities + excluded.entities;

DELETE FROM entity_tag WHERE EXISTS (SELECT 1 FROM entity_ended) AND (tenant, kind, id) IN (
  SELECT tenant, kind, id FROM entity_ended);

UPDATE entity
SET active = CAST('{":' || ended || '":' || changed_ms || '}' AS BLOB), tags = CAST('[]' AS BLOB),
    entered_ms = changed_ms
WHERE (tenant, kind, id) IN (SELECT tenant, kind, id FROM entity_ended);

DROP TABLE entity_stood;
DROP TABLE entity_ended;
