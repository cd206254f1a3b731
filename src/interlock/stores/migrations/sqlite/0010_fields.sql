-- Keys of indexed context fields, in the order of their values (model/index_key.py), and which fields have an index.
-- While one is built, `cursor` is the id up to which entities were added, and `done` their number. A step of every
-- writer keeps the keys of all fields that are not being dropped.

CREATE TABLE entity_field (
  tenant TEXT NOT NULL,
  kind   TEXT NOT NULL,
  field  TEXT NOT NULL,
  value  BLOB NOT NULL,
  id     TEXT NOT NULL,
  PRIMARY KEY (tenant, kind, field, value, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE field_index (
  tenant TEXT    NOT NULL,
  kind   TEXT    NOT NULL,
  field  TEXT    NOT NULL,
  form   TEXT    NOT NULL,
  state  TEXT    NOT NULL,
  done   INTEGER NOT NULL DEFAULT 0,
  cursor TEXT    NOT NULL DEFAULT '',
  PRIMARY KEY (tenant, kind, field)
) STRICT, WITHOUT ROWID;

-- Where the projections of a program are in the feed. The row changes in the transaction of what they write.

CREATE TABLE projection (
  tenant   TEXT    NOT NULL,
  name     TEXT    NOT NULL,
  cursor   TEXT,
  entries  INTEGER NOT NULL DEFAULT 0,
  failures INTEGER NOT NULL DEFAULT 0,
  error    TEXT,
  stopped  INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (tenant, name)
) STRICT, WITHOUT ROWID;
