-- Journals, keys, and what lists and counts are served from. Never edited once released: changes are new files.
-- Every key begins with the tenant; times are milliseconds since 1970; bodies are our own bytes, never parsed here.

CREATE TABLE schema_version (
  version INTEGER PRIMARY KEY,
  name    TEXT NOT NULL
) STRICT;

-- The row that is compared and swapped. `active` holds {state: entered_ms} of every active state, `tags` a list:
-- one read tells a step all it must know to keep the tables below.
CREATE TABLE entity (
  tenant        TEXT    NOT NULL,
  kind          TEXT    NOT NULL,
  id            TEXT    NOT NULL,
  version       INTEGER NOT NULL,
  revision      TEXT    NOT NULL,
  configuration BLOB    NOT NULL,
  ended         TEXT,
  active        BLOB    NOT NULL,
  tags          BLOB    NOT NULL,
  snapshot      BLOB    NOT NULL,
  head          TEXT    NOT NULL,
  journal_bytes INTEGER NOT NULL,
  created_ms    INTEGER NOT NULL,
  entered_ms    INTEGER NOT NULL,
  changed_ms    INTEGER NOT NULL,
  PRIMARY KEY (tenant, kind, id)
) STRICT;

CREATE INDEX entity_by_age ON entity (tenant, kind, entered_ms, id);

-- `position` is the order of commit, over all entities.
CREATE TABLE journal (
  position INTEGER PRIMARY KEY,
  tenant   TEXT    NOT NULL,
  kind     TEXT    NOT NULL,
  id       TEXT    NOT NULL,
  version  INTEGER NOT NULL,
  record   BLOB    NOT NULL,
  head     TEXT    NOT NULL,
  time_ms  INTEGER NOT NULL,
  UNIQUE (tenant, kind, id, version),
  FOREIGN KEY (tenant, kind, id) REFERENCES entity (tenant, kind, id)
) STRICT;

-- A table of its own, so that keys can expire while the journal stays untouched.
CREATE TABLE event_key (
  tenant  TEXT    NOT NULL,
  kind    TEXT    NOT NULL,
  id      TEXT    NOT NULL,
  key     TEXT    NOT NULL,
  version INTEGER NOT NULL,
  time_ms INTEGER NOT NULL,
  PRIMARY KEY (tenant, kind, id, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX event_key_by_time ON event_key (tenant, time_ms);

CREATE TABLE entity_state (
  tenant     TEXT    NOT NULL,
  kind       TEXT    NOT NULL,
  id         TEXT    NOT NULL,
  state      TEXT    NOT NULL,
  entered_ms INTEGER NOT NULL,
  PRIMARY KEY (tenant, kind, id, state)
) STRICT, WITHOUT ROWID;

CREATE INDEX entity_state_by_age ON entity_state (tenant, kind, state, entered_ms, id);

CREATE TABLE entity_tag (
  tenant TEXT NOT NULL,
  kind   TEXT NOT NULL,
  tag    TEXT NOT NULL,
  id     TEXT NOT NULL,
  PRIMARY KEY (tenant, kind, tag, id)
) STRICT, WITHOUT ROWID;

-- Entities in each active state, compounds too: the regions of a parallel state are counted in each.
CREATE TABLE state_count (
  tenant   TEXT    NOT NULL,
  kind     TEXT    NOT NULL,
  revision TEXT    NOT NULL,
  state    TEXT    NOT NULL,
  entities INTEGER NOT NULL,
  PRIMARY KEY (tenant, kind, revision, state)
) STRICT, WITHOUT ROWID;

-- Attempts that changed nothing, chained: `head` is the hash over the head before and `body`.
CREATE TABLE audit_refusal (
  sequence  INTEGER PRIMARY KEY AUTOINCREMENT,
  tenant    TEXT    NOT NULL,
  kind      TEXT    NOT NULL,
  id        TEXT    NOT NULL,
  principal TEXT,
  time_ms   INTEGER NOT NULL,
  body      BLOB    NOT NULL,
  head      TEXT    NOT NULL
) STRICT;

CREATE INDEX audit_refusal_by_principal ON audit_refusal (tenant, principal, sequence);
