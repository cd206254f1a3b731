-- Keys from before this time are forgotten, or may be; one row per tenant. It moves with the time that passes while the
-- file is open, so that a clock that jumps ahead takes no fresh keys with it. A tenant without a row gets one, the
-- window before its oldest key, when its writer first has nothing to do; those that are here already have lived with a
-- clock alone, and begin where they are.

CREATE TABLE key_boundary (
  tenant  TEXT    NOT NULL PRIMARY KEY,
  time_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO key_boundary (tenant, time_ms) SELECT tenant, min(time_ms) FROM event_key GROUP BY tenant;
