-- Keys from before this time are forgotten, or may be; one row per tenant. It moves with the time that passes while the
-- store is open, so that a clock that jumps ahead takes no fresh keys with it. A new tenant's begins the window before
-- its first opening; those that are here already have lived with clocks alone, and begin where they are. That walks over
-- all keys once.

CREATE TABLE key_boundary (
  tenant text COLLATE "C" NOT NULL PRIMARY KEY,
  at     timestamptz NOT NULL
);

INSERT INTO key_boundary (tenant, at) SELECT tenant, min(at) FROM event_key GROUP BY tenant;
