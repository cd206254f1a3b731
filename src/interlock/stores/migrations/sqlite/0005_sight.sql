-- How long entities stayed in states, and what each minute brought: statistics, written at most once a second.
-- `bucket` is the number of the bound that a stay did not pass; days and minutes are the milliseconds they begin at.

CREATE TABLE state_dwell (
  tenant TEXT    NOT NULL,
  kind   TEXT    NOT NULL,
  day_ms INTEGER NOT NULL,
  state  TEXT    NOT NULL,
  bucket INTEGER NOT NULL,
  stays  INTEGER NOT NULL,
  PRIMARY KEY (tenant, kind, day_ms, state, bucket)
) STRICT, WITHOUT ROWID;

CREATE TABLE kind_minute (
  tenant    TEXT    NOT NULL,
  kind      TEXT    NOT NULL,
  minute_ms INTEGER NOT NULL,
  steps     INTEGER NOT NULL,
  conflicts INTEGER NOT NULL,
  refusals  INTEGER NOT NULL,
  PRIMARY KEY (tenant, kind, minute_ms)
) STRICT, WITHOUT ROWID;

-- Refusals of one tenant by number: the row's own number follows in every index.
CREATE INDEX audit_refusal_by_tenant ON audit_refusal (tenant);

-- Dead letters in the order of lists, however many living rows there are beside them.
CREATE INDEX work_dead ON work (tenant, kind, id, lane, version, ordinal) WHERE dead_ms IS NOT NULL;
