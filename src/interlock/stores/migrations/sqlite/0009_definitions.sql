-- The definitions of charts. A body is the canonical JSON of one edition; tenants share it. `sequence` rises with every
-- edition of a kind; the order of a revision is its lowest. `written_name` is the name that entries of the revision
-- have; every edition of a revision has that of the first.
CREATE TABLE definition_body (
  digest TEXT NOT NULL PRIMARY KEY,
  body   BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE definition (
  tenant       TEXT    NOT NULL,
  kind         TEXT    NOT NULL,
  revision     TEXT    NOT NULL,
  digest       TEXT    NOT NULL,
  sequence     INTEGER NOT NULL,
  label        TEXT,
  saved_ms     INTEGER NOT NULL,
  written_name TEXT    NOT NULL,
  PRIMARY KEY (tenant, kind, revision, digest)
) STRICT, WITHOUT ROWID;

CREATE INDEX definition_by_digest ON definition (digest);

-- Other names of a revision: those that earlier releases wrote, and those of other hash schemes. One name may mean
-- several revisions.
CREATE TABLE definition_alias (
  tenant   TEXT NOT NULL,
  kind     TEXT NOT NULL,
  name     TEXT NOT NULL,
  revision TEXT NOT NULL,
  PRIMARY KEY (tenant, kind, name, revision)
) STRICT, WITHOUT ROWID;

-- Facts about the store as a whole, by name.
CREATE TABLE store_fact (
  tenant TEXT NOT NULL,
  name   TEXT NOT NULL,
  value  TEXT NOT NULL,
  PRIMARY KEY (tenant, name)
) STRICT, WITHOUT ROWID;
