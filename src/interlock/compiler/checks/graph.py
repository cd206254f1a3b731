"""What a chart can do: what each transition exits and enters, which states can be active together, what is reachable.

Rule 1: guards are ignored, so every answer errs on the side of "it can happen". But an unguarded inner transition does
        shadow an outer one for the same events.
Rule 2: nothing here enumerates configurations, because their number is exponential; only states and transitions.
Rule 3: frequent answers are cached. After very many questions every answer is "it can happen", which Rule 1 allows, so
        that a hostile chart is checked in seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import takewhile

from interlock.model.charts.chart import Chart, Descriptor, State, Transition


class DescriptorIndex:
    """Transitions by event descriptor, so that those covering a descriptor are found without trying all of them."""

    def __init__(self, transitions: Iterable[Transition] = ()) -> None:
        self.prefixes: dict[tuple[str, ...], list[Transition]] = {}
        self.names: dict[tuple[str, ...], list[Transition]] = {}
        self.eventless: list[Transition] = []
        for each in transitions:
            self.add(each)

    def add(self, transition: Transition) -> None:
        if not transition.descriptors:
            self.eventless.append(transition)
        for each in transition.descriptors:
            (self.names if each.exact else self.prefixes).setdefault(each.tokens, []).append(transition)

    def matching(self, descriptor: Descriptor) -> Iterator[Transition]:
        """The transitions that take every event of the descriptor, longest prefix last."""
        for length in range(len(descriptor.tokens) + 1):
            yield from self.prefixes.get(descriptor.tokens[:length], ())
        if descriptor.exact:
            yield from self.names.get(descriptor.tokens, ())

    def covers(self, transition: Transition) -> bool:
        """Whether one of these takes every event of the transition; for an eventless one, whether one is eventless."""
        if not transition.descriptors:
            return bool(self.eventless)
        return all(any(True for _ in self.matching(each)) for each in transition.descriptors)


def is_unconditional(transition: Transition) -> bool:
    """Whether the transition has no guard and no roles."""
    return transition.guard is None and transition.roles is None


QUESTIONS_MAX = 200_000
"""Questions whether a transition is shadowed, per chart: about a second. Charts written by hand ask a few thousand."""

REMEMBERED_MAX = 1_000_000
"""States in all cached entry sets: about 60 MB."""


class Graph:
    """Answers about the shape of one chart, for checks and lints."""

    def __init__(self, chart: Chart) -> None:
        self.chart = chart
        self.states = chart.states
        self.transitions = chart.transitions
        self.is_xstate = chart.dialect.domain == "lca"
        self.question_count = 0
        self._paths = [chart.path(each.index) for each in chart.states]
        self._domains: dict[int, int | None] = {}
        self._remembered = 0
        self._entered_by: dict[tuple[int, bool], frozenset[int]] = {}
        self._can_be_done: dict[int, bool] = {}
        self._down: dict[int, frozenset[int]] = {}
        self._leaving: dict[int, list[Transition]] = {}

    @property
    def is_exhausted(self) -> bool:
        """Whether the limit of questions is reached: from then on every answer is "it can happen"."""
        return self.question_count > QUESTIONS_MAX

    # Shape

    def path(self, index: int) -> list[int]:
        """The state and its ancestors, the root last."""
        return self._paths[index]

    def is_descendant(self, index: int, of: int) -> bool:
        """Whether the state is a proper descendant of the other."""
        return self.chart.contains(of, index)

    def is_within(self, index: int, of: int) -> bool:
        """Whether the state is the other or a descendant of it."""
        return of <= index <= self.states[of].last

    def regions(self, state: State) -> tuple[int, ...]:
        """The children that can be active: all but histories."""
        return self.chart.regions(state.index)

    def common_ancestor(self, first: int, second: int) -> int:
        """The innermost state that contains both or is one of them."""
        return self.chart.common_ancestor(first, second)

    def can_be_active_together(self, first: int, second: int) -> bool:
        """Whether two states can be active at the same time."""
        common = self.common_ancestor(first, second)
        return common in (first, second) or self.states[common].type == "parallel"

    def ends_entity(self, index: int) -> bool:
        """Whether the entity ends when this state is entered: it is a final child of the root."""
        state = self.states[index]
        return state.type == "final" and state.parent == self.chart.completion_root

    def can_be_done(self, index: int) -> bool:
        """Whether a state can be "in a final state" (S29)."""
        found = self._can_be_done.get(index)
        if found is None:
            found = self._can_be_done[index] = self._is_completable(self.states[index])
        return found

    def _is_completable(self, state: State) -> bool:
        if state.type == "parallel":
            return all(self.can_be_done(each) for each in self.regions(state))
        if state.type == "final":
            return self.chart.dialect.done == "nested"
        return any(self.states[each].type == "final" for each in state.children)

    def is_done_with(self, outer: int, index: int) -> bool:
        """Whether the outer state can be done while the inner one is active."""
        inner = self.child_towards(outer, index)
        if self.states[outer].type == "compound":
            return self.states[inner].type == "final"
        return self.can_be_done(inner) if inner == index else self.is_done_with(inner, index)

    # Transitions

    def domain(self, transition: Transition) -> int | None:
        """The state whose descendants the transition exits; None without target."""
        number = transition.index
        if number not in self._domains:
            self._domains[number] = self.chart.domain(transition, transition.targets)
        return self._domains[number]

    def exits(self, transition: Transition, index: int) -> bool:
        """Whether the transition exits the state if it is active."""
        domain = self.domain(transition)
        return domain is not None and self.is_descendant(index, domain)

    def entered(self, transition: Transition, *, memory: bool) -> frozenset[int]:
        """Every state that the transition may enter; with `memory`, also states that a history may have recorded."""
        domain = self.domain(transition)
        if domain is None:
            return frozenset()
        key = (transition.index, memory)
        found = self._entered_by.get(key)
        if found is None:
            found = self._entered(transition.targets, domain, memory=memory)
            self._remembered += len(found)
            if self._remembered <= REMEMBERED_MAX:
                self._entered_by[key] = found
        return found

    def initial_states(self) -> frozenset[int]:
        """Every state that is entered when an entity starts."""
        return self.default_entry(0)

    def default_entry(self, index: int) -> frozenset[int]:
        """The state and all states that are entered with it by default."""
        found = self._down.get(index)
        if found is None:
            # Initial states of an invalid chart may form a cycle; a state that is already in progress adds nothing.
            self._down[index] = frozenset()
            found = self._down[index] = self._below(self.states[index])
        return found

    def _below(self, state: State) -> frozenset[int]:
        if state.type == "history":
            return self._entered(state.default, state.parent, memory=False)
        found = {state.index}
        if state.type == "compound":
            found |= self._entered(state.initial, state.index, memory=False)
        elif state.type == "parallel":
            for region in self.regions(state):
                found |= self.default_entry(region)
        return frozenset(found)

    def _entered(self, targets: tuple[int, ...], limit: int, *, memory: bool) -> frozenset[int]:
        found: set[int] = set()
        for target in targets:
            found |= self.default_entry(target) if target != limit else self.default_entry(target) - {target}
            state = self.states[target]
            if memory and state.type == "history":
                found |= self._recorded(state)
        # A region without a target is entered by default. Each state on the path is visited once.
        occupied = {each for target in targets for each in self.path(target)}
        way = {each for target in targets for each in self.path(target)[1:] if self.is_descendant(each, limit)}
        for ancestor in way:
            found.add(ancestor)
            if self.states[ancestor].type == "parallel":
                self._add_regions(ancestor, occupied, found)
        if self.is_xstate and self.states[limit].type == "parallel":
            self._add_regions(limit, occupied, found)
        return frozenset(found)

    def _add_regions(self, parallel: int, occupied: set[int], found: set[int]) -> None:
        for region in self.regions(self.states[parallel]):
            if region not in occupied:
                found |= self.default_entry(region)

    def _recorded(self, history: State) -> set[int]:
        parent = self.states[history.parent]
        if history.history == "deep":
            return {each for each in range(parent.index + 1, parent.last + 1) if self.states[each].type != "history"}
        return {each for region in self.regions(parent) for each in self.default_entry(region)}

    def leaving(self, parallel: int) -> list[Transition]:
        """The transitions inside a parallel state that exit it."""
        found = self._leaving.get(parallel)
        if found is None:
            inside = range(parallel + 1, self.states[parallel].last + 1)
            numbers = [number for each in inside for number in self.states[each].transitions]
            found = [each for number in numbers if self.exits(each := self.transitions[number], parallel)]
            self._leaving[parallel] = found
        return found

    def child_towards(self, outer: int, index: int) -> int:
        """The child of the outer state that contains the inner one."""
        path = self.path(index)
        return path[path.index(outer) - 1]

    # Selection

    @cached_property
    def by_event(self) -> tuple[DescriptorIndex, ...]:
        """Per state, its transitions by event."""
        return tuple(DescriptorIndex(self.transitions[each] for each in state.transitions) for state in self.states)

    @cached_property
    def outgoing(self) -> tuple[tuple[Transition, ...], ...]:
        """Per state, its transitions that have a target."""
        numbers = (state.transitions for state in self.states)
        return tuple(
            tuple(self.transitions[each] for each in some if self.transitions[each].targets) for some in numbers
        )

    @cached_property
    def unconditional_by_event(self) -> tuple[DescriptorIndex, ...]:
        """Per state, its unconditional transitions by event."""
        return tuple(
            DescriptorIndex(
                self.transitions[each] for each in state.transitions if is_unconditional(self.transitions[each])
            )
            for state in self.states
        )

    def is_shadowed(self, transition: Transition, atom: int) -> bool:
        """Whether an outer state's transition is never taken here, because inner ones come first."""
        self.question_count += 1
        if self.is_exhausted:
            return False
        if (
            transition.origin == "onDone"
            and transition.source != atom
            and not self.is_done_with(transition.source, atom)
        ):
            return True
        inner = takewhile(lambda each: each != transition.source, self.path(atom))
        return any(self.unconditional_by_event[each].covers(transition) for each in inner)

    def walk_reachable(self, start: Iterable[int], *, memory: bool) -> Iterator[tuple[int, Transition, frozenset[int]]]:
        """Every transition that may be taken from these states on, with its atomic state and the states it enters.

        Each transition is given once. With `memory`, a history may enter everything that it can have recorded.
        """
        waiting = [list(state.transitions) for state in self.states]
        queue = [each for each in sorted(start) if self.is_atomic(each)]
        seen = set(queue)
        for atom in queue:  # grows while it is iterated, by each atomic state at most once
            if self.ends_entity(atom):
                continue
            for index in self.path(atom):
                hidden = []
                for number in waiting[index]:
                    transition = self.transitions[number]
                    if self.is_shadowed(transition, atom):
                        hidden.append(number)
                        continue
                    entered = self.entered(transition, memory=memory)
                    yield atom, transition, entered
                    fresh = [each for each in sorted(entered - seen) if self.is_atomic(each)]
                    queue += fresh
                    seen.update(fresh)
                waiting[index] = hidden

    def reachable(self) -> frozenset[int]:
        """Every state that can become active, and every history that can be a target, in the life of an entity."""
        found = set(self.initial_states())
        led: set[int] = set()
        # A recorded state was active before, so it is reachable anyway.
        for _, transition, entered in self.walk_reachable(found, memory=False):
            found |= entered
            led.update(transition.targets)
        led.update(*(self.states[each].initial for each in found))
        histories = [each for each in sorted(led) if self.states[each].type == "history"]
        for each in histories:  # grows by the histories that a history falls back to
            histories += [other for other in self.states[each].default if self._is_new_history(other, histories)]
        return frozenset(found.union(histories))

    def _is_new_history(self, index: int, known: list[int]) -> bool:
        return self.states[index].type == "history" and index not in known

    def is_atomic(self, index: int) -> bool:
        """Whether the state has no children that can be active."""
        return self.states[index].type in ("atomic", "final")

    def atomic_states(self, index: int) -> list[int]:
        """The atomic states that are the state or inside it."""
        return [each for each in range(index, self.states[index].last + 1) if self.is_atomic(each)]
