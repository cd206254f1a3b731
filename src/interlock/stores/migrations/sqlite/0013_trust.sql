-- Section: audit

-- Attempts that no journal has, acts of operators, summaries of floods and signed checkpoints (model/audit.py). Each
-- tenant has a chain: `head` is the hash over the head before and `body`. `actor` and `time_ms` repeat what the body
-- says. Rows of audit_refusal keep their bytes and their heads; `former` is their place in the chain of all tenants.
CREATE TABLE audit (
  tenant   TEXT    NOT NULL,
  sequence INTEGER NOT NULL,
  time_ms  INTEGER NOT NULL,
  actor    TEXT,
  body     BLOB    NOT NULL,
  head     TEXT    NOT NULL,
  former   INTEGER,
  PRIMARY KEY (tenant, sequence)
) STRICT, WITHOUT ROWID;

INSERT INTO audit (tenant, sequence, time_ms, actor, body, head, former)
SELECT tenant, row_number() OVER (PARTITION BY tenant ORDER BY sequence), time_ms, principal, body, head, sequence
FROM audit_refusal;

DROP TABLE audit_refusal;

CREATE INDEX audit_by_actor ON audit (tenant, actor, sequence) WHERE actor IS NOT NULL;
CREATE INDEX audit_by_former ON audit (former) WHERE former IS NOT NULL;

-- While this table has a row, rows of that tenant before `sequence` may be deleted: retention adds it and deletes it in
-- the transaction that deletes a range of rows and appends the row which says so. At other times it is empty.
CREATE TABLE audit_gate (
  number   INTEGER PRIMARY KEY CHECK (number = 1),
  tenant   TEXT    NOT NULL,
  sequence INTEGER NOT NULL
) STRICT;

CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit
BEGIN
  SELECT RAISE(ABORT, 'the audit is append-only: rows are never changed');
END;

CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit
WHEN NOT EXISTS (SELECT 1 FROM audit_gate WHERE tenant = old.tenant AND old.sequence < sequence)
BEGIN
  SELECT RAISE(ABORT, 'the audit is append-only: rows are never deleted');
END;

CREATE TRIGGER audit_no_gap BEFORE INSERT ON audit
WHEN new.sequence IS NOT
  (SELECT coalesce(max(a.sequence), 0) + 1 FROM audit AS a WHERE a.tenant = new.tenant) OR new.former IS NOT NULL
BEGIN
  SELECT RAISE(ABORT, 'the audit is append-only: a row follows the last one');
END;


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
