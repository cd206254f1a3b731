"""Choose the transitions of one microstep.

Rule 1: this file only chooses; nothing here changes a run, but for the error event of a guard that failed (S33).
Rule 2: for each active atomic state, inner states win over outer ones and earlier transitions over later ones (S11).
Rule 3: a guard is asked at most once per selection, in that order, and no further than needed (S12).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count

from interlock.kernel.actions import Actions, Operation
from interlock.kernel.plan import Configuration
from interlock.kernel.run import Run
from interlock.kernel.structure import Structure
from interlock.model.chart import Chart, Transition
from interlock.model.event import Event

Asked = Callable[[int], bool]
"""Whether a transition, by number, may be taken."""

EVENTLESS = -1
"""The event class of no event."""

NOTHING = 0
"""The event class of names that no descriptor matches."""


class Candidates:
    """What may be chosen in a configuration for a class of events.

    `walks` are the transitions to try, per atomic state. `enabled` is the answer itself when nothing has to be asked.
    """

    __slots__ = ("enabled", "walks")

    def __init__(self, walks: tuple[tuple[int, ...], ...], enabled: tuple[int, ...] | None) -> None:
        self.walks = walks
        self.enabled = enabled


class Selector:
    """Chooses for one chart."""

    def __init__(self, chart: Chart, structure: Structure, actions: Actions) -> None:
        self.chart = chart
        self.transitions = chart.transitions
        self.structure = structure
        self.actions = actions
        self.classes: dict[frozenset[int], int] = {frozenset(): NOTHING}
        self.members: dict[int, frozenset[int]] = {NOTHING: frozenset()}
        self._numbers = count(NOTHING + 1)
        self.named: dict[str, int] = {}
        self.descriptors = tuple(
            (each, number) for number, transition in enumerate(chart.transitions) for each in transition.descriptors
        )
        self.driven = frozenset(number for number, each in enumerate(chart.transitions) if each.driven)
        self._guards: dict[int, Operation] = {}
        for name in {descriptor.text for descriptor, _ in self.descriptors} | self._known_names():
            self.named[name] = self._class_of(name)

    def _known_names(self) -> set[str]:
        names = {after.event for state in self.chart.states for after in state.after}
        return names | {each.name for each in self.chart.events or ()}

    # Event classes (P2): the set of transitions whose descriptors match, not the name, is what counts.

    def event_class(self, name: str) -> int:
        """The class of an event's name; foreign names are matched anew each time, so they cannot fill a cache."""
        found = self.named.get(name)
        return self._class_of(name) if found is None else found

    def _class_for(self, event: Event, run: Run) -> int:
        """The class of an event: without the driven transitions, unless the kernel or the driver created it."""
        found = self.event_class(event.name)
        members = self.members[found]
        if self.driven.isdisjoint(members) or _is_own(event, run):
            return found
        return self.class_of(members - self.driven)

    def _class_of(self, name: str) -> int:
        return self.class_of(frozenset(number for descriptor, number in self.descriptors if descriptor.matches(name)))

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
        walks = tuple(self._walk(atom, event_class) for atom in configuration.atoms)
        asked = any(self._is_asked(self.transitions[number]) for walk in walks for number in walk)
        if asked:
            return Candidates(walks, None)
        return Candidates(walks, self._choose(configuration, walks, event_class, lambda _: True))

    def _walk(self, atom: int, event_class: int) -> tuple[int, ...]:
        numbers = [number for state in self.structure.path(atom) for number in self.chart.states[state].transitions]
        if event_class == EVENTLESS:
            return tuple(number for number in numbers if not self.transitions[number].descriptors)
        members = self.members[event_class]
        return tuple(number for number in numbers if number in members)

    def _is_asked(self, transition: Transition) -> bool:
        return transition.guard is not None or transition.roles is not None

    # Choice

    def enabled(self, configuration: Configuration, event: Event | None, run: Run) -> tuple[int, ...]:
        """The enabled transitions for an event, or for none, before conflicts are resolved."""
        event_class = EVENTLESS if event is None else self._class_for(event, run)
        candidates = self.candidates(configuration, event_class)
        if candidates.enabled is not None:
            return candidates.enabled
        run.active = configuration.ids
        answers: dict[int, bool] = {}

        def holds(number: int) -> bool:
            answer = answers.get(number)
            if answer is None:
                answer = answers[number] = self.holds(self.transitions[number], event, run)
            return answer

        return self._choose(configuration, candidates.walks, event_class, holds)

    def _choose(
        self, configuration: Configuration, walks: Iterable[tuple[int, ...]], event_class: int, holds: Asked
    ) -> tuple[int, ...]:
        if self.chart.dialect.select == "inner_first" and event_class != EVENTLESS:
            walk_of = dict(zip(configuration.atoms, walks, strict=True))
            return tuple(dict.fromkeys(self._inner_first(0, configuration, walk_of, holds)))
        found: dict[int, None] = {}
        for walk in walks:
            for number in walk:
                if holds(number):
                    found[number] = None
                    break
        return tuple(found)

    def _inner_first(
        self, index: int, configuration: Configuration, walk_of: dict[int, tuple[int, ...]], holds: Asked
    ) -> list[int]:
        """XState: a state is asked after its active children, and only if none of them answered (X8)."""
        state = self.chart.states[index]
        found: list[int] = []
        atoms = [atom for atom in configuration.atoms if index <= atom <= state.last]
        for child in state.children:
            if child in configuration.active:
                found += self._inner_first(child, configuration, walk_of, holds)
        if found:
            return found
        for number in walk_of[atoms[0]]:
            if self.transitions[number].source == index and holds(number):
                return [number]
        return []

    def holds(self, transition: Transition, event: Event | None, run: Run) -> bool:
        """Whether a transition's roles and guard let it be taken."""
        if transition.roles is not None and not is_permitted(transition.roles, event):
            return False
        if transition.guard is None:
            return True
        guard = self._guards.get(transition.index)
        if guard is None:
            guard = self._guards[transition.index] = self.actions.guard(transition.guard)
        return bool(run.carry(guard, f"{transition.where}.guard"))


def _is_own(event: Event, run: Run) -> bool:
    """Whether an event was created by the kernel, or came from the driver and matched the snapshot."""
    return event is run.matched or (event.type == "platform" and event.source is None and event.invokeid is None)


def is_permitted(roles: tuple[str, ...], event: Event | None) -> bool:
    """Whether the sender has one of the roles. What the kernel does by itself acts as `system`."""
    if event is None or event.type != "external" or event.source is not None:
        return "system" in roles
    held = event.principal.get("roles") if isinstance(event.principal, dict) else None
    return isinstance(held, list | tuple | set | frozenset) and any(role in roles for role in held)
