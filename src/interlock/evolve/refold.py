"""Refold: what an entity would be if a corrected definition had run its whole life, and how to write that.

Rule 1: every recorded event is given to the corrected definition from the creation on. Unlike a shadow comparison, the
        fold never returns to what was recorded, so that an error which accumulates is found.
Rule 2: a correction is written only if nothing but values of the context differs: states, timers, invokes, history and
        deferred events come out equal, each event had the same outcome, and each effect that was performed had the same
        content. Everything else is reported for a person, because clients were answered and effects were performed.
Rule 3: a correction is a move (`evolve.move`) with the reason `refold`: the entity is carried to the corrected
        definition as by any other move, and gets the context of the fold. What was recorded stays as it is.
Rule 4: recorded moves are applied again, except earlier refolds and what takes them back: their values come from the
        same journal by another definition. A move whose values were computed from a context that the fold corrects
        cannot be applied again; the entity is reported.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from interlock.evolve.carry import CarryResult
from interlock.evolve.patch import make_patch
from interlock.evolve.shadow import GROUP_PARTS_MAX, difference_text
from interlock.evolve.step_comparison import Difference, StepComparer
from interlock.kernel.step import Kernel
from interlock.model.document.actions import Expression
from interlock.model.document.field import UNSET
from interlock.model.encoding.codec import encode
from interlock.model.journal.entry import MOVED, Entry
from interlock.model.limits import ENTRY_BYTES_MAX, SHADOW_GROUPS_MAX, SHADOW_SAMPLES_MAX
from interlock.model.snapshot import Snapshot, Timer
from interlock.model.step import Step

CHANGED = "the entity has changed since it was folded"
"""The reason for which a correction is not written and the entity must be folded further."""

_NOT_PERFORMED = frozenset({"timer", "timer_cancel", "log"})
"""Types of effects that reach no other system: pending timers are compared at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstDifference:
    """The first entry at which the fold differs from what was recorded: its version, time and event."""

    version: int
    time_ms: int
    event: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RefoldAnswer:
    """The result for one entity.

    `differences` are those of the entity as it is now. It is the same if there are none and no `reasons`. With
    `reasons` it must not be corrected by the definition alone; otherwise `carrier` writes the correction.
    """

    snapshot: Snapshot
    differences: tuple[Difference, ...] = ()
    reasons: tuple[str, ...] = ()
    first: FirstDifference | None = None
    carrier: Correction | None = None

    @property
    def is_same(self) -> bool:
        """Whether the entity is as the corrected definition would have made it."""
        return not self.differences and not self.reasons

    def refused(self, reasons: tuple[str, ...]) -> RefoldAnswer:
        """Return the answer for an entity whose correction was not written for these reasons."""
        return dataclasses.replace(self, reasons=reasons, carrier=None)


@dataclass(slots=True)
class LifeFold:
    """One entity on its way through its journal: the snapshot of the corrected definition, and what differs so far.

    `stopped` is the reason why the fold cannot continue.
    """

    new: Snapshot | None = None
    first: FirstDifference | None = None
    stopped: str | None = None
    _reasons: dict[str, None] = field(default_factory=dict)
    _skipped: set[int] = field(default_factory=set)
    _before_move: tuple[int, Snapshot] | None = None
    _comparer: StepComparer | None = None

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the entity must not be corrected, as far as its past says so."""
        return (*self._reasons, *([] if self.stopped is None else [self.stopped]))

    def add(self, comparer: StepComparer, before: Snapshot | None, entry: Entry, step: Step) -> None:
        """Add the next entry. `before` and `step` are the recorded snapshot before it and the recorded step.

        `comparer` is that of the revision which wrote the entry.
        """
        if self.stopped is not None:
            return
        if entry.event.name == MOVED:
            self._add_move(comparer, before, entry, step)
            return
        self._comparer = comparer
        found = comparer.compare(self.new, before, entry.event, step)
        if found.differences and self.first is None:
            self.first = FirstDifference(version=entry.version, time_ms=entry.event.time_ms, event=entry.event.name)
        if found.new is None:
            self.stopped = f"`{entry.event.name}` cannot be folded: {found.differences[0].new}"
            return
        self.new = _at(found.new.snapshot, step.snapshot.version)
        self._reasons.update(dict.fromkeys(_reasons_of(entry, found.differences)))

    def _add_move(self, comparer: StepComparer, before: Snapshot | None, entry: Entry, step: Step) -> None:
        data, version = entry.event.data, entry.version
        assert before is not None  # a move without a snapshot before it is damage, which repeating it has found
        assert self.new is not None
        assert isinstance(data, dict)
        undone = data.get("undoes")
        if data.get("why") == "refold" or undone in self._skipped:
            self._skipped.add(version)
            self.new = _at(self.new, version)
            return
        if data.get("why") == "undo":
            if self._before_move is None or self._before_move[0] != undone or undone != version - 1:
                self.stopped = "a move was taken back after further steps, which the fold cannot repeat"
                return
            context: Mapping[str, Any] = self._before_move[1].context
        else:
            self._before_move = (version, self.new)
            if (problem := self._move_problem(comparer, before, entry)) is not None:
                self.stopped = problem
                return
            context = _moved_context(comparer, self.new.context, data.get("context"))
        carried = carried_snapshot(comparer, step.snapshot, time_ms=entry.event.time_ms)
        if isinstance(carried, tuple):
            self.stopped = f"it cannot be carried to the corrected definition: {'; '.join(carried)}"
            return
        self.new = replace(carried, context=dict(context))

    def _move_problem(self, comparer: StepComparer, before: Snapshot, entry: Entry) -> str | None:
        """Why a move cannot be applied to the fold; None if it can. Without a difference before it, it always can."""
        assert self.new is not None
        if self.first is None or self._comparer is None:
            return None
        was = carried_snapshot(self._comparer, before, time_ms=entry.event.time_ms)
        if isinstance(was, tuple):
            return f"it was moved, and its state before that has no counterpart: {'; '.join(was)}"
        parts = [each.part for each in structure_differences(was, self.new)]
        if parts:
            return f"it was moved, and the fold had other {', '.join(parts)} before that"
        fields = comparer.carrier.old_fields  # those of the revision that the entity was moved to
        for name, value in (entry.event.data.get("context") or {}).get("set", {}).items():
            default = fields[name].default if name in fields else UNSET
            is_default = default is not UNSET and not isinstance(default, Expression) and _same(default, value)
            if name in before.context or not is_default:
                return "a migration computed values from a context that differs, and the fold cannot repeat it"
        return None

    def answer(
        self,
        comparer: StepComparer,
        stored: Snapshot,
        *,
        written: str,
        time_ms: int,
        entered_ms: Mapping[str, int] | None = None,
        is_forward: bool = True,
    ) -> RefoldAnswer:
        """Return the result for the entity. `stored` is its newest snapshot, up to which the fold must have come.

        `written` is the name under which a corrected entity is stored. Without `is_forward`, the corrected definition
        is older in the store than that of the entity.
        """
        if self.new is None or self.stopped is not None:
            return RefoldAnswer(snapshot=stored, reasons=self.reasons, first=self.first)
        if stored.ended is not None:
            return self._answer_for_ended(comparer, stored)
        carried = carried_snapshot(comparer, stored, time_ms=time_ms, entered_ms=entered_ms)
        if isinstance(carried, tuple):
            differences = tuple(comparer.context_differences(stored.context, self.new.context))
            reasons = self.reasons
            if differences:
                reasons += tuple(f"it cannot be carried to the corrected definition: {each}" for each in carried)
            return RefoldAnswer(snapshot=stored, differences=differences, reasons=reasons, first=self.first)
        structure = tuple(structure_differences(carried, self.new))
        differences = (*structure, *comparer.context_differences(stored.context, self.new.context))
        reasons = self.reasons
        if structure:
            reasons += (f"{', '.join(each.part for each in structure)} would be different, too",)
        if differences and not is_forward:
            reasons += ("its revision was saved later in this store than the corrected definition",)
        carrier = None
        if differences and not reasons:
            carrier = Correction(comparer, expected=stored, context=self.new.context, written=written)
        return RefoldAnswer(
            snapshot=stored, differences=differences, reasons=reasons, first=self.first, carrier=carrier
        )

    def _answer_for_ended(self, comparer: StepComparer, stored: Snapshot) -> RefoldAnswer:
        """An entity that ended is never written, because it never moves: its end was reported to others."""
        assert self.new is not None
        ends = [(comparer.renamed(stored.configuration), stored.ended, stored.output)]
        ends.append((self.new.configuration, self.new.ended, self.new.output))
        names = ("configuration", "ended", "output")
        structure = (Difference(name, *both) for name, *both in zip(names, *ends, strict=True) if not _same(*both))
        differences = (*structure, *comparer.context_differences(stored.context, self.new.context))
        reasons = self.reasons
        if differences:
            reasons += (f"the entity has ended ({stored.ended})",)
        return RefoldAnswer(snapshot=stored, differences=differences, reasons=reasons, first=self.first)


class Correction:
    """Carries one entity to its corrected context, if it is still as it was when it was folded."""

    def __init__(self, comparer: StepComparer, *, expected: Snapshot, context: dict[str, Any], written: str) -> None:
        self.kernel: Kernel = comparer.kernel
        self.old_names = frozenset({expected.revision})
        self.written = written
        self._comparer = comparer
        self._expected = expected
        self._context = context

    def states_with_new_timers(self, snapshot: Snapshot) -> tuple[str, ...]:
        """Return the active states that get a timer by the change."""
        return () if self._is_own(snapshot) else self._comparer.carrier.states_with_new_timers(snapshot)

    def carry(
        self,
        snapshot: Snapshot,
        *,
        time_ms: int,
        entered_ms: Mapping[str, int] | None = None,
        epoch: int = 0,
        spread_ms: int = 0,
    ) -> CarryResult:
        """Return the entity with its corrected context; if it has changed, the reason is `CHANGED`."""
        if snapshot.version != self._expected.version or encode(snapshot) != encode(self._expected):
            return CarryResult(reasons=(CHANGED,))
        dropped: tuple[str, ...] = ()
        if self._is_own(snapshot):
            version = snapshot.version + 1
            step = Step(replace(snapshot, version=version, revision=self.written, moved=version))
        else:
            carried = self._comparer.carrier.carry(
                snapshot, time_ms=time_ms, entered_ms=entered_ms, epoch=epoch, spread_ms=spread_ms
            )
            if carried.step is None:
                return carried
            step, dropped = carried.step, carried.dropped
            done = sorted({each.type for each in step.effects} - _NOT_PERFORMED)
            if done:
                return CarryResult(reasons=(f"carrying it would perform effects ({', '.join(done)})",))
        step = replace(step, snapshot=replace(step.snapshot, context=self._context, revision=self.written))
        patch = make_patch(snapshot, step.snapshot)
        if len(encode(patch)) > ENTRY_BYTES_MAX:
            return CarryResult(reasons=(f"the change of the entity has more than {ENTRY_BYTES_MAX:,} bytes",))
        return CarryResult(step=step, patch=patch, dropped=dropped)

    def _is_own(self, snapshot: Snapshot) -> bool:
        return self._comparer.kernel.chart.is_revision(snapshot.revision)


def carried_snapshot(
    comparer: StepComparer, snapshot: Snapshot, *, time_ms: int, entered_ms: Mapping[str, int] | None = None
) -> Snapshot | tuple[str, ...]:
    """Return a recorded snapshot on the corrected definition, or why it cannot be carried there.

    One that is on it already is returned as it is.
    """
    if comparer.kernel.chart.is_revision(snapshot.revision):
        return snapshot
    return comparer.carried(snapshot, time_ms, entered_ms)


def structure_differences(one: Snapshot, other: Snapshot) -> Iterator[Difference]:
    """Yield what differs between two snapshots apart from the context, versions and the names of revisions."""
    parts: tuple[tuple[str, Any, Any], ...] = (
        ("configuration", one.configuration, other.configuration),
        ("ended", one.ended, other.ended),
        ("output", one.output, other.output),
        ("history", one.history or {}, other.history or {}),
        ("timers", _timer_keys(one.timers), _timer_keys(other.timers)),
        ("invokes", one.invokes, other.invokes),
        ("deferred", one.deferred, other.deferred),
        ("entered", one.entered, other.entered),
    )
    for part, old, new in parts:
        if encode(old) != encode(new):
            yield Difference(part, old, new)


def _timer_keys(timers: tuple[Timer, ...]) -> list[list[Any]]:
    """Pending timers in a fixed order, without the names and versions that a move changes."""
    found = [[each.event, each.due_ms, each.state, each.id, each.data, each.to, each.type] for each in timers]
    return sorted(found, key=encode)


def _same(one: Any, other: Any) -> bool:
    """Whether two JSON values are the same, also in type."""
    return encode(one) == encode(other)


def _at(snapshot: Snapshot, version: int) -> Snapshot:
    return snapshot if snapshot.version == version else replace(snapshot, version=version)


def _moved_context(comparer: StepComparer, context: Mapping[str, Any], patch: Any) -> dict[str, Any]:
    """Return a context of the fold after a recorded move. Fields that the corrected definition declares stay."""
    changed = patch if isinstance(patch, dict) else {}
    declared = comparer.carrier.new_fields
    gone = {each for each in changed.get("unset", ()) if each not in declared}
    names = comparer.field_names
    made = {names.get(name, name): value for name, value in changed.get("set", {}).items()}
    return {name: value for name, value in context.items() if name not in gone} | made


def _reasons_of(entry: Entry, differences: tuple[Difference, ...]) -> Iterator[str]:
    """Why an entry with these differences forbids the correction of its entity."""
    for each in differences:
        if each.part in ("outcome", "reason"):
            yield f"`{entry.event.name}` would have another outcome"
        elif each.part.startswith("effects."):
            kind = each.part.removeprefix("effects.")
            if kind.partition(" ")[0] not in _NOT_PERFORMED:
                yield f"an effect that was performed would be different: {kind}"


# The report


class RefoldSample(Struct, frozen=True):
    """An entity that differs: its version, where the fold first differed, and each difference as text."""

    entity: str
    version: int
    first_version: int | None
    differences: tuple[str, ...]


class RefoldGroup(Struct):
    """Entities with the same states, the same parts that differ, the same reasons and the same first differing event.

    Without `reasons` they can be corrected, or were.
    """

    state: tuple[str, ...]
    parts: tuple[str, ...]
    reasons: tuple[str, ...]
    event: str | None
    count: int
    samples: list[RefoldSample]


class RefoldGap(Struct):
    """Entities that could not be folded: a code, why, how many, and the first one."""

    code: str
    text: str
    count: int
    entity: str


class RefoldReport(Struct, frozen=True, kw_only=True):
    """The result: entities that are the same, that can be corrected by their context alone, that were corrected, and
    that need a person; the groups, and what could not be folded. `entries` were folded, `other` are entities in no
    group.
    """

    kind: str
    revision: str
    entities: int
    entries: int
    same: int
    correctable: int
    corrected: int
    blocked: int
    groups: tuple[RefoldGroup, ...]
    other: int
    gaps: tuple[RefoldGap, ...]

    @property
    def is_complete(self) -> bool:
        """Whether every entity was folded."""
        return not self.gaps


class RefoldTally:
    """Collects the answers of the entities of one kind. Memory is bounded as that of a shadow comparison is."""

    def __init__(self, kind: str, revision: str) -> None:
        self.kind, self.revision = kind, revision
        self.entities = self.entries = self.same = self.correctable = self.corrected = self.blocked = self.other = 0
        self._groups: dict[tuple[Any, ...], RefoldGroup] = {}
        self._gaps: dict[tuple[str, str], RefoldGap] = {}

    def add(self, answer: RefoldAnswer, *, entries: int, is_corrected: bool = False) -> None:
        """Count an entity that was folded."""
        self.entities += 1
        self.entries += entries
        if answer.is_same:
            self.same += 1
            return
        if answer.reasons:
            self.blocked += 1
        elif is_corrected:
            self.corrected += 1
        else:
            self.correctable += 1
        parts = tuple(each.part for each in answer.differences)
        if len(parts) > GROUP_PARTS_MAX:
            parts = (*parts[:GROUP_PARTS_MAX], "…")
        snapshot, first = answer.snapshot, answer.first
        key = (snapshot.configuration, parts, answer.reasons, None if first is None else first.event)
        group = self._groups.get(key)
        if group is None:
            if len(self._groups) >= SHADOW_GROUPS_MAX:
                self.other += 1
                return
            group = self._groups[key] = RefoldGroup(*key, 0, [])
        group.count += 1
        if len(group.samples) < SHADOW_SAMPLES_MAX:
            texts = tuple(difference_text(each) for each in answer.differences[: len(parts)])
            at = None if first is None else first.version
            group.samples.append(RefoldSample(snapshot.entity, snapshot.version, at, texts))

    def add_gap(self, code: str, text: str, entity: str) -> None:
        """Count an entity that could not be folded."""
        key = (code, text) if len(self._gaps) < SHADOW_GROUPS_MAX or (code, text) in self._gaps else ("other", "")
        self._gaps.setdefault(key, RefoldGap(key[0], text, 0, entity)).count += 1

    def report(self) -> RefoldReport:
        """Return the result so far: groups that need a person first, then by size."""
        groups = sorted(self._groups.values(), key=lambda each: (not each.reasons, -each.count))
        return RefoldReport(
            kind=self.kind,
            revision=self.revision,
            entities=self.entities,
            entries=self.entries,
            same=self.same,
            correctable=self.correctable,
            corrected=self.corrected,
            blocked=self.blocked,
            groups=tuple(groups),
            other=self.other,
            gaps=tuple(self._gaps.values()),
        )
