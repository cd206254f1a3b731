-- Journals that an archive has taken over: up to which version, the hash of that record, and where they are now.
-- The entity stays, with its snapshot and its keys; later records, if any, follow `head`.

CREATE TABLE entity_archive (
  tenant  TEXT    NOT NULL,
  kind    TEXT    NOT NULL,
  id      TEXT    NOT NULL,
  version INTEGER NOT NULL,
  head    TEXT    NOT NULL,
  archive TEXT    NOT NULL,
  PRIMARY KEY (tenant, kind, id),
  FOREIGN KEY (tenant, kind, id) REFERENCES entity (tenant, kind, id)
) STRICT, WITHOUT ROWID;
