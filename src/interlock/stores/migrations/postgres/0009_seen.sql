-- When the states, events and timers of a kind were last seen: statistics, written at most once a second by each
-- process. `what` is `state` (entered), `event` (an entry has it), `refused` (refused or without effect) or `timer`
-- (fired). Days are the milliseconds they begin at, by the time of the entries. The name '' counts all names beyond
-- those that are kept.

CREATE TABLE seen (
  tenant  text COLLATE "C" NOT NULL,
  kind    text COLLATE "C" NOT NULL,
  what    text COLLATE "C" NOT NULL,
  name    text COLLATE "C" NOT NULL,
  day_ms  bigint NOT NULL,
  count   bigint NOT NULL,
  last_ms bigint NOT NULL,
  PRIMARY KEY (tenant, kind, what, name, day_ms)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);
