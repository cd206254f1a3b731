"""Choose the transitions of one microstep.

Rule 1: this file only chooses; nothing here changes a run, but for the error event of a guard that failed (S33).
Rule 2: for each active atomic state, inner states win over outer ones and earlier transitions over later ones (S11).
Rule 3: a guard is asked at most once per selection, in that order, and no further than needed (S12).
Rule 4: a selection takes time that grows with the active states and their transitions, and is charged to the step.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from interlock.kernel.codegen import ActionCompiler, Operation
from interlock.kernel.plan import Configuration
from interlock.kernel.run import StepRun
from interlock.kernel.state_sets import StateSets
from interlock.model.chart import Chart, Transition
from interlock.model.document.actions import Guard
from interlock.model.event import Event

Holds = Callable[[int], bool]
"""Whether a transition, by number, may be taken."""

EVENTLESS = -1
"""The event class of no event."""

NO_MATCH = 0
"""The event class of names that no descriptor matches."""

_NONE = -1


Group = tuple[int, tuple[int, ...]]
"""A state, and those of its transitions that take the event, in document order."""

FREE_WORK = 100
"""Units of work that one selection or plan is not charged for: with all its microsteps a step does little of it."""


class Candidates:
    """What may be chosen in a configuration for a class of events.

    `by_state` are the groups to try, per atomic state, inner states first. States share the groups of their ancestors.
    `enabled` is the answer itself when nothing has to be asked. `work` is what a selection is charged; 0 for little.
    """

    __slots__ = ("by_state", "enabled", "work")

    def __init__(self, walks: tuple[tuple[Group, ...], ...], work: int) -> None:
        self.by_state = walks
        self.enabled: tuple[int, ...] | None = None
        self.work = work if work >= FREE_WORK else 0

    def numbers(self) -> list[int]:
        """Every transition in question, each once, in the order in which they would be tried."""
        groups = dict(group for walk in self.by_state for group in walk)
        return [number for numbers in groups.values() for number in numbers]


class Selector:
    """Chooses for one chart."""

    def __init__(self, chart: Chart, structure: StateSets, actions: ActionCompiler) -> None:
        self.chart = chart
        self.transitions = chart.transitions
        self.state_sets = structure
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

    # Event classes (P2): the set of transitions whose descriptors match, not the name, is what counts.

    def event_class(self, name: str) -> int:
        """The class of an event's name; foreign names are matched anew each time, so they cannot fill a cache."""
        found = self.named.get(name)
        return self._class_of(name) if found is None else found

    def _class_for(self, event: Event, run: StepRun) -> int:
        """The class of an event: without the driven transitions, unless the kernel or the driver created it."""
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
        """The class of names that exactly these transitions take."""
        found = self.classes.get(matched)
        if found is None:
            # A number of its own before it is told: two threads may come here at once with different sets.
            number = next(self._numbers)
            self.members[number] = matched
            found = self.classes.setdefault(matched, number)
        return found

    # Candidates

    def candidates(self, configuration: Configuration, event_class: int) -> Candidates:
        """The transitions to try, kept per configuration and class."""
        found: Candidates | None = configuration.candidates.get(event_class)
        if found is None:
            found = configuration.candidates[event_class] = self._candidates(configuration, event_class)
        return found

    def _candidates(self, configuration: Configuration, event_class: int) -> Candidates:
        members = sorted(self.members[event_class])
        taking: dict[int, list[int]] = {}
        for number in members:
            source = self.transitions[number].source
            if source in configuration.active:
                taking.setdefault(source, []).append(number)
        groups = {state: (state, tuple(numbers)) for state, numbers in taking.items()}
        walks = tuple(
            tuple(groups[state] for state in self.chart.path(atom) if state in groups) for atom in configuration.atomic
        )
        found = Candidates(walks, len(members) + self.state_sets.depth * len(walks))
        if not any(self._is_asked(self.transitions[each]) for numbers in taking.values() for each in numbers):
            found.enabled = self._choose(configuration, found, event_class, lambda _: True)
        return found

    def _is_asked(self, transition: Transition) -> bool:
        return transition.guard is not None or transition.roles is not None

    # Choice

    def enabled(self, configuration: Configuration, event: Event | None, run: StepRun) -> tuple[int, ...]:
        """The enabled transitions for an event, or for none, before conflicts are resolved."""
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
        """Each state is asked once, though it may lie on the path of many atomic states."""
        if self.chart.dialect.select == "inner_first" and event_class != EVENTLESS:
            groups = dict(group for walk in candidates.by_state for group in walk)
            return tuple(dict.fromkeys(self._inner_first(0, configuration, groups, holds)))
        if len(candidates.by_state) == 1:
            for _, numbers in candidates.by_state[0]:
                for number in numbers:
                    if holds(number):
                        return (number,)
            return ()
        found: dict[int, None] = {}
        asked: dict[int, int] = {}
        for walk in candidates.by_state:
            for state, numbers in walk:
                chosen = asked.get(state)
                if chosen is None:
                    chosen = _NONE
                    for number in numbers:
                        if holds(number):
                            chosen = number
                            break
                    asked[state] = chosen
                if chosen != _NONE:
                    found[chosen] = None
                    break
        return tuple(found)

    def _inner_first(
        self, index: int, configuration: Configuration, groups: dict[int, tuple[int, ...]], holds: Holds
    ) -> list[int]:
        """XState: a state is asked after its active children, and only if none of them answered (X8)."""
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
        """Whether a transition's roles and guard let it be taken."""
        if transition.roles is not None and not is_permitted(transition.roles, event):
            return False
        if transition.guard is None:
            return True
        guard = self._guards.get(transition.index) or self.guard(transition, transition.guard)
        return bool(run.attempt(guard, f"{transition.where}.guard"))

    def guard(self, transition: Transition, guard: Guard) -> Operation:
        """The function of a transition's guard, made on first use."""
        found = self._guards.get(transition.index)
        if found is None:
            found = self._guards[transition.index] = self.actions.guard(guard)
        return found


def _is_own(event: Event, run: StepRun) -> bool:
    """Whether an event was created by the kernel, or came from the driver and matched the snapshot."""
    return event is run.matched or (event.type == "platform" and event.source is None and event.invokeid is None)


def is_permitted(roles: tuple[str, ...], event: Event | None) -> bool:
    """Whether the sender has one of the roles. What the kernel does by itself acts as `system`."""
    if event is None or event.type != "external" or event.source is not None:
        return "system" in roles
    held = event.principal.get("roles") if isinstance(event.principal, dict) else None
    return isinstance(held, list | tuple | set | frozenset) and any(role in roles for role in held)
