-- How long entities stayed in states, and what each minute brought: statistics, written at most once a second by each
-- process. `bucket` is the number of the bound that a stay did not pass; days and minutes are the milliseconds they
-- begin at, by the time of the entries.

CREATE TABLE state_dwell (
  tenant text COLLATE "C" NOT NULL,
  kind   text COLLATE "C" NOT NULL,
  day_ms bigint  NOT NULL,
  state  text COLLATE "C" NOT NULL,
  bucket integer NOT NULL,
  stays  bigint  NOT NULL,
  PRIMARY KEY (tenant, kind, day_ms, state, bucket)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);

CREATE TABLE kind_minute (
  tenant    text COLLATE "C" NOT NULL,
  kind      text COLLATE "C" NOT NULL,
  minute_ms bigint NOT NULL,
  steps     bigint NOT NULL,
  conflicts bigint NOT NULL,
  refusals  bigint NOT NULL,
  PRIMARY KEY (tenant, kind, minute_ms)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);

CREATE INDEX audit_refusal_by_tenant ON audit_refusal (tenant, sequence);
