"""What this process counts: integers in dictionaries, read at a scrape.

Rule 1: a count is a lookup and an addition, about 0.2 microseconds. Whether a name may be a label is asked when it is
counted for the first time; what may not be is counted as `OTHER` and not remembered, so senders cannot fill the memory.
Rule 2: nothing is counted unless the process has an exporter.
Rule 3: counts of a kind with hidden states are kept and never shown: which kinds those are is asked at a scrape.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection

from interlock.model.charts.chart import Chart
from interlock.model.journal.entry import CREATE
from interlock.observe.metrics.families import (
    APPEND_SECONDS,
    CONFLICTS,
    DUPLICATES,
    EFFECT_ATTEMPTS,
    EFFECT_SECONDS,
    OTHER,
    REFUSALS,
    TIMER_LATENESS,
    TRANSITIONS,
    Family,
    Histogram,
    Labels,
    Samples,
)
from interlock.ports.meter import AttemptResult

APPEND_BOUNDS_NS = tuple(round(10**9 * 0.0001 * 4**number) for number in range(9))
"""Upper bounds of the buckets of appends: from 0.1 milliseconds to 6.6 seconds."""

WAIT_BOUNDS_MS = tuple(4**number for number in range(12))
"""Upper bounds of the buckets of attempts and of late timers: from a millisecond to 70 minutes."""

_COUNTERS = (TRANSITIONS, EFFECT_ATTEMPTS, CONFLICTS, DUPLICATES, REFUSALS)

REASONS = {
    "denied": "denied",
    "no_transition": "chart",
    "guard": "chart",
    "ended": "chart",
    "failed": "chart",
    "undeclared": "event",
    "event.unknown": "event",
    "payload": "payload",
    "event.payload": "payload",
    "entity.exists": "exists",
    "conflict.expected": "conflict",
    "entity.held": "held",
    "mailbox.full": "busy",
    "mailbox.share": "busy",
    "runtime.draining": "draining",
    "entity.unknown": "entity",
}
"""What refused an event, by the reason of the receipt or the code of the error; anything else is `other`."""


class ProcessCounters:
    """The counters of one process. It is the `Meter` of its runtime.

    `charts_of` returns the charts of a kind that are known here, for the names that may be labels.
    """

    def __init__(self, charts_of: Callable[[str], Collection[Chart]]) -> None:
        self._charts_of = charts_of
        self._names: dict[str, frozenset[str]] = {}
        self._read: dict[str, tuple[str, ...]] = {}
        self._counts: dict[Family, dict[Labels, int]] = {each: {} for each in _COUNTERS}
        self._transitions = self._counts[TRANSITIONS]
        self._waits: dict[Family, dict[Labels, list[int]]] = {EFFECT_SECONDS: {}, TIMER_LATENESS: {}}
        self._appends = [0] * (len(APPEND_BOUNDS_NS) + 2)

    # Counting

    def received(self, kind: str, event: str, outcome: str, reason: str | None) -> None:
        """Count an event that an entity received."""
        labels = (kind, event, outcome)
        if labels in self._transitions:
            self._transitions[labels] += 1
        else:
            self._add(TRANSITIONS, (*self._event(kind, event), outcome))
        if outcome == "duplicate":
            self._add(DUPLICATES, (self._kind(kind),))
        elif outcome not in ("applied", "ignored"):
            self.refused(kind, outcome if outcome == "denied" else reason or "")

    def refused(self, kind: str, reason: str) -> None:
        """Count an event that was refused, by the reason of its receipt or the code of its error."""
        self._add(REFUSALS, (self._kind(kind), REASONS.get(reason, "other")))

    def lost(self, kind: str) -> None:
        """Count a step that lost its swap."""
        self._add(CONFLICTS, (self._kind(kind),))

    def appended(self, duration_ns: int) -> None:
        """Count an append, and how long the store took."""
        self._appends[bisect_left(APPEND_BOUNDS_NS, duration_ns)] += 1
        self._appends[-1] += duration_ns

    def attempted(self, kind: str, handler: str, result: AttemptResult, duration_ms: int) -> None:
        """Count an attempt to run an effect. A handler is registered in this process, so its name may be a label."""
        kind = self._kind(kind)
        self._add(EFFECT_ATTEMPTS, (kind, handler, result))
        self._observe(EFFECT_SECONDS, (kind, handler), duration_ms)

    def fired(self, kind: str, late_ms: int) -> None:
        """Count a timer that was fired, and how late it was."""
        self._observe(TIMER_LATENESS, (self._kind(kind),), late_ms)

    def _add(self, family: Family, labels: Labels) -> None:
        found = self._counts[family]
        found[labels] = found.get(labels, 0) + 1

    def _observe(self, family: Family, labels: Labels, ms: int) -> None:
        row = self._waits[family].setdefault(labels, [0] * (len(WAIT_BOUNDS_MS) + 2))
        row[bisect_left(WAIT_BOUNDS_MS, ms)] += 1
        row[-1] += ms

    # Names that may be labels

    def _kind(self, kind: str) -> str:
        return kind if kind in self._names or self._learn(kind) else OTHER

    def _event(self, kind: str, event: str) -> tuple[str, str]:
        """Return the labels of an event; a chart that was loaded since may name it."""
        if not self._learn(kind):
            return OTHER, OTHER
        return kind, event if event in self._names[kind] else OTHER

    def _learn(self, kind: str) -> bool:
        """Read the names of events in the charts of a kind, if they have changed; whether there is a chart."""
        charts = self._charts_of(kind)
        if not charts:
            return False
        revisions = tuple(each.revision for each in charts)
        if self._read.get(kind) != revisions:
            names = {CREATE, *(name for chart in charts for name in written_events(chart))}
            self._names[kind] = frozenset(names) | self._names.get(kind, frozenset())
            self._read[kind] = revisions
        return True

    # Reading

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds that something was counted of."""
        return tuple(sorted(self._names))

    def samples(self) -> dict[Family, Samples]:
        """Return what was counted so far, by family."""
        found: dict[Family, Samples] = {family: dict(counts) for family, counts in self._counts.items()}
        for family, rows in self._waits.items():
            found[family] = {labels: Histogram(tuple(row[:-1]), row[-1] / 1_000) for labels, row in rows.items()}
        found[APPEND_SECONDS] = {(): Histogram(tuple(self._appends[:-1]), self._appends[-1] / 10**9)}
        return found


def written_events(chart: Chart) -> frozenset[str]:
    """Return the names of events that a chart writes: declared ones, and those of its transitions, results included."""
    declared = (each.name for each in chart.events or ())
    texts = (each.text for transition in chart.transitions for each in transition.descriptors)
    return frozenset((*declared, *texts))
