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


-- Section: sensitive states


-- Section: personal data
-- Data keys, wrapped under the master key of an epoch. A row names no entity. Of a destroyed key only the id is left.
-- No key of an epoch before `oldest` may be added.

CREATE TABLE data_key (
  tenant text NOT NULL, kid text NOT NULL, epoch integer NOT NULL, wrapped bytea, created_ms bigint NOT NULL,
  destroyed_ms bigint, PRIMARY KEY (tenant, kid));
CREATE INDEX data_key_by_epoch ON data_key (tenant, epoch) WHERE wrapped IS NOT NULL;
CREATE TABLE data_key_epoch (tenant text PRIMARY KEY, oldest integer NOT NULL);


-- Section: retention


-- Section: authorization

