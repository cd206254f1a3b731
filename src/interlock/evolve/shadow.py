"""What comparing recorded steps with a new definition has shown: groups of differences, evidence and a verdict.

Rule 1: differences are grouped by event, states before, recorded target, new target and what differs. A group counts,
        and keeps the first, the last and a few samples.
Rule 2: memory is bounded. Beyond `SHADOW_GROUPS_MAX` groups, further differences are only counted (`other`).
Rule 3: the verdict is `none` only with evidence: entries were compared, nothing was left out, and the window covers the
        longest completed life. Otherwise it is `unknown`, and `gaps` and `window` say why.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from interlock.evolve.step_comparison import Comparison, Difference, StepComparer
from interlock.model.charts.chart import Chart, Transition
from interlock.model.document.wording import guard_text
from interlock.model.encoding.codec import encode
from interlock.model.journal.entry import Entry
from interlock.model.limits import SHADOW_GROUPS_MAX, SHADOW_SAMPLES_MAX, SHADOW_VALUE_LENGTH_MAX

Verdict = Literal["none", "divergent", "unknown"]

GROUP_PARTS_MAX = 12
"""Parts that the key of a group names: a step of a large chart may differ in hundreds of fields."""


class DivergencePlace(Struct, frozen=True):
    """An entry: its entity, version and time."""

    entity: str
    version: int
    time_ms: int


class DivergenceSample(Struct, frozen=True):
    """An entry that differs, and each difference as text, the recorded value first."""

    entity: str
    version: int
    differences: tuple[str, ...]


class DivergenceGroup(Struct):
    """Differences of one kind: the event, the states before it, both targets (None: no step) and what differs."""

    event: str
    state: tuple[str, ...]
    recorded: tuple[str, ...]
    new: tuple[str, ...] | None
    parts: tuple[str, ...]
    count: int
    first: DivergencePlace
    last: DivergencePlace
    samples: list[DivergenceSample]


class Gap(Struct):
    """Something that was not compared: a code, why, how often, and the first entity concerned."""

    code: str
    text: str
    count: int
    entity: str


class Evidence(Struct, frozen=True, kw_only=True):
    """The evidence for the verdict.

    Events are those that the new definition declares for senders, if it declares any. `never_taken` are its transitions
    that no compared event took. `window_ms` is the time between the first and the last entry compared,
    `longest_ms` the longest completed life in the store and `oldest_ms` the age of the oldest living entity.
    """

    entities: int
    entries: int
    skipped: int
    revisions: dict[str, int]
    declares_events: bool
    events_seen: tuple[str, ...]
    events_missing: tuple[str, ...]
    transitions: int
    never_taken: tuple[str, ...]
    fields_ignored: tuple[str, ...]
    ended: int
    window_ms: int
    longest_ms: int | None
    oldest_ms: int | None


class ShadowReport(Struct, frozen=True, kw_only=True):
    """The result: the verdict with its evidence, and the differences, the most frequent first."""

    kind: str
    revision: str
    verdict: Verdict
    divergences: int
    groups: tuple[DivergenceGroup, ...]
    other: int
    gaps: tuple[Gap, ...]
    evidence: Evidence

    @property
    def is_window_full(self) -> bool:
        """Whether the window covers one life of the longest-lived entity that ended."""
        longest = self.evidence.longest_ms
        return self.evidence.ended > 0 and longest is not None and self.evidence.window_ms >= longest


class ShadowTally:
    """Collects comparisons of entities of one kind with one new definition."""

    def __init__(self, chart: Chart) -> None:
        self.chart = chart
        self.entities = self.entries = self.divergences = self.other = self.skipped = self.ended = 0
        self._groups: dict[tuple[Any, ...], DivergenceGroup] = {}
        self._gaps: dict[tuple[str, str], Gap] = {}
        self._revisions: dict[str, int] = {}
        self._declared = [each.name for each in chart.events or () if each.direction == "in"]
        self._unseen = set(self._declared)
        self._taken: set[int] = set()
        self._ignored: set[str] = set()
        self._first_ms: int | None = None
        self._last_ms = 0
        self._longest_ms: int | None = None
        self._oldest_ms: int | None = None

    def add_life(self, age_ms: int, *, is_ended: bool) -> None:
        """Count the life of an entity of the store, compared or not: completed, or up to now."""
        if is_ended:
            self._longest_ms = max(age_ms, self._longest_ms or 0)
        else:
            self._oldest_ms = max(age_ms, self._oldest_ms or 0)

    def add_entity(self, *, is_ended: bool) -> None:
        """Count an entity whose entries were compared."""
        self.entities += 1
        self.ended += is_ended

    def add_gap(self, code: str, text: str, entity: str, *, about: str = "") -> None:
        """Count what cannot be compared: an entity that cannot be read, an entry whose definition is missing.

        Gaps of one code are counted together, by what they are `about`.
        """
        key = (code, about) if len(self._gaps) < SHADOW_GROUPS_MAX or (code, about) in self._gaps else ("other", "")
        self._gaps.setdefault(key, Gap(key[0], text, 0, entity)).count += 1

    def add(self, comparer: StepComparer, entity: str, entry: Entry, found: Comparison) -> None:
        """Count the comparison of one entry."""
        if not found.is_compared:
            self.skipped += 1
            return
        self.entries += 1
        time_ms, event = entry.event.time_ms, entry.event
        if self._first_ms is None or time_ms < self._first_ms:
            self._first_ms = time_ms
        self._last_ms = max(self._last_ms, time_ms)
        if entry.revision in self._revisions:
            self._revisions[entry.revision] += 1
        elif len(self._revisions) < SHADOW_GROUPS_MAX:
            self._revisions[entry.revision] = 1
            self._ignored |= comparer.only_old | comparer.only_new
        self._unseen.discard(event.name)
        if found.new is not None:
            self._taken.update(found.new.transitions)
        if found.differences:
            self.add_divergence(entity, entry, found)

    def add_divergence(self, entity: str, entry: Entry, found: Comparison) -> None:
        """Count the differences of an entry that was counted already."""
        self.divergences += 1
        new = None if found.new is None else found.new.snapshot.configuration
        parts = tuple(each.part for each in found.differences)
        if len(parts) > GROUP_PARTS_MAX:
            parts = (*parts[:GROUP_PARTS_MAX], "…")
        key = (entry.event.name, entry.before, entry.after, new, parts)
        place = DivergencePlace(entity, entry.version, entry.event.time_ms)
        group = self._groups.get(key)
        if group is None:
            if len(self._groups) >= SHADOW_GROUPS_MAX:
                self.other += 1
                return
            group = DivergenceGroup(*key, 0, place, place, [])
            self._groups[key] = group
        group.count += 1
        if place.time_ms < group.first.time_ms:
            group.first = place
        if place.time_ms >= group.last.time_ms:
            group.last = place
        if len(group.samples) < SHADOW_SAMPLES_MAX and all(each.entity != entity for each in group.samples):
            texts = tuple(difference_text(each) for each in found.differences[: len(parts)])
            group.samples.append(DivergenceSample(entity, entry.version, texts))

    def report(self, further_gaps: tuple[Gap, ...] = ()) -> ShadowReport:
        """Return the result so far, with gaps that the caller has found."""
        never = [each for each in self.chart.transitions if each.index not in self._taken]
        evidence = Evidence(
            entities=self.entities,
            entries=self.entries,
            skipped=self.skipped,
            revisions=dict(self._revisions),
            declares_events=self.chart.events is not None,
            events_seen=tuple(each for each in self._declared if each not in self._unseen),
            events_missing=tuple(each for each in self._declared if each in self._unseen),
            transitions=len(self.chart.transitions),
            never_taken=tuple(_transition_text(self.chart, each) for each in never),
            fields_ignored=tuple(sorted(self._ignored)),
            ended=self.ended,
            window_ms=0 if self._first_ms is None else self._last_ms - self._first_ms,
            longest_ms=self._longest_ms,
            oldest_ms=self._oldest_ms,
        )
        groups = tuple(sorted(self._groups.values(), key=lambda each: -each.count))
        found = ShadowReport(
            kind=self.chart.kind,
            revision=self.chart.revision,
            verdict="divergent",
            divergences=self.divergences,
            groups=groups,
            other=self.other,
            gaps=(*self._gaps.values(), *further_gaps),
            evidence=evidence,
        )
        if self.divergences:
            return found
        is_proven = self.entries > 0 and not found.gaps and found.is_window_full
        return replace(found, verdict="none" if is_proven else "unknown")


def difference_text(difference: Difference) -> str:
    """Return a difference as one line: `context.total: 5 -> -5`."""
    return f"{difference.part}: {_value_text(difference.recorded)} -> {_value_text(difference.new)}"


def _value_text(value: Any) -> str:
    text = value if isinstance(value, str) else encode(value).decode()
    return text if len(text) <= SHADOW_VALUE_LENGTH_MAX else f"{text[: SHADOW_VALUE_LENGTH_MAX - 1]}…"


def _transition_text(chart: Chart, transition: Transition) -> str:
    """A transition as text: source, event, guard and targets."""
    return "".join(_transition_parts(chart, transition))


def _transition_parts(chart: Chart, transition: Transition) -> Iterator[str]:
    yield chart.states[transition.source].id or chart.kind
    yield f": {transition.label or ', '.join(each.text for each in transition.descriptors) or 'always'}"
    if transition.guard is not None:
        yield f" [{guard_text(transition.guard)}]"
    yield f" → {', '.join(chart.states[each].id for each in transition.targets) or 'no target'}"
