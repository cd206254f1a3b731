-- Journals, keys, and what lists and counts are served from. Never edited once released: changes are new files.
-- Every key begins with the tenant; `_ms` are milliseconds since 1970 as the driver gave them, `at` is the server's own
-- clock; bodies are our own bytes, never parsed here. Texts compare by their bytes.

CREATE TABLE schema_version (
  version integer PRIMARY KEY,
  name    text NOT NULL
);

-- The row that is compared and swapped. `active` holds {state: entered_ms} of every active state, `tags` a list.
-- `archive` is where the journal is now up to `archive_version`, whose record has the hash `archive_head`.
-- No index on a column that a step changes: an update then stays on its page.
CREATE TABLE entity (
  tenant          text COLLATE "C" NOT NULL,
  kind            text COLLATE "C" NOT NULL,
  id              text COLLATE "C" NOT NULL,
  version         bigint NOT NULL,
  revision        text NOT NULL,
  configuration   bytea NOT NULL,
  ended           text,
  active          bytea NOT NULL,
  tags            bytea NOT NULL,
  snapshot        bytea NOT NULL,
  head            text NOT NULL,
  journal_bytes   bigint NOT NULL,
  archive         text,
  archive_version bigint,
  archive_head    text,
  created_ms      bigint NOT NULL,
  entered_ms      bigint NOT NULL,
  changed_ms      bigint NOT NULL,
  created_at      timestamptz NOT NULL,
  last_at         timestamptz NOT NULL,
  PRIMARY KEY (tenant, kind, id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);

-- One partition a month, by the server's clock. That (tenant, kind, id, version) is unique rests on the swap; an index
-- over partitions by time cannot say it.
CREATE TABLE journal (
  tenant  text COLLATE "C" NOT NULL,
  kind    text COLLATE "C" NOT NULL,
  id      text COLLATE "C" NOT NULL,
  version bigint NOT NULL,
  record  bytea  NOT NULL,
  at      timestamptz NOT NULL,
  PRIMARY KEY (tenant, kind, id, version, at)
) PARTITION BY RANGE (at);

-- Catches what no month takes, so that a step never fails for want of one. Stays empty.
CREATE TABLE journal_default PARTITION OF journal DEFAULT;

-- A table of its own, so that keys can expire while the journal stays untouched.
CREATE TABLE event_key (
  tenant  text COLLATE "C" NOT NULL,
  kind    text COLLATE "C" NOT NULL,
  id      text COLLATE "C" NOT NULL,
  key     text COLLATE "C" NOT NULL,
  version bigint NOT NULL,
  at      timestamptz NOT NULL,
  PRIMARY KEY (tenant, kind, id, key)
);

CREATE INDEX event_key_by_time ON event_key USING brin (at);

-- A row per active state, and one with the empty state: since when the entity is in its configuration. The key is the
-- order of lists; a step knows since when its entity was in the states that it leaves, so no other index is needed.
CREATE TABLE entity_state (
  tenant     text COLLATE "C" NOT NULL,
  kind       text COLLATE "C" NOT NULL,
  state      text COLLATE "C" NOT NULL,
  entered_ms bigint NOT NULL,
  id         text COLLATE "C" NOT NULL,
  PRIMARY KEY (tenant, kind, state, entered_ms, id)
) WITH (autovacuum_vacuum_scale_factor = 0.02);

CREATE TABLE entity_tag (
  tenant text COLLATE "C" NOT NULL,
  kind   text COLLATE "C" NOT NULL,
  tag    text COLLATE "C" NOT NULL,
  id     text COLLATE "C" NOT NULL,
  PRIMARY KEY (tenant, kind, tag, id)
) WITH (autovacuum_vacuum_scale_factor = 0.02);

-- Entities in each active state, compounds too: the regions of a parallel state are counted in each. The sum over the
-- stripes counts: connections that write at once have rows of their own.
CREATE TABLE state_count (
  tenant   text COLLATE "C" NOT NULL,
  kind     text COLLATE "C" NOT NULL,
  revision text COLLATE "C" NOT NULL,
  state    text COLLATE "C" NOT NULL,
  stripe   integer NOT NULL,
  entities bigint  NOT NULL,
  PRIMARY KEY (tenant, kind, revision, state, stripe)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);

-- Attempts that changed nothing, chained: `head` is the hash over the head before and `body`.
CREATE TABLE audit_refusal (
  sequence  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tenant    text COLLATE "C" NOT NULL,
  kind      text COLLATE "C" NOT NULL,
  id        text COLLATE "C" NOT NULL,
  principal text COLLATE "C",
  time_ms   bigint NOT NULL,
  body      bytea  NOT NULL,
  head      text   NOT NULL
);

CREATE INDEX audit_refusal_by_principal ON audit_refusal (tenant, principal, sequence);

-- Makes the partitions of this month and of those ahead that are not there; gives how many it made. Attaching, unlike
-- creating in place, does not shut out whoever writes meanwhile. A month that the default partition has rows of already
-- stays there.
CREATE FUNCTION keep_partitions(ahead integer) RETURNS integer LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  this  timestamptz := date_trunc('month', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC';
  start timestamptz;
  month text;
  made  integer := 0;
BEGIN
  FOR number IN 0 .. ahead LOOP
    start := ((this AT TIME ZONE 'UTC') + make_interval(months => number)) AT TIME ZONE 'UTC';
    month := 'journal_' || to_char(start AT TIME ZONE 'UTC', 'YYYY_MM');
    CONTINUE WHEN to_regclass(month) IS NOT NULL;
    BEGIN
      EXECUTE format('CREATE TABLE %I (LIKE journal INCLUDING DEFAULTS)', month);
      EXECUTE format('ALTER TABLE journal ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
                     month, start, ((start AT TIME ZONE 'UTC') + interval '1 month') AT TIME ZONE 'UTC');
      made := made + 1;
    EXCEPTION WHEN check_violation THEN
      CONTINUE;
    END;
  END LOOP;
  RETURN made;
END
$$;
