-- Names that one worker at a time may hold: until when, and how often each changed hands. One that was given back
-- keeps its row, or its fence would begin anew.
CREATE TABLE lease (
  tenant   TEXT    NOT NULL,
  name     TEXT    NOT NULL,
  owner    TEXT    NOT NULL,
  fence    INTEGER NOT NULL,
  until_ms INTEGER NOT NULL,
  PRIMARY KEY (tenant, name)
) STRICT, WITHOUT ROWID;

-- The last sign of life of any worker, and the times in which there was none.
CREATE TABLE alive (
  tenant   TEXT    NOT NULL PRIMARY KEY,
  alive_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE downtime (
  tenant   TEXT    NOT NULL,
  began_ms INTEGER NOT NULL,
  ended_ms INTEGER NOT NULL,
  PRIMARY KEY (tenant, ended_ms)
) STRICT, WITHOUT ROWID;
