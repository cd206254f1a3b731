"""Carry an entity from one revision to another without losing an obligation, or say why that is not possible.

Rule 1: an obligation is a pending timer or delayed send, a running invoke, a completed saga step, a deferred event and
        what a history remembers. Each has its counterpart afterwards, or the change ends it on purpose and it is
        listed (`dropped`).
Rule 2: nothing that the new definition does on entry of an active state is skipped.
Rule 3: whether later events are answered as before is not checked here; `diff` reports that to a reviewer.
Rule 4: all reasons are given together. An entity that ended is never carried: its compensations follow its revision.
Rule 5: the result is a step like any other, and a patch that makes it again without any chart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Any

from msgspec.structs import replace

from interlock.errors import UsageError
from interlock.evolve.changes import Change
from interlock.evolve.diff import ChartDiff, diff_documents, named_states
from interlock.evolve.identity import collapse_space
from interlock.evolve.move import as_moved
from interlock.evolve.patch import make_patch
from interlock.evolve.transitions import TimerPairs, pair_timers
from interlock.kernel.run import StepRun
from interlock.kernel.settle import settle
from interlock.kernel.step import Kernel
from interlock.model.charts.chart import After, Chart, Invoke, State
from interlock.model.charts.personal_plan import unsealed_fields
from interlock.model.document.actions import Expression
from interlock.model.document.document import Document
from interlock.model.document.field import UNSET, Field, complete_payload, copy_json, field_problem
from interlock.model.document.walk import value_expressions
from interlock.model.encoding.codec import encode
from interlock.model.event import Event
from interlock.model.journal.entry import MOVED
from interlock.model.limits import ENTRY_BYTES_MAX
from interlock.model.personal_token import contains_token
from interlock.model.snapshot import Snapshot, Timer
from interlock.model.step import Step

NEVER = frozenset(
    {
        "chart.dialect",
        "chart.personal",
        "field.declassified",
        "field.personal",
        "invoke.declassified",
        "invoke.personal",
        "monotonic.order",
        "payload.declassified",
        "payload.personal",
        "state.rename_conflict",
    }
)
_NOT_ACTIVE = frozenset(
    {
        "invoke.added",
        "region.added",
        "region.removed",
        "saga.added",
        "state.entry",
        "state.final",
        "state.flattened",
        "state.kind",
        "state.moved",
        "state.parallel",
        "state.removed",
        "timer.ambiguous",
    }
)
"""Changes that stop an entity in which one of their states is active."""

SAGA_CHANGES = frozenset(
    {
        "saga.call",
        "saga.compensation_removed",
        "saga.mode",
        "saga.removed",
        "saga.step_inserted",
        "saga.step_removed",
        "saga.steps_reordered",
    }
)
"""Changes that stop an entity inside the saga, or with a completed step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CarryResult:
    """The result for an entity: its step and patch, and what the change ended; or the reasons why it stays.

    `overdue` timers would have fired before the move: they are due now, or within the spread.
    """

    step: Step | None = None
    patch: dict[str, Any] | None = None
    dropped: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    overdue: int = 0


@dataclass(slots=True)
class Draft:
    """One entity on its way: the snapshot under new names, what is dropped, and why it cannot go."""

    before: Snapshot
    time_ms: int
    entered_ms: Mapping[str, int]
    active: frozenset[str]
    after: Snapshot
    epoch: int = 0
    spread_ms: int = 0
    overdue: int = 0
    values: dict[str, Any] = field(default_factory=dict)
    dropped_events: frozenset[str] = frozenset()
    dropped: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)

    def set_timer(self, run: StepRun, after: After, state: str, *, due_ms: int, since_ms: int | None) -> None:
        """Set the timer of an `after` that counts from earlier. One whose time has passed is due now, or within the
        spread: later by a part of it that depends on the entity's id only.
        """
        if due_ms <= run.time_ms:
            self.overdue += 1
            due_ms = run.time_ms + (_share(self.before.entity, self.spread_ms) if self.spread_ms else 0)
        run.set_timer(after.event, after.event, None, due_ms - run.time_ms, None, restore=after.restore, state=state)
        run.timers = (*run.timers[:-1], replace(run.timers[-1], since_ms=since_ms))


class Carrier:
    """Carries entities of one definition to another; made once for a pair. `kernel` is that of the new one.

    `old_names` are the names under which entities of the old revision are stored; `written` is the one that a carried
    entity gets. Both default to the revisions of the charts. `between` are the definitions between
    the two, oldest first.

    Raises UsageError if it is not, and as `diff_documents` does.
    """

    def __init__(
        self,
        before: Document,
        after: Document,
        kernel: Kernel,
        *,
        old_names: Iterable[str] | None = None,
        written: str | None = None,
        between: Iterable[Document] = (),
    ) -> None:
        self.diff: ChartDiff = diff_documents(before, after, between)
        if not self.diff.new.is_revision(kernel.chart.revision):
            message = f"expected the kernel of revision {self.diff.new.revision}, got {kernel.chart.revision}"
            raise UsageError(message, code="carry.kernel", hint="pass the kernel of the new definition")
        self.kernel = kernel
        self.old, self.new = self.diff.before_chart, kernel.chart
        self.old_states, self.new_states = _by_id(self.old), _by_id(self.new)
        self.names = self._names(self.diff.names)
        self.old_fields, self.new_fields = _fields(self.old), _fields(self.new)
        self._computed = {name for name, each in self.new_fields.items() if any(value_expressions(each.default))}
        self.events = None if self.new.events is None else {each.name: each for each in self.new.events}
        self.old_written = named_states(before, self.diff.names)
        self.new_written = named_states(after, {})
        self.timers = self._pairs()
        self.old_names = frozenset(old_names or {self.old.revision})
        self.written = written or self.new.revision

    def _names(self, written: Mapping[str, str]) -> dict[str, str]:
        """Old id to new id, also of the states that the compiler made inside a renamed one."""
        found = dict(written)
        for name, state in self.old_states.items():
            parent = self.old.states[state.parent].id
            if name not in found and parent in found and name.startswith(f"{parent}."):
                found[name] = found[parent] + name[len(parent) :]
        return found

    def _pairs(self) -> dict[str, TimerPairs]:
        """How the timers of each state of both definitions belong together, by its old id."""
        old, new = self.old_written, self.new_written
        former = {now: was for was, now in self.diff.names.items()}
        return {former.get(name, name): pair_timers(old[name], new[name]) for name in old if name in new}

    def states_with_new_timers(self, snapshot: Snapshot) -> tuple[str, ...]:
        """Return the active states that get a timer by the change; `entered_ms` of `carry` is used for these only."""
        known = (each for each in snapshot.configuration if each in self.old_states)
        active = {self.old.states[index].id for name in known for index in self._around(name)}
        return tuple(sorted(name for name in active if name in self.timers and self.timers[name].added))

    def carry(
        self,
        snapshot: Snapshot,
        *,
        time_ms: int,
        entered_ms: Mapping[str, int] | None = None,
        epoch: int = 0,
        spread_ms: int = 0,
    ) -> CarryResult:
        """Return the entity on the new definition, or why it stays.

        `entered_ms` says when active states were entered, by old id; a timer that is new counts from then, and from now
        for a state that is not in it. `epoch` is the restore epoch of the store. Timers that would be due now are due
        within `spread_ms`.
        """
        draft = self.draft(snapshot, time_ms, entered_ms or {}, epoch, spread_ms)
        if isinstance(draft, CarryResult):
            return draft
        draft.reasons += self._refused_changes(draft)
        self._map_configuration(draft)
        if not draft.reasons:
            self._map_history(draft)
            self._map_invokes(draft)
            self.map_context(draft)
            self.check_pending(draft)
            self.check_completion(draft)
        if draft.reasons:
            return CarryResult(reasons=tuple(dict.fromkeys(draft.reasons)))
        return self.settled(draft, partial(self._map_timers, draft))

    def draft(
        self, snapshot: Snapshot, time_ms: int, entered_ms: Mapping[str, int], epoch: int, spread_ms: int
    ) -> Draft | CarryResult:
        """Return the start of a move, or why this entity cannot move at all."""
        if snapshot.ended is not None:
            return CarryResult(reasons=(f"the entity has ended ({snapshot.ended})",))
        unknown = [name for name in snapshot.configuration if name not in self.old_states]
        if unknown:
            return CarryResult(reasons=(f"the old definition has no state {', '.join(unknown)}",))
        active = {self.old.states[index].id for name in snapshot.configuration for index in self._around(name)}
        return Draft(snapshot, time_ms, entered_ms, frozenset(active), snapshot, epoch, spread_ms)

    def _around(self, name: str) -> list[int]:
        return self.old.path(self.old_states[name].index)

    def renamed(self, name: str) -> str:
        """Return the id of an old state in the new definition, whether that has it or not."""
        return self.names.get(name, name)

    # Changes that stop an entity

    def _refused_changes(self, draft: Draft) -> Iterator[str]:
        for change in self.diff.changes:
            if change.code in NEVER:
                yield _reason(change)
            elif change.code in _NOT_ACTIVE:
                if not draft.active.isdisjoint(change.states) or self._remembers(draft.before, change):
                    yield _reason(change)
            elif change.code in SAGA_CHANGES and self._has_saga(draft, change):
                yield _reason(change)

    def _remembers(self, snapshot: Snapshot, change: Change) -> bool:
        """Whether a history remembers a state that was removed or replaced."""
        if change.code not in ("state.removed", "state.moved", "state.kind", "region.removed"):
            return False
        return any(name in change.states for names in (snapshot.history or {}).values() for name in names)

    def _has_saga(self, draft: Draft, change: Change) -> bool:
        for name in change.states:
            unwind = self.old_states[name].saga_unwind
            if name in draft.active:
                return True
            record = draft.before.context.get(unwind.field) if unwind is not None else None
            if isinstance(record, dict) and record.get("done"):
                return True
        return False

    # States

    def _map_configuration(self, draft: Draft) -> None:
        names: list[str] = []
        for name in map(self.renamed, draft.before.configuration):
            if name in self.new_states:
                names += self._descend(self.new_states[name], draft)
            else:
                draft.reasons.append(f"the new definition has no state `{name}`")
        order = {name: state.index for name, state in self.new_states.items()}
        mapped = tuple(sorted(names, key=lambda each: order[each]))
        if not draft.reasons and self.kernel.planner.configuration(mapped) is None:
            draft.reasons.append(f"the states {', '.join(mapped)} cannot be active together")
        draft.after = replace(
            draft.after, configuration=mapped, entered=self.entered(draft.before), revision=self.new.revision
        )

    def entered(self, before: Snapshot) -> tuple[str, ...]:
        """Return the states whose fields have their first value, which matters to late binding only.

        Under early binding all of them have, and must not get it again at their next entry.
        """
        if self.new.binding == "early":
            return ()
        late = self.old.binding == "late"
        names = before.entered if late else tuple(name for name, state in self.old_states.items() if state.context)
        return tuple(name for name in map(self.renamed, names) if name in self.new_states)

    def _descend(self, state: State, draft: Draft) -> Iterator[str]:
        """The states in which an entity is that was in a state; one that has child states now enters the initial one.

        That is possible without running anything if nothing on the way has content.
        """
        if state.type != "compound":
            yield state.id
            return
        if state.initial_block:
            draft.reasons.append(f"`{state.id}` has actions on its way to the initial state")
        for child in (self.new.states[index] for index in state.initial):
            if child.entry or child.after or child.invokes or child.context or child.type in ("parallel", "final"):
                draft.reasons.append(f"`{child.id}`, the initial state of `{state.id}`, does something on entry")
            yield from self._descend(child, draft)

    def _map_history(self, draft: Draft) -> None:
        remembered: dict[str, tuple[str, ...]] = {}
        for name, states in (draft.before.history or {}).items():
            old, new = self.old_states.get(name), self.new_states.get(self.renamed(name))
            mapped = tuple(map(self.renamed, states))
            if old is None or new is None or old.history != new.history:
                draft.dropped.append(f"what `{name}` remembers")
            elif any(each not in self.new_states for each in mapped):
                draft.reasons.append(f"`{name}` remembers a state that no longer exists")
            else:
                remembered[new.id] = mapped
        draft.after = replace(draft.after, history=remembered or None)

    # Invokes

    def _map_invokes(self, draft: Draft) -> None:
        found = []
        for each in draft.before.invokes:
            state = self.new_states.get(self.renamed(each.state))
            old = self.old_states[each.state]
            position = None if state is None else self.equal_invoke(old, each.position, state, id_=each.id)
            if state is None or position is None:
                draft.reasons.append(f"the invoke `{each.id}` is running, and the new definition has no equal one")
                continue
            found.append(replace(each, state=state.id, position=position))
            for result in ("done", "error"):
                event = f"{result}.invoke.{each.id}"
                if self.loses_taker(draft, event):
                    draft.reasons.append(f"no transition takes `{event}` any more, and the invoke is running")
        draft.after = replace(draft.after, invokes=tuple(found))

    def equal_invoke(self, before: State, position: int, after: State, *, id_: str | None = None) -> int | None:
        """Return where a new state has an invoke of an old one: same id, type and source; None if it does not.

        `id_` is the id of the running invoke, which an unnamed one got when it started.
        """
        old = before.invokes[position]
        for index, new in enumerate(after.invokes):
            is_named = new.id == (old.id or id_) if new.id is not None else old.id is None and index == position
            if is_named and new.type == old.type and self._same_source(old, new):
                return index
        return None

    def _same_source(self, old: Invoke, new: Invoke) -> bool:
        inline = dict(self.old.inline).get(str(old.src)), dict(self.new.inline).get(str(new.src))
        if inline[0] is not None and inline[1] is not None:
            return inline[0].kind == inline[1].kind
        return old.src == new.src

    def loses_taker(self, draft: Draft, event: str) -> bool:
        """Whether an active state took an event before, and none does now."""
        old = _takes(self.old, draft.before.configuration, event)
        return old and not _takes(self.new, draft.after.configuration, event)

    # Data

    def map_context(self, draft: Draft) -> None:
        """Give every field of the new definition its value: of the mapping, the old one, or the first one."""
        former = self.saga_fields()
        context: dict[str, Any] = {}
        for name, new in self.new_fields.items():
            source = former.get(name, name)
            if name in draft.values:
                context[name] = draft.values[name]
                problem = field_problem(context[name], new)
                if problem is not None:
                    draft.reasons.append(f"the value of the mapping is invalid: {problem}")
            elif source in draft.before.context:
                context[name] = draft.before.context[source]
                problem = field_problem(context[name], new)
                if problem is not None:
                    draft.reasons.append(f"the value of a field is invalid now: {problem}")
            elif self._is_bound(name, draft):
                context[name] = self._first_value(new, draft, context)
        # A name that no chart declares belongs to no state, such as the variable of a `foreach`: it stays as it is.
        declared = {*self.old_fields, *former.values()}
        context |= {
            name: value for name, value in draft.before.context.items() if name not in declared and name not in context
        }
        gone = [name for name in draft.before.context if name not in context and name not in former.values()]
        draft.dropped += [f"the field `{name}`" for name in gone]
        draft.reasons += self._unsealed_values(draft.values)
        draft.after = replace(draft.after, context=context)

    def _unsealed_values(self, values: Mapping[str, Any]) -> Iterator[str]:
        """Yield why values of a mapping cannot be taken: plain ones for personal fields, and sealed ones for others."""
        personal = self.kernel.personal
        plan = {} if personal is None else personal.context
        for path in unsealed_fields(dict(values), plan):
            yield f"the value of the mapping for the personal field `{path}` is not sealed"
        for name, value in values.items():
            if name not in plan and contains_token(value):
                yield f"the value of the mapping for `{name}` is personal, and the field is not"

    def saga_fields(self) -> dict[str, str]:
        """Return the field of each saga's record: its new name and its old one."""
        found = {}
        for name, state in self.old_states.items():
            new = self.new_states.get(self.renamed(name))
            if state.saga_unwind is not None and new is not None and new.saga_unwind is not None:
                found[new.saga_unwind.field] = state.saga_unwind.field
        return found

    def _is_bound(self, name: str, draft: Draft) -> bool:
        """Whether the entity must get a field that it does not have.

        With late binding, one of a state only after its first entry. A field that the old definition has too is missing
        because it has not been bound, or because its default failed: the new one changes neither.
        """
        if name in self.old_fields and self.old.binding == self.new.binding:
            return False
        owner = next(state for state in self.new.states if any(each.name == name for each in state.context))
        return owner.index == 0 or self.new.binding == "early" or owner.id in draft.after.entered

    def _first_value(self, new: Field, draft: Draft, context: dict[str, Any]) -> Any:
        if new.required and new.default is UNSET:
            draft.reasons.append(f"the field `{new.name}` has no value, and no default")
            return None
        if new.default is UNSET:
            return None
        value = new.default
        if new.name in self._computed:
            value = self.kernel.evaluate(value, replace(draft.after, context=context), self.event(draft))
        problem = field_problem(value, new)
        if problem is not None:
            draft.reasons.append(f"the default of a new field is invalid: {problem}")
        return copy_json(value)

    def event(self, draft: Draft) -> Event:
        """Return the event that expressions see during the move."""
        return Event(MOVED, None, time_ms=draft.time_ms, type="platform", epoch=draft.epoch)

    # Pending events

    def check_pending(self, draft: Draft) -> None:
        """Note deferred and delayed events that the new definition would refuse."""
        deferred, timers = draft.after.deferred, draft.after.timers
        if deferred and self.new.unhandled != "defer":
            draft.reasons.append("events are deferred, and the new definition does not defer")
        for event in deferred:
            problem = self._refusal(event.name, event.data, is_own=False)
            if problem is not None:
                draft.reasons.append(f"the deferred event `{event.name}` {problem}")
        for timer in timers:
            if timer.state is None and timer.to is None and timer.event not in draft.dropped_events:
                problem = self._refusal(timer.event, timer.data, is_own=True)
                if problem is None and self.loses_taker(draft, timer.event):
                    problem = "has no taker any more"
                if problem is not None:
                    draft.reasons.append(f"the delayed event `{timer.event}` {problem}")

    def check_completion(self, draft: Draft) -> None:
        """A state that is done and had no `onDone` waits for something else; a new one would never be asked."""
        for state in (self.old_states[name] for name in draft.before.configuration):
            if state.type != "final":
                continue
            parent = self.old.states[state.parent]
            above = self.old.states[parent.parent] if parent.index else parent
            for each in (parent, above) if above.type == "parallel" else (parent,):
                new = f"done.state.{self.renamed(each.id)}"
                had = _takes(self.old, draft.before.configuration, f"done.state.{each.id}")
                if not had and _takes(self.new, draft.after.configuration, new):
                    draft.reasons.append(f"`{each.id}` is done already, and its new `onDone` would not run")

    def _refusal(self, name: str, data: Any, *, is_own: bool) -> str | None:
        """Why the new definition would refuse an event; None if it would not."""
        if self.events is None:
            return None
        known = self.events.get(name)
        if known is None or known.direction == "out" or (known.direction == "internal" and not is_own):
            return "is no longer declared"
        if known.payload is None:
            return None
        _, problem = complete_payload(data, known.payload)
        return None if problem is None else f"has a payload that is refused: {problem}"

    # The step

    def settled(self, draft: Draft, prepare: Callable[[StepRun], None]) -> CarryResult:
        """Return the result of a draft: the step that settles it. `prepare` moves its timers."""
        step = settle(self.kernel, draft.after, self.event(draft), prepare)
        if draft.reasons or step.outcome != "applied":
            failed = [f"settling failed: {each.message}" for each in step.faults] if not draft.reasons else []
            return CarryResult(reasons=tuple(dict.fromkeys((*draft.reasons, *failed))))
        step = as_moved(step, self.written)
        patch = make_patch(draft.before, step.snapshot)
        if len(encode(patch)) > ENTRY_BYTES_MAX:
            return CarryResult(reasons=(f"the change of the entity has more than {ENTRY_BYTES_MAX:,} bytes",))
        return CarryResult(step=step, patch=patch, dropped=tuple(draft.dropped), overdue=draft.overdue)

    def _map_timers(self, draft: Draft, run: StepRun) -> None:
        for timer in draft.before.timers:
            if timer.state is not None:
                self._map_timer(timer, timer.state, draft, run)
        for name in sorted(draft.active):
            new = self.new_states.get(self.renamed(name))
            if new is None or name not in self.timers:
                continue
            for label in self.timers[name].added:
                after = with_label(new, label)
                delay = self.delay(after, draft)
                if delay is None:
                    draft.reasons.append(f"the delay `{label}` of `{new.id}` cannot be computed")
                else:
                    since = draft.entered_ms.get(name, draft.time_ms)
                    draft.set_timer(run, after, new.id, due_ms=since + delay, since_ms=since)

    def _map_timer(self, timer: Timer, name: str, draft: Draft, run: StepRun) -> None:
        """Keep, move or cancel the timer of an `after`."""
        old = next((each for each in self.old_states[name].after if each.event == timer.event), None)
        state = self.new_states[self.renamed(name)]
        label = None if old is None else dict(self.timers[name].pairs).get(collapse_space(old.label))
        if old is None or label is None:
            run.drop_timers((timer,))
            draft.dropped.append(f"the timer `{timer.event}`")
            return
        new = with_label(state, label)
        if collapse_space(old.label) == label:
            if new.event != timer.event:  # its name contains the id of the state
                run.drop_timers((timer,))
                draft.set_timer(run, new, state.id, due_ms=timer.due_ms, since_ms=timer.since_ms)
            return
        delay = self.delay(new, draft)
        if isinstance(old.delay, Expression) or delay is None:
            draft.reasons.append(f"how the timer `{timer.event}` moves cannot be computed")
            return
        run.drop_timers((timer,))
        since = timer.due_ms - old.delay
        draft.set_timer(run, new, state.id, due_ms=since + delay, since_ms=since)

    def delay(self, after: After, draft: Draft) -> int | None:
        """Return the delay of a timer of the new definition in ms; None if it cannot be computed."""
        if isinstance(after.delay, Expression):
            value = self.kernel.evaluate(after.delay, draft.after, self.event(draft))
            return value if type(value) is int and value >= 0 else None
        return after.delay


def _share(entity: str, spread_ms: int) -> int:
    """A part of the spread, the same for every move of this entity."""
    return int.from_bytes(blake2b(entity.encode(), digest_size=8).digest()) % spread_ms


def with_label(state: State, label: str) -> After:
    """The timer of a state with this delay, as the normal form of the definition writes it."""
    return next(each for each in state.after if collapse_space(each.label) == label)


def _reason(change: Change) -> str:
    return f"{change.code} {change.subject}: {change.rule.reason}"


def _by_id(chart: Chart) -> dict[str, State]:
    """The states of a chart; the root has an empty id."""
    return {each.id: each for each in chart.states}


def _fields(chart: Chart) -> dict[str, Field]:
    return {each.name: each for state in chart.states for each in state.context}


def _takes(chart: Chart, configuration: Iterable[str], event: str) -> bool:
    """Whether a transition of an active state takes an event, whatever its guard says."""
    known = _by_id(chart)
    active = {index for name in configuration for index in chart.path(known[name].index)}
    return any(
        descriptor.matches(event)
        for transition in chart.transitions
        if transition.source in active
        for descriptor in transition.descriptors
    )
