-- The definitions of charts. A body is the canonical JSON of one edition; tenants share it. `sequence` rises with every
-- edition of a kind; the order of a revision is its lowest. `written_name` is the name that entries of the revision
-- have; every edition of a revision has that of the first.
CREATE TABLE definition_body (
  digest text COLLATE "C" NOT NULL PRIMARY KEY,
  body   bytea NOT NULL
);

CREATE TABLE definition (
  tenant       text COLLATE "C" NOT NULL,
  kind         text COLLATE "C" NOT NULL,
  revision     text COLLATE "C" NOT NULL,
  digest       text COLLATE "C" NOT NULL,
  sequence     bigint NOT NULL,
  label        text,
  saved_ms     bigint NOT NULL,
  written_name text NOT NULL,
  PRIMARY KEY (tenant, kind, revision, digest)
);

CREATE INDEX definition_by_digest ON definition (digest);

-- Other names of a revision: those that earlier releases wrote, and those of other hash schemes. One name may mean
-- several revisions.
CREATE TABLE definition_alias (
  tenant   text COLLATE "C" NOT NULL,
  kind     text COLLATE "C" NOT NULL,
  name     text COLLATE "C" NOT NULL,
  revision text COLLATE "C" NOT NULL,
  PRIMARY KEY (tenant, kind, name, revision)
);

-- Facts about the store as a whole, by name.
CREATE TABLE store_fact (
  tenant text COLLATE "C" NOT NULL,
  name   text COLLATE "C" NOT NULL,
  value  text NOT NULL,
  PRIMARY KEY (tenant, name)
);
