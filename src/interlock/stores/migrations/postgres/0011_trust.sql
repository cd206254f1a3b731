-- Section: audit


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

