"""Choose the transitions of one microstep.

Rule 1: selection does not change the run, except for the error event of a guard that failed (S33).
Rule 2: for each active atomic state, inner states win over outer ones and earlier transitions over later ones (S11).
Rule 3: a guard is evaluated at most once per selection, in that order, and only if needed (S12).
Rule 4: the time of a selection grows with the active states and their transitions, and is charged to the step.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from interlock.kernel.codegen import ActionCompiler, Operation
from interlock.kernel.plan import Configuration
from interlock.kernel.run import StepRun
from interlock.kernel.state_sets import StateSets
from interlock.model.charts.chart import Chart, Transition
from interlock.model.document.actions import Guard
from interlock.model.event import Event

Holds = Callable[[int], bool]
"""Whether the roles and the guard of a transition, given by number, allow it."""

EVENTLESS = -1
"""The event class of eventless transitions."""

NO_MATCH = 0
"""The event class of names that no descriptor matches."""

_NONE = -1


Group = tuple[int, tuple[int, ...]]
"""A state, and those of its transitions that match the event, in document order."""

FREE_WORK = 100
"""Units of work of one selection that are not charged: too little to matter, even over all microsteps of a step."""


class Candidates:
    """The transitions that an event of one class can enable in a configuration.

    `by_state` are the groups to try for each atomic state, inner states first. States share the groups of their
    ancestors. `enabled` is the result, if no guard or role has to be checked. `work` is charged to each selection.
    """

    __slots__ = ("by_state", "enabled", "work")

    def __init__(self, by_state: tuple[tuple[Group, ...], ...], work: int) -> None:
        self.by_state = by_state
        self.enabled: tuple[int, ...] | None = None
        self.work = work if work >= FREE_WORK else 0

    def numbers(self) -> list[int]:
        """Return every candidate once, in the order in which they are tried."""
        by_source = dict(group for groups in self.by_state for group in groups)
        return [number for numbers in by_source.values() for number in numbers]


class Selector:
    """Selects transitions of one chart."""

    def __init__(self, chart: Chart, state_sets: StateSets, actions: ActionCompiler) -> None:
        self.chart = chart
        self.transitions = chart.transitions
        self.state_sets = state_sets
        self.actions = actions
        self.classes: dict[frozenset[int], int] = {frozenset(): NO_MATCH}
        eventless = frozenset(each.index for each in chart.transitions if not each.descriptors)
        self.members: dict[int, frozenset[int]] = {NO_MATCH: frozenset(), EVENTLESS: eventless}
        self._numbers = count(NO_MATCH + 1)
        self.named: dict[str, int] = {}
        self.driven = frozenset(number for number, each in enumerate(chart.transitions) if each.driven)
        self._exact: dict[tuple[str, ...], list[int]] = {}
        self._prefixes: dict[tuple[str, ...], list[int]] = {}
        for number, transition in enumerate(chart.transitions):
            for each in transition.descriptors:
                (self._exact if each.exact else self._prefixes).setdefault(each.tokens, []).append(number)
        self._tokens_max = max(map(len, self._prefixes), default=-1)
        self._guards: dict[int, Operation] = {}
        texts = {each.text for transition in chart.transitions for each in transition.descriptors}
        for name in texts | self._known_names():
            self.named[name] = self._class_of(name)

    def _known_names(self) -> set[str]:
        names = {after.event for state in self.chart.states for after in state.after}
        return names | {each.name for each in self.chart.events or ()}

    # Event classes (P2): names that match the same transitions are one class.

    def event_class(self, name: str) -> int:
        """Return the class of an event name. Only names that the chart mentions are cached: others have no bound."""
        found = self.named.get(name)
        return self._class_of(name) if found is None else found

    def _class_for(self, event: Event, run: StepRun) -> int:
        """Return the class of an event. Driven transitions match only what the kernel or the driver created."""
        found = self.event_class(event.name)
        members = self.members[found]
        if self.driven.isdisjoint(members) or _is_own(event, run):
            return found
        return self.class_of(members - self.driven)

    def _class_of(self, name: str) -> int:
        tokens = tuple(name.split("."))
        matched = set(self._exact.get(tokens, ()))
        for length in range(min(len(tokens), self._tokens_max) + 1):
            matched.update(self._prefixes.get(tokens[:length], ()))
        return self.class_of(frozenset(matched))

    def class_of(self, matched: frozenset[int]) -> int:
        """Return the class of the names that exactly these transitions match."""
        found = self.classes.get(matched)
        if found is None:
            # `members` is filled first: two threads may add different sets at the same time.
            number = next(self._numbers)
            self.members[number] = matched
            found = self.classes.setdefault(matched, number)
        return found

    # Candidates

    def candidates(self, configuration: Configuration, event_class: int) -> Candidates:
        """Return the transitions to try, cached by configuration and class."""
        found: Candidates | None = configuration.candidates.get(event_class)
        if found is None:
            found = configuration.candidates[event_class] = self._candidates(configuration, event_class)
        return found

    def _candidates(self, configuration: Configuration, event_class: int) -> Candidates:
        members = sorted(self.members[event_class])
        matching: dict[int, list[int]] = {}
        for number in members:
            source = self.transitions[number].source
            if source in configuration.active:
                matching.setdefault(source, []).append(number)
        groups = {state: (state, tuple(numbers)) for state, numbers in matching.items()}
        by_state = tuple(
            tuple(groups[state] for state in self.chart.path(atom) if state in groups) for atom in configuration.atomic
        )
        found = Candidates(by_state, len(members) + self.state_sets.depth * len(by_state))
        if not any(self._has_condition(self.transitions[each]) for numbers in matching.values() for each in numbers):
            found.enabled = self._choose(configuration, found, event_class, lambda _: True)
        return found

    def _has_condition(self, transition: Transition) -> bool:
        return transition.guard is not None or transition.roles is not None or bool(transition.roles_in)

    # Choice

    def enabled(self, configuration: Configuration, event: Event | None, run: StepRun) -> tuple[int, ...]:
        """Return the enabled transitions for an event, or the eventless ones, before conflicts are resolved."""
        event_class = EVENTLESS if event is None else self._class_for(event, run)
        candidates = self.candidates(configuration, event_class)
        if candidates.work:
            run.charge(candidates.work)
        if candidates.enabled is not None:
            return candidates.enabled
        run.active = configuration.ids
        transitions = self.transitions
        return self._choose(
            configuration, candidates, event_class, lambda number: self.holds(transitions[number], event, run)
        )

    def _choose(
        self, configuration: Configuration, candidates: Candidates, event_class: int, holds: Holds
    ) -> tuple[int, ...]:
        """Try each state once, though it may be an ancestor of many atomic states."""
        if self.chart.dialect.select == "inner_first" and event_class != EVENTLESS:
            groups = dict(group for each in candidates.by_state for group in each)
            return tuple(dict.fromkeys(self._inner_first(0, configuration, groups, holds)))
        if len(candidates.by_state) == 1:
            for _, numbers in candidates.by_state[0]:
                for number in numbers:
                    if holds(number):
                        return (number,)
            return ()
        found: dict[int, None] = {}
        tried: dict[int, int] = {}
        for groups_of_state in candidates.by_state:
            for state, numbers in groups_of_state:
                chosen = tried.get(state)
                if chosen is None:
                    chosen = _NONE
                    for number in numbers:
                        if holds(number):
                            chosen = number
                            break
                    tried[state] = chosen
                if chosen != _NONE:
                    found[chosen] = None
                    break
        return tuple(found)

    def _inner_first(
        self, index: int, configuration: Configuration, groups: dict[int, tuple[int, ...]], holds: Holds
    ) -> list[int]:
        """XState: a state is tried after its active children, and only if they have no enabled transition (X8)."""
        found: list[int] = []
        for child in self.chart.states[index].children:
            if child in configuration.active:
                found += self._inner_first(child, configuration, groups, holds)
        if found:
            return found
        for number in groups.get(index, ()):
            if holds(number):
                return [number]
        return []

    def holds(self, transition: Transition, event: Event | None, run: StepRun) -> bool:
        """Return whether the roles and the guard of a transition allow it."""
        if transition.roles is not None and not is_permitted(transition.roles, event):
            return False
        if transition.roles_in and not may_leave(transition, event, run.active):
            return False
        if transition.guard is None:
            return True
        guard = self._guards.get(transition.index) or self.guard(transition, transition.guard)
        return bool(run.attempt(guard, f"{transition.display_name}.guard"))

    def guard(self, transition: Transition, guard: Guard) -> Operation:
        """Return the function of a transition's guard, made on first use."""
        found = self._guards.get(transition.index)
        if found is None:
            found = self._guards[transition.index] = self.actions.guard(guard)
        return found


def _is_own(event: Event, run: StepRun) -> bool:
    """Return whether the kernel created an event, or the driver did and the snapshot was waiting for it."""
    return event is run.matched or (event.type == "platform" and event.source is None and event.invokeid is None)


def may_leave(transition: Transition, event: Event | None, active: frozenset[str]) -> bool:
    """Return whether the sender has the roles of the hidden states that a transition would leave now."""
    return all(state not in active or is_permitted(roles, event) for state, roles in transition.roles_in)


def is_permitted(roles: tuple[str, ...], event: Event | None) -> bool:
    """Return whether the sender has one of the roles. The kernel and the driver have the role `system`."""
    if event is None or event.type != "external" or event.source is not None:
        return "system" in roles
    held = event.principal.get("roles") if isinstance(event.principal, dict) else None
    return isinstance(held, list | tuple | set | frozenset) and any(role in roles for role in held)
