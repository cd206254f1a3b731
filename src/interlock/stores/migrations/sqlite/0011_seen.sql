-- When the states, events and timers of a kind were last seen: statistics, written at most once a second. `what` is
-- `state` (entered), `event` (an entry has it), `refused` (refused or without effect) or `timer` (fired). Days are the
-- milliseconds they begin at. The name '' counts all names beyond those that are kept.

CREATE TABLE seen (
  tenant  TEXT    NOT NULL,
  kind    TEXT    NOT NULL,
  what    TEXT    NOT NULL,
  name    TEXT    NOT NULL,
  day_ms  INTEGER NOT NULL,
  count   INTEGER NOT NULL,
  last_ms INTEGER NOT NULL,
  PRIMARY KEY (tenant, kind, what, name, day_ms)
) STRICT, WITHOUT ROWID;
