-- What entries leave to do: work for handlers, for the clock and for the relay. It is written with its entry.
-- `line` is who waits together: the handler's name for effects, nothing for timers and the outbox.
-- `next_ms` is when it may be taken up, or when its lease lapses; null: it waits for something else. Of an entity's
-- outbox only the first living row has one, so that a claim never walks over those behind it.

CREATE TABLE work (
  tenant    TEXT    NOT NULL,
  kind      TEXT    NOT NULL,
  id        TEXT    NOT NULL,
  lane      TEXT    NOT NULL,
  version   INTEGER NOT NULL,
  ordinal   INTEGER NOT NULL,
  line      TEXT    NOT NULL,
  name      TEXT    NOT NULL,
  body      BLOB    NOT NULL,
  due_ms    INTEGER,
  next_ms   INTEGER,
  attempts  INTEGER NOT NULL DEFAULT 0,
  failures  INTEGER NOT NULL DEFAULT 0,
  owner     TEXT,
  error     BLOB,
  cancelled INTEGER NOT NULL DEFAULT 0,
  dead_ms   INTEGER,
  PRIMARY KEY (tenant, kind, id, lane, version, ordinal)
) STRICT, WITHOUT ROWID;

CREATE INDEX work_by_time ON work (tenant, lane, line, next_ms) WHERE next_ms IS NOT NULL;
CREATE INDEX work_by_death ON work (tenant, kind, dead_ms) WHERE dead_ms IS NOT NULL;
