"""Follow one step through its microsteps, and write the source of each branch that it can take.

Rule 1: the order is that of `receive`, `select` and `microsteps`: select, exit, act, enter, then eventless transitions,
        then internal events, then invokes.
Rule 2: where a guard or a recorded history decides, the source branches. Every branch ends with a `return`, so the
        source after it is the branch in which the guard is false.
Rule 3: `return None` leaves the step to the general path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from interlock.kernel.codegen import ACTION_WORK, ActionCompiler
from interlock.kernel.compiled.branch import (
    Branch,
    Cause,
    NeverTaken,
    NotCompiled,
    Variant,
    invokeid_of,
    known_invokes,
    known_timers,
)
from interlock.kernel.compiled.part_writer import PartWriter
from interlock.kernel.plan import Configuration, Plan, Planner
from interlock.kernel.select import EVENTLESS, Group, Selector
from interlock.model.charts.chart import Chart, State, Transition

MICROSTEPS_MAX = 24
"""Microsteps and internal events that are written one after the other. Longer chains run on the general path."""

KNOWN_MAX = 64
"""Timers, and invokes, of the active states. With those that one step can add they are far below the limits."""

BRANCHES_MAX = 32
"""Ends of one compiled step: each branch has its own statements."""


class HistoryReads(Mapping[int, tuple[int, ...]]):
    """What histories have recorded, and which of them a plan has read."""

    def __init__(self, recorded: Mapping[int, tuple[int, ...]]) -> None:
        self.recorded = recorded
        self.read: set[int] = set()

    def __getitem__(self, history: int) -> tuple[int, ...]:
        self.read.add(history)
        return self.recorded[history]

    def __iter__(self) -> Iterator[int]:
        return iter(self.recorded)

    def __len__(self) -> int:
        return len(self.recorded)


class StepWriter:
    """Writes the body of one function: an event in a configuration, run to completion."""

    def __init__(
        self,
        chart: Chart,
        planner: Planner,
        selector: Selector,
        actions: ActionCompiler,
        *,
        configuration: Configuration,
        name: str,
        cause: Cause,
        variant: Variant,
        from_timer: bool,
        namespace: dict[str, Any],
    ) -> None:
        self.chart = chart
        self.planner = planner
        self.selector = selector
        self.restricted = any(each.roles is not None for each in chart.transitions)
        self.first = configuration
        self.name = name
        self.cause = cause
        self.from_timer = from_timer
        """Whether the event may come from the timer of a `send`."""
        self.timers = known_timers(chart, configuration)
        self.invokes = known_invokes(configuration)
        if max(len(self.timers), len(self.invokes)) > KNOWN_MAX:
            raise NotCompiled(f"the active states have more than {KNOWN_MAX} timers or invokes")
        branch = Branch(configuration, self.timers.copy(), self.invokes.copy())
        self.out = PartWriter(actions, variant, name, branch, namespace)
        self.out.reads_timers = cause == "timer"
        self.out.reads_invokes = bool(configuration.invoking)
        self.out.reads_snapshot = self.out.reads_timers or self.out.reads_invokes
        self.ends = 0
        self.returns = 0

    def write(self) -> None:
        """Write the body: the selection for the event, and everything that follows from it."""
        event_class = self.selector.event_class(self.name)
        # Transitions for events of the driver match reserved names only.
        assert self.cause != "sender" or self.selector.driven.isdisjoint(self.selector.members[event_class])
        self._remove_cause()
        self._forward()
        self._select(event_class, self._event_not_taken)
        if not self.returns and self.out.variant != "plain":
            raise NeverTaken("no transition takes the event")

    def _remove_cause(self) -> None:
        branch = self.out.branch
        if self.cause == "timer":
            branch.timers.remove(next(each for each in branch.timers if each.name == self.name))
            branch.changes_timers = True
        elif self.cause == "invoke":
            branch.invokes.remove(next(each for each in branch.invokes if each.name == invokeid_of(self.name)))
            branch.changes_invokes = True

    def _forward(self) -> None:
        """Write the effects that forward the event to child entities (S9)."""
        forwarding = {state.id: [each.autoforward for each in state.invokes] for state in self.first.invoking}
        if not any(any(each) for each in forwarding.values()):
            return
        out = self.out
        out.need({"event"})
        out.reads_invokes = out.reads_snapshot = out.makes_effects = True
        receivers = [each for each in out.branch.invokes if forwarding[each.state][each.position]]
        out.branch.handled = bool(receivers)
        if out.straight:
            for each in receivers:
                out.charge(ACTION_WORK)
                out.effect("forward", f"{{'id': {each.source}.id, 'event': forwarded_event(event)}}", 1)
        else:
            given = f"invokes, effects, base, event, {out.constant(forwarding)}"
            out.add(f"if forward({given}) is not {bool(receivers)}: return None")
            out.branch.references += len(receivers)

    def _event_not_taken(self) -> None:
        if self.name.startswith("error."):
            self.out.add("return None")  # it becomes a fault, or ends the entity
        else:
            self._settle(eventless=True)

    def _select(self, event_class: int, otherwise: Callable[[], None]) -> None:
        """Write the choice of transitions for an event class (`select.Selector`)."""
        self.out.branch.is_eventless = event_class == EVENTLESS
        candidates = self.selector.candidates(self.out.branch.configuration, event_class)
        self.out.charge(candidates.work)
        if candidates.enabled:
            self._take(candidates.enabled)
        elif candidates.enabled is not None:
            otherwise()
        else:
            inner_first = self.chart.dialect.select == "inner_first" and event_class != EVENTLESS
            if inner_first and len(candidates.by_state) > 1:
                raise NotCompiled("guards decide between parallel regions of an XState chart")
            if len(candidates.by_state) > BRANCHES_MAX:
                raise NotCompiled(f"guards decide in more than {BRANCHES_MAX} parallel regions")
            self.out.branch.active = self.out.branch.configuration.ids
            self._decide(candidates.by_state, {}, (), otherwise)

    def _decide(
        self,
        by_state: tuple[tuple[Group, ...], ...],
        tried: dict[int, int | None],
        found: tuple[int, ...],
        otherwise: Callable[[], None],
    ) -> None:
        """Write the guards for the atomic states that are left. Each branch continues with the next atomic state."""
        if not by_state:
            if found:
                self._take(found)
            else:
                otherwise()
            return
        tried = tried.copy()
        for state, numbers in by_state[0]:
            if state not in tried:
                tried[state] = None
                for number in numbers:
                    condition = self._condition(self.chart.transitions[number])
                    if condition == "True":
                        tried[state] = number
                        break
                    if condition == "False":
                        continue
                    with self.out.branching(f"if {condition}:"):
                        chosen = {**tried, state: number}
                        more = found if number in found else (*found, number)
                        self._decide(by_state[1:], chosen, more, otherwise)
            first = tried[state]
            if first is not None:
                found = found if first in found else (*found, first)
                break
        self._decide(by_state[1:], tried, found, otherwise)

    def _condition(self, transition: Transition) -> str:
        """Return the source of the roles and the guard of a transition; `True` or `False` if that is certain."""
        conditions = []
        if transition.roles_in:
            raise NotCompiled("a transition may need the roles of a hidden state")
        if transition.roles is not None:
            if self.out.branch.is_eventless:
                conditions.append(repr("system" in transition.roles))
            else:
                self.out.need({"event"})
                conditions.append(f"is_permitted({transition.roles!r}, event)")
        if transition.guard is not None:
            conditions.append(self.out.guard(transition.guard))
        self.out.charge(0)
        if "False" in conditions:
            return "False"  # roles and `In()` do not fail
        return " and ".join(each for each in conditions if each != "True") or "True"

    def _take(
        self, enabled: tuple[int, ...], assumed: Mapping[int, tuple[str, ...] | None] = MappingProxyType({})
    ) -> None:
        """Write one microstep, and what follows it. Where a history decides, each possible value is a branch."""
        out = self.out
        known = {**assumed, **{self.planner.by_id[name]: states for name, states in out.branch.records.items()}}
        reads = HistoryReads(
            {
                history: tuple(self.planner.by_id[each] for each in states)
                for history, states in known.items()
                if states is not None
            }
        )
        plan = self.planner.build(out.branch.configuration, enabled, reads)
        unknown = min(reads.read - set(known), default=None)
        if unknown is None:
            self._apply(plan)
            return
        history = self.chart.states[unknown]
        out.reads_snapshot = True
        recorded = out.local("recorded")
        out.add(f"{recorded} = None if snapshot.history is None else snapshot.history.get({history.id!r})")
        for states in self._recordable(history):
            test = "is None" if states is None else f"== {states!r}"
            with out.branching(f"if {recorded} {test}:"):
                self._take(enabled, {**assumed, unknown: states})
        out.add("return None")

    def _recordable(self, history: State) -> list[tuple[str, ...] | None]:
        """Return what a history may have recorded, and None: it recorded nothing yet."""
        chart, parent = self.chart, self.chart.states[history.parent]
        inside = chart.states[parent.index + 1 : parent.last + 1]
        if parent.type != "compound" or any(each.type == "parallel" for each in inside if history.history == "deep"):
            raise NotCompiled("it enters a history of parallel regions")
        if history.history == "deep":
            return [None, *((each.id,) for each in inside if each.type in ("atomic", "final"))]
        return [None, *((chart.states[each].id,) for each in chart.regions(parent.index))]

    def _apply(self, plan: Plan) -> None:
        branch = self.out.branch
        self._count_microstep()
        self.out.charge(plan.work)
        branch.chosen += plan.chosen
        branch.records.update(plan.records)
        branch.handled |= plan.content
        before, writes = branch.configuration.names, branch.writes
        for part in plan.parts:
            self.out.part(part)
        branch.configuration = plan.next
        if plan.ended:
            self._end()
        elif branch.is_eventless and self.chart.dialect.eventless == "until_unchanged":
            self._settle(eventless=before != plan.next.names or writes != branch.writes or bool(plan.records))
        else:
            self._settle(eventless=True)

    def _count_microstep(self) -> None:
        self.out.branch.microsteps += 1
        if self.out.branch.microsteps > MICROSTEPS_MAX:
            raise NotCompiled(f"more than {MICROSTEPS_MAX} microsteps and internal events in one step")

    def _settle(self, *, eventless: bool) -> None:
        """Write what follows a microstep: eventless transitions, then internal events, then the end of the step."""
        branch = self.out.branch
        if eventless and not branch.configuration.has_no_eventless:
            self._select(EVENTLESS, self._next_internal)
        else:
            self._next_internal()

    def _next_internal(self) -> None:
        branch = self.out.branch
        if not branch.queue:
            self._finish()
            return
        self._count_microstep()
        event = branch.event = branch.queue.pop(0)
        branch.event_is_made = False
        selector = self.selector
        event_class = selector.event_class(event.name)
        if event.type == "internal":
            event_class = selector.class_of(selector.members[event_class] - selector.driven)
        self._select(event_class, lambda: self._settle(eventless=True))

    def _finish(self) -> None:
        """Write the end of a step that is stable: it starts invokes and returns."""
        branch = self.out.branch
        self.ends += 1
        if self.ends > BRANCHES_MAX:
            raise NotCompiled(f"guards decide between more than {BRANCHES_MAX} branches")
        branch.active = branch.configuration.ids
        for _, state in sorted(branch.to_invoke.items()):
            for position in range(len(state.invokes)):
                self.out.start_invoke(state, position)
        pending = self.cause != "sender"
        if not branch.handled and self.from_timer:
            self.out.add("return None")  # it depends on whether a timer fired
        elif not branch.chosen and not branch.handled:
            self._finish_unhandled(pending=pending)
        elif branch.handled:
            self._return("'applied', None", branch.chosen)
        elif pending:
            self._return("'ignored', 'no_content'", branch.chosen)
        elif self.out.variant == "plain":
            self.out.add("return None")
        else:
            self.returns += 1
            self.out.add(f"return Step(snapshot, (), 'ignored', 'no_content', {branch.chosen!r})")

    def _finish_unhandled(self, *, pending: bool) -> None:
        if pending:
            self._return("'ignored', 'no_transition'", (), effects="()")
        elif self.chart.unhandled == "ignore" and not self.restricted and self.out.variant != "plain":
            self.returns += 1
            self.out.add("return Step(snapshot, (), 'ignored', 'no_transition')")
        elif self.chart.unhandled == "reject" and self._is_unknown() and self.out.variant != "plain":
            self.returns += 1
            self.out.add("return Step(snapshot, (), 'rejected', 'no_transition')")
        else:
            self.out.add("return None")

    def _is_unknown(self) -> bool:
        """Return whether no transition of the configuration matches the event, so that no guard must be explained."""
        candidates = self.selector.candidates(self.first, self.selector.event_class(self.name))
        return not candidates.numbers() and self.first.has_no_eventless

    def _return(self, outcome: str, chosen: tuple[int, ...], *, effects: str | None = None) -> None:
        branch = self.out.branch
        self.returns += 1
        if effects is None:
            effects = self.out.notify_parent(branch.output) if branch.ended else self.out.effects()
        self.out.check_payloads()
        names = branch.configuration.names
        timers, invokes, ended = self.out.timers(), self.out.invokes(), "None, None"
        if branch.ended:
            top = self.chart.completion_root
            finals = (each for each in branch.configuration.atomic if self.chart.states[each].parent == top)
            names = tuple(self.chart.states[each].id for each in finals) or names
            timers, invokes, ended = "()", "()", f"'done', {branch.output}"
        if self.out.variant == "plain":
            self.out.add(f"return {self.out.constant(branch.configuration)}, context, {effects}, {chosen!r}")
            return
        history = "snapshot.history"
        if branch.records:
            self.out.reads_snapshot = True
            history = f"{{**({history} or {{}}), **{branch.records!r}}}"
        others = f"{history}, {timers}, {invokes}, (), snapshot.entered, {ended}, snapshot.parent, snapshot.moved"
        snapshot = f"Snapshot(kind, id, version, revision, {self._names(names)}, context, {others})"
        transitions = f", {chosen!r}" if chosen else ""
        self.out.add(f"return Step({snapshot}, {effects}, {outcome}{transitions})")

    def _names(self, names: tuple[str, ...]) -> str:
        """Return the name of the constant for the names of a configuration: the object that is in the tables."""
        constant = "to_" + "_".join(str(self.planner.by_id[name]) for name in names)
        self.out.namespace[constant] = names
        return constant

    def _end(self) -> None:
        """Write the end of the entity (`Microsteps.end`): all states are exited, timers dropped."""
        branch = self.out.branch
        self.out.reads_snapshot = True
        branch.queue.clear()
        branch.to_invoke.clear()
        for state, parts in self.planner.ending(branch.configuration):
            for part in parts:
                self.out.part(part)
            if state.type == "final" and state.parent == self.chart.completion_root:
                branch.active = frozenset(self.chart.states[each].id for each in self.chart.path(state.parent))
                branch.output = self.out.output(state)
        branch.queue.clear()  # internal events are dropped at the end
        self.out.drop_timers()
        branch.ended = True
        self._finish()
