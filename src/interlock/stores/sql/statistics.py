"""Counts, dwell times and rates of a SQL store: counters, and index ranges with an end.

Rule 1: no statement scans a table; a test asks the database for the plan of each.
Rule 2: rates, dwell times and what was seen come from a `StatisticsBuffer` that is written at most once a second: one
row per kind and minute, one per state, day and bucket, and one per name and day, however many steps there were.
Rule 3: a store keeps `SEEN_NAMES_MAX` names of a kind; further ones are counted as `OTHER_NAMES`. A few more are kept
when several processes write new names in the same second.
"""

from __future__ import annotations

from interlock.model.journal.work import Lane
from interlock.model.limits import SEEN_DAYS, SEEN_NAMES_MAX
from interlock.ports.reading.statistics import (
    COUNT_MAX,
    DAY_MS,
    DWELL_DAYS,
    MINUTE_MS,
    OTHER_NAMES,
    RATE_MINUTES,
    DwellTimes,
    LastSeen,
    MinuteRates,
    StateCount,
)
from interlock.stores.sql.database import Ask, Questions, Statements
from interlock.stores.statistics_buffer import BUCKETS, StatisticsBuffer


def count_states(sql: Statements, tenant: str, kind: str) -> Questions[tuple[StateCount, ...]]:
    """Return how many entities are in each state, by revision, also as others see it."""
    return tuple(StateCount(*row) for row in (yield Ask(sql.counts, (tenant, kind))))


def dwell_times(sql: Statements, tenant: str, kind: str, since_ms: int) -> Questions[tuple[DwellTimes, ...]]:
    """Return dwell times by state, summed over all days since a time, also as others see them."""
    found: dict[str, list[int]] = {}
    for state, bucket, stays in (yield Ask(sql.dwell, (tenant, kind, since_ms // DAY_MS * DAY_MS))):
        found.setdefault(state, [0] * BUCKETS)[bucket] += stays
    return tuple(DwellTimes(state, tuple(buckets)) for state, buckets in sorted(found.items()))


def minute_rates(sql: Statements, tenant: str, kind: str, since_ms: int) -> Questions[tuple[MinuteRates, ...]]:
    """Return the counters of each minute since a time, in order."""
    return tuple(MinuteRates(*row) for row in (yield Ask(sql.rates, (tenant, kind, since_ms))))


def count_overdue(sql: Statements, tenant: str, kind: str, state: str, before_ms: int) -> Questions[int]:
    """Return how many entities entered a state before a time; `COUNT_MAX` + 1 means that there are more."""
    ((found,),) = yield Ask(sql.count_overdue, (tenant, kind, state, before_ms, COUNT_MAX + 1))
    return int(found)


def count_work(sql: Statements, tenant: str, lane: Lane) -> Questions[int]:
    """Return how much work of a lane is in line; `COUNT_MAX` + 1 means that there is more."""
    ((found,),) = yield Ask(sql.count_work, (tenant, lane, COUNT_MAX + 1))
    return int(found)


def last_seen(sql: Statements, tenant: str, kind: str) -> Questions[tuple[LastSeen, ...]]:
    """Return what was seen of a kind."""
    return tuple(LastSeen(*row) for row in sorted((yield Ask(sql.last_seen, (tenant, kind)))))


def write_statistics(sql: Statements, tenant: str, buffer: StatisticsBuffer) -> Questions[None]:
    """Add a buffer to the counters, and delete counters older than they are kept."""
    stays = [(*place, count) for place, count in sorted(buffer.stays.items())]
    minutes = [(*minute, *counts) for minute, counts in sorted(buffer.minutes.items())]
    newest: dict[str, int] = {}
    for kind, minute_ms in buffer.minutes:
        newest[kind] = max(minute_ms, newest.get(kind, minute_ms))
    yield Ask(sql.add_dwell, (tenant,), stays)
    yield Ask(sql.add_minutes, (tenant,), minutes)
    for kind, minute_ms in sorted(newest.items()):
        yield Ask(sql.delete_minutes, (tenant, kind, minute_ms - RATE_MINUTES * MINUTE_MS))
        yield Ask(sql.delete_dwell, (tenant, kind, minute_ms // DAY_MS * DAY_MS - DWELL_DAYS * DAY_MS))
    yield from _write_seen(sql, tenant, buffer)


def _write_seen(sql: Statements, tenant: str, buffer: StatisticsBuffer) -> Questions[None]:
    newest: dict[tuple[str, str], int] = {}
    for place in buffer.seen:
        newest[place.kind, place.what] = max(place.day_ms, newest.get((place.kind, place.what), place.day_ms))
    known: dict[tuple[str, str], set[str]] = {}
    old: list[tuple[str, str, str, int]] = []
    for (kind, what), day_ms in sorted(newest.items()):
        found = yield Ask(sql.seen_names, (tenant, kind, what, SEEN_NAMES_MAX + 1))
        known[kind, what] = {name for name, _ in found}
        before_ms = day_ms - SEEN_DAYS * DAY_MS
        old += [(kind, what, name, before_ms) for name, first_ms in found if first_ms < before_ms]
    rows: dict[tuple[str, str, str, int], list[int]] = {}
    for (kind, what, name, day_ms), (count, last_ms) in sorted(buffer.seen.items()):
        names = known[kind, what]
        is_kept = name in names or len(names) < SEEN_NAMES_MAX
        names.add(name if is_kept else OTHER_NAMES)
        row = rows.setdefault((kind, what, name if is_kept else OTHER_NAMES, day_ms), [0, last_ms])
        row[:] = row[0] + count, max(row[1], last_ms)
    yield Ask(sql.add_seen, (tenant,), [(*place, *row) for place, row in sorted(rows.items())])
    if old:
        yield Ask(sql.delete_seen, (tenant,), old)
