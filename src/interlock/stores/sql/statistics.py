"""Counts, dwell times and rates of a SQL store: counters, and index ranges with an end.

Rule 1: no statement scans a table; a test asks the database for the plan of each.
Rule 2: rates and dwell times come from a `StatisticsBuffer` that is written at most once a second: one row per kind and
minute, and one per state, day and bucket, however many steps there were.
"""

from __future__ import annotations

from interlock.ports.statistics import (
    COUNT_MAX,
    DAY_MS,
    DWELL_DAYS,
    MINUTE_MS,
    RATE_MINUTES,
    DwellTimes,
    MinuteRates,
    StateCount,
)
from interlock.stores.sql.database import Ask, Questions, Statements
from interlock.stores.statistics_buffer import BUCKETS, StatisticsBuffer


def count_states(sql: Statements, tenant: str, kind: str) -> Questions[tuple[StateCount, ...]]:
    """Return how many entities are in each state, by revision."""
    return tuple(StateCount(*row) for row in (yield Ask(sql.counts, (tenant, kind))))


def dwell_times(sql: Statements, tenant: str, kind: str, since_ms: int) -> Questions[tuple[DwellTimes, ...]]:
    """Return dwell times by state, summed over all days since a time."""
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
