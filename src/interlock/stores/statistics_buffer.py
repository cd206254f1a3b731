"""Rates, dwell times and what was seen in recent steps, kept in memory until a store writes them.

Rule 1: a buffer belongs to one thread. Its content is lost when its process ends: it is statistics, not truth.
Rule 2: a step is only noted. Notes are summed when they are read, or when there are `NOTES_MAX` of them.
Rule 3: senders choose the names of events. Beyond `SEEN_NAMES_MAX` of a kind, names are counted together.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from interlock.model.audit import AuditRow
from interlock.model.event import Event
from interlock.model.limits import SEEN_DAYS, SEEN_NAMES_MAX
from interlock.ports.reading.statistics import (
    DAY_MS,
    DWELL_BOUNDS_MS,
    MINUTE_MS,
    OTHER_NAMES,
    LastSeen,
    SeenKind,
    seen_kind,
)
from interlock.ports.reading.visible_names import is_for_others, state_for_others

BUCKETS = len(DWELL_BOUNDS_MS) + 1

NOTES_MAX = 256
"""Notes before they are summed. They refer to the states of their steps: with many of them, the garbage collector would
look at these again and again."""

STEPS, CONFLICTS, REFUSALS = range(3)

States = Sequence[tuple[str, int]]
"""States, each with its entry time."""


class SeenPlace(NamedTuple):
    """What was seen, on which day."""

    kind: str
    what: SeenKind
    name: str
    day_ms: int


class StatisticsBuffer:
    """Stays by (kind, state, day, bucket), steps, conflicts and refusals by (kind, minute), and what was seen by day,
    with its number and its last time.
    """

    __slots__ = ("_minutes", "_names", "_notes", "_seen", "_stays", "_totals")

    def __init__(self) -> None:
        self._notes: list[tuple[str, int, int, States, States, str, str | None]] = []
        self._stays: dict[tuple[str, str, int, int], int] = {}
        self._totals: dict[tuple[str, str], int] = {}
        self._minutes: dict[tuple[str, int], list[int]] = {}
        self._seen: dict[SeenPlace, list[int]] = {}
        self._names: dict[tuple[str, str], set[str]] = {}

    def __bool__(self) -> bool:
        return bool(self._notes or self._stays or self._minutes or self._seen)

    @property
    def stays(self) -> dict[tuple[str, str, int, int], int]:
        """Stays that ended, by kind, state, day and bucket."""
        self._sum()
        return self._stays

    @property
    def totals(self) -> dict[tuple[str, str], int]:
        """Milliseconds of the stays that ended, by kind and state."""
        self._sum()
        return self._totals

    @property
    def minutes(self) -> dict[tuple[str, int], list[int]]:
        """Steps, conflicts and refusals, by kind and minute."""
        self._sum()
        return self._minutes

    @property
    def seen(self) -> dict[SeenPlace, list[int]]:
        """How often something was seen on a day, and when last."""
        self._sum()
        return self._seen

    def last_seen(self, kind: str) -> tuple[LastSeen, ...]:
        """Return what was seen of a kind, for a store that keeps its statistics here; forget days that are too old."""
        found: dict[tuple[SeenKind, str], list[int]] = {}
        newest: dict[tuple[SeenKind, str], int] = {}
        for place in self.seen:
            if place.kind == kind:
                name = (place.what, place.name)
                newest[name] = max(place.day_ms, newest.get(name, place.day_ms))
        limit_ms = max(newest.values(), default=0) - SEEN_DAYS * DAY_MS
        for place, (count, last_ms) in list(self._seen.items()):
            if place.kind != kind:
                continue
            name = (place.what, place.name)
            if place.day_ms < min(limit_ms, newest[name]):
                del self._seen[place]
                continue
            known = found.setdefault(name, [place.day_ms, 0, last_ms])
            known[:] = min(known[0], place.day_ms), known[1] + count, max(known[2], last_ms)
        return tuple(LastSeen(what, name, *known) for (what, name), known in sorted(found.items()))

    def clear(self) -> None:
        """Empty the buffer."""
        self._notes.clear()
        self._stays.clear()
        self._totals.clear()
        self._minutes.clear()
        self._seen.clear()
        self._names.clear()

    def count_step(self, kind: str, states_left: States, states_entered: States, event: Event) -> None:
        """Count a step, the dwell times of the states that it left, and what was seen; states have their entry time."""
        self._notes.append((kind, STEPS, event.at_ms, states_left, states_entered, event.name, event.source))
        if len(self._notes) >= NOTES_MAX:
            self._sum()

    def count_conflict(self, kind: str, time_ms: int) -> None:
        """Count a step that lost its swap."""
        self._notes.append((kind, CONFLICTS, time_ms, (), (), "", None))

    def count_refusal(self, row: AuditRow) -> None:
        """Count an attempt that changed nothing, or those that a row sums up."""
        if not row.is_refusal:
            return
        self._notes += [(row.kind, REFUSALS, row.time_ms, (), (), row.event, None)] * row.count
        if len(self._notes) >= NOTES_MAX:
            self._sum()

    def forget_after(self, now_ms: int) -> None:
        """Delete counts of days and minutes that have not started yet: a clock was ahead."""
        self._stays = {place: count for place, count in self.stays.items() if place[2] <= now_ms}
        self._minutes = {when: counts for when, counts in self.minutes.items() if when[1] <= now_ms}
        self._seen = {place: counts for place, counts in self._seen.items() if place.day_ms <= now_ms}

    def add(self, other: StatisticsBuffer) -> None:
        """Add what another buffer has."""
        self._notes += other._notes
        for place, count in other._stays.items():
            self._stays[place] = self._stays.get(place, 0) + count
        for state, total_ms in other._totals.items():
            self._totals[state] = self._totals.get(state, 0) + total_ms
        for when, counts in other._minutes.items():
            mine = self._minutes.setdefault(when, [0, 0, 0])
            for what, count in enumerate(counts):
                mine[what] += count
        for seen, (count, last_ms) in other._seen.items():
            self._see(*seen, count, last_ms)
        if len(self._notes) >= NOTES_MAX:
            self._sum()

    def _sum(self) -> None:
        stays, totals, minutes = self._stays, self._totals, self._minutes
        seen: defaultdict[tuple[str, SeenKind, str, int], list[int]] = defaultdict(list)
        for kind, what, time_ms, states_left, states_entered, event, source in self._notes:
            minute = (kind, time_ms // MINUTE_MS * MINUTE_MS)
            counts = minutes.get(minute)
            if counts is None:
                counts = minutes[minute] = [0, 0, 0]
            counts[what] += 1
            day_ms = time_ms // DAY_MS * DAY_MS
            for state, entered_ms in states_left:
                if state[:1] == ":" and is_for_others(state) and state_for_others(state) is None:
                    continue  # a name of lists, not of a state
                stay_ms = time_ms - entered_ms
                place = (kind, state, day_ms, bisect_left(DWELL_BOUNDS_MS, stay_ms))
                stays[place] = stays.get(place, 0) + 1
                totals[kind, state] = totals.get((kind, state), 0) + stay_ms
            for state, _ in states_entered:
                if state[:1] == ":" and is_for_others(state):
                    continue
                seen[kind, "state", state, day_ms].append(time_ms)
            if event[:1] not in ("", "_"):  # creations and moves are no events of the chart
                seen[kind, seen_kind(source) if what == STEPS else "refused", event, day_ms].append(time_ms)
        for seen_place, times in seen.items():
            self._see(*seen_place, len(times), max(times))
        self._notes.clear()

    def _see(self, kind: str, what: SeenKind, name: str, day_ms: int, count: int, last_ms: int) -> None:
        place = SeenPlace(kind, what, name, day_ms)
        known = self._seen.get(place)
        if known is None:
            names = self._names.setdefault((kind, what), set())
            if name not in names and len(names) >= SEEN_NAMES_MAX:
                place = SeenPlace(kind, what, OTHER_NAMES, day_ms)
                known = self._seen.get(place)
            else:
                names.add(name)
            if known is None:
                known = self._seen[place] = [0, last_ms]
        known[0] += count
        known[1] = max(known[1], last_ms)
