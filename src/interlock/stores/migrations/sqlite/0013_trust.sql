-- Section: audit


-- Section: sensitive states


-- Section: personal data


-- Section: retention
-- Entities that retention removed. The row stays: an id is never used twice. While `pending`, some rows of the entity
-- are still there: the entity row has a negative version, and no step can be written.
CREATE TABLE entity_tombstone (
  tenant    TEXT    NOT NULL,
  kind      TEXT    NOT NULL,
  id        TEXT    NOT NULL,
  version   INTEGER NOT NULL,
  head      TEXT    NOT NULL,
  pruned_ms INTEGER NOT NULL,
  archive   TEXT,
  pending   INTEGER NOT NULL,
  PRIMARY KEY (tenant, kind, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX entity_tombstone_pending ON entity_tombstone (tenant, kind, id) WHERE pending = 1;

-- Where the journals of compacted entities begin: the snapshot of that version, whose record had the hash `head`, and
-- the hash over the heads of all records that were removed. `entity_archive` has the same version. While `pending`,
-- records up to it are still there.
CREATE TABLE journal_base (
  tenant       TEXT    NOT NULL,
  kind         TEXT    NOT NULL,
  id           TEXT    NOT NULL,
  version      INTEGER NOT NULL,
  head         TEXT    NOT NULL,
  snapshot     BLOB    NOT NULL,
  digest       TEXT    NOT NULL,
  time_ms      INTEGER NOT NULL,
  created_ms   INTEGER NOT NULL,
  compacted_ms INTEGER NOT NULL,
  pending      INTEGER NOT NULL,
  PRIMARY KEY (tenant, kind, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX journal_base_pending ON journal_base (tenant, kind, id) WHERE pending = 1;


-- Section: authorization

