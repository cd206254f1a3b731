-- Section: audit

-- Attempts that no journal has, acts of operators, summaries of floods and signed checkpoints (model/audit.py). Each
-- tenant has a chain: `head` is the hash over the head before and `body`. `actor` and `time_ms` repeat what the body
-- says. Rows of audit_refusal keep their bytes and their heads; `former` is their place in the chain of all tenants.
CREATE TABLE audit (
  tenant   text COLLATE "C" NOT NULL,
  sequence bigint NOT NULL,
  time_ms  bigint NOT NULL,
  actor    text COLLATE "C",
  body     bytea  NOT NULL,
  head     text   NOT NULL,
  former   bigint,
  PRIMARY KEY (tenant, sequence)
);

INSERT INTO audit (tenant, sequence, time_ms, actor, body, head, former)
SELECT tenant, row_number() OVER (PARTITION BY tenant ORDER BY sequence), time_ms, principal, body, head, sequence
FROM audit_refusal;

DROP TABLE audit_refusal;

CREATE INDEX audit_by_actor ON audit (tenant, actor, sequence) WHERE actor IS NOT NULL;
CREATE INDEX audit_by_former ON audit (former) WHERE former IS NOT NULL;

-- While this table has a row, rows of that tenant before `sequence` may be deleted: retention adds it and deletes it in
-- the transaction that deletes a range of rows and appends the row which says so. At other times it is empty.
CREATE TABLE audit_gate (
  number   integer PRIMARY KEY CHECK (number = 1),
  tenant   text COLLATE "C" NOT NULL,
  sequence bigint NOT NULL
);

CREATE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  IF TG_OP = 'DELETE' THEN
    IF EXISTS (SELECT FROM audit_gate AS g WHERE g.tenant = old.tenant AND old.sequence < g.sequence) THEN
      RETURN old;
    END IF;
    RAISE EXCEPTION 'the audit is append-only: rows are never deleted' USING ERRCODE = 'restrict_violation';
  END IF;
  RAISE EXCEPTION 'the audit is append-only: rows are never changed' USING ERRCODE = 'restrict_violation';
END $$;

CREATE TRIGGER audit_no_change BEFORE UPDATE OR DELETE ON audit
  FOR EACH ROW EXECUTE FUNCTION audit_is_append_only();
CREATE TRIGGER audit_no_truncate BEFORE TRUNCATE ON audit
  FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only();


-- Section: personal data
-- Data keys, wrapped under the master key of an epoch. A row names no entity. Of a destroyed key only the id is left.
-- No key of an epoch before `oldest` may be added.

CREATE TABLE data_key (
  tenant text NOT NULL, kid text NOT NULL, epoch integer NOT NULL, wrapped bytea, created_ms bigint NOT NULL,
  destroyed_ms bigint, PRIMARY KEY (tenant, kid));
CREATE INDEX data_key_by_epoch ON data_key (tenant, epoch) WHERE wrapped IS NOT NULL;
CREATE TABLE data_key_epoch (tenant text PRIMARY KEY, oldest integer NOT NULL);


-- Section: retention
-- Entities that retention removed. The row stays: an id is never used twice. While `pending`, some rows of the entity
-- are still there: the entity row has a negative version, and no step can be written.
CREATE TABLE entity_tombstone (
  tenant    text COLLATE "C" NOT NULL,
  kind      text COLLATE "C" NOT NULL,
  id        text COLLATE "C" NOT NULL,
  version   bigint NOT NULL,
  head      text   NOT NULL,
  pruned_ms bigint NOT NULL,
  archive   text,
  pending   boolean NOT NULL,
  PRIMARY KEY (tenant, kind, id)
);

CREATE INDEX entity_tombstone_pending ON entity_tombstone (tenant, kind, id) WHERE pending;

-- Where the journals of compacted entities begin: the snapshot of that version, whose record had the hash `head`, and
-- the hash over the heads of all records that were removed. The columns `archive_*` of `entity` have the same version.
-- While `pending`, records up to it are still there.
CREATE TABLE journal_base (
  tenant       text COLLATE "C" NOT NULL,
  kind         text COLLATE "C" NOT NULL,
  id           text COLLATE "C" NOT NULL,
  version      bigint NOT NULL,
  head         text   NOT NULL,
  snapshot     bytea  NOT NULL,
  digest       text   NOT NULL,
  time_ms      bigint NOT NULL,
  created_ms   bigint NOT NULL,
  compacted_ms bigint NOT NULL,
  pending      boolean NOT NULL,
  PRIMARY KEY (tenant, kind, id)
);

CREATE INDEX journal_base_pending ON journal_base (tenant, kind, id) WHERE pending;

-- Undoes a statement that created an entity which a transaction removed after the statement had begun: its own snapshot
-- did not show the tombstone, that of a function does. The code makes the writer ask again.
CREATE FUNCTION refuse_pruned(the_tenant text, kinds text[], ids text[]) RETURNS boolean LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM FROM unnest(kinds, ids) AS i (kind, id) CROSS JOIN LATERAL (
    SELECT FROM entity_tombstone AS t WHERE t.tenant = the_tenant AND t.kind = i.kind AND t.id = i.id OFFSET 0) AS t;
  IF FOUND THEN
    RAISE EXCEPTION 'the entity was removed by retention' USING ERRCODE = '40001';
  END IF;
  RETURN true;
END
$$;

-- Drops partitions of months before this one that are empty; gives their names. Only a short lock, or none.
CREATE FUNCTION drop_empty_partitions() RETURNS text[] LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  each    record;
  is_used boolean;
  dropped text[] := '{}';
BEGIN
  PERFORM set_config('lock_timeout', '200ms', true);  -- steps queue behind a lock that waits
  FOR each IN
    SELECT c.relname AS name FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'journal'::regclass AND c.relname ~ '^journal_[0-9]{4}_[0-9]{2}$'
      AND c.relname < 'journal_' || to_char(now() AT TIME ZONE 'UTC', 'YYYY_MM')
    ORDER BY 1
  LOOP
    EXECUTE format('SELECT EXISTS (SELECT FROM %I)', each.name) INTO is_used;
    CONTINUE WHEN is_used;
    BEGIN
      EXECUTE format('LOCK TABLE %I IN ACCESS EXCLUSIVE MODE', each.name);
      EXECUTE format('SELECT EXISTS (SELECT FROM %I)', each.name) INTO is_used;
      IF NOT is_used THEN
        EXECUTE format('DROP TABLE %I', each.name);
        dropped := dropped || each.name::text;
      END IF;
    EXCEPTION WHEN lock_not_available THEN
      CONTINUE;
    END;
  END LOOP;
  RETURN dropped;
END
$$;
