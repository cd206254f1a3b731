-- Keys of indexed context fields, in the order of their values (model/index_key.py), and which fields have an index.
-- While one is built, `cursor` is the id up to which entities were added, and `done` their number.

CREATE TABLE entity_field (
  tenant text COLLATE "C" NOT NULL,
  kind   text COLLATE "C" NOT NULL,
  field  text COLLATE "C" NOT NULL,
  value  bytea NOT NULL,
  id     text COLLATE "C" NOT NULL,
  PRIMARY KEY (tenant, kind, field, value, id)
) WITH (autovacuum_vacuum_scale_factor = 0.02);

CREATE TABLE field_index (
  tenant text COLLATE "C" NOT NULL,
  kind   text COLLATE "C" NOT NULL,
  field  text COLLATE "C" NOT NULL,
  form   text   NOT NULL,
  state  text   NOT NULL,
  done   bigint NOT NULL DEFAULT 0,
  cursor text COLLATE "C" NOT NULL DEFAULT '',
  PRIMARY KEY (tenant, kind, field)
);

-- Rises when the set of fields changes whose keys a step writes. A step names the generation that it was prepared for,
-- and is undone when it is not the present one. A tenant without a row is at generation 0.
CREATE TABLE field_generation (
  tenant     text COLLATE "C" NOT NULL PRIMARY KEY,
  generation bigint NOT NULL
);

CREATE FUNCTION refuse_generation() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'the indexed fields have changed' USING ERRCODE = 'IL001';
END
$$;

-- The changed keys of a batch of steps. A function, because its statements see what an index builder has committed
-- until the entities were locked; the parts of the statement that commits the steps do not.
CREATE FUNCTION keep_fields(
  the_tenant text, numbers bigint[], kinds text[], ids text[],
  left_n bigint[], left_field text[], left_value bytea[],
  entered_n bigint[], entered_field text[], entered_value bytea[]
) RETURNS boolean LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  DELETE FROM entity_field WHERE ctid = ANY (ARRAY (
    SELECT f.place
    FROM unnest(left_n, left_field, left_value) AS x (n, field, value)
    JOIN unnest(numbers, kinds, ids) AS m (n, kind, id) ON m.n = x.n
    CROSS JOIN LATERAL (
      SELECT s.ctid AS place FROM entity_field AS s
      WHERE s.tenant = the_tenant AND s.kind = m.kind AND s.field = x.field AND s.value = x.value AND s.id = m.id
      OFFSET 0) AS f));
  INSERT INTO entity_field (tenant, kind, field, value, id)
  SELECT the_tenant, m.kind, x.field, x.value, m.id
  FROM unnest(entered_n, entered_field, entered_value) AS x (n, field, value)
  JOIN unnest(numbers, kinds, ids) AS m (n, kind, id) ON m.n = x.n
  ON CONFLICT DO NOTHING;
  RETURN true;
END
$$;

-- The order in which a feed reads entries (stores/postgres/feed.py). `position` is drawn under the lock of the entity,
-- `xid` is the transaction of the entry, that of the caller for a joined one. Entries from before have neither.
CREATE SEQUENCE journal_position;
GRANT USAGE ON SEQUENCE journal_position TO PUBLIC;
ALTER TABLE journal ADD COLUMN position bigint, ADD COLUMN xid bigint;
ALTER TABLE journal
  ALTER COLUMN position SET DEFAULT nextval('journal_position'),
  ALTER COLUMN xid SET DEFAULT pg_current_xact_id()::text::bigint;
CREATE INDEX journal_by_xid ON journal (xid) WHERE xid IS NOT NULL;

-- Where the projections of a program are in the feed. The row changes in the transaction of what they write.
CREATE TABLE projection (
  tenant   text COLLATE "C" NOT NULL,
  name     text COLLATE "C" NOT NULL,
  cursor   text,
  entries  bigint  NOT NULL DEFAULT 0,
  failures integer NOT NULL DEFAULT 0,
  error    text,
  stopped  integer NOT NULL DEFAULT 0,
  PRIMARY KEY (tenant, name)
);
