"""Sets of states that follow from the chart alone: exit and entry sets, conflicts, history, completion.

Rule 1: results depend only on the arguments, not on a context, an event or a clock, so they can be cached.
Rule 2: states are numbers, and every order is document order unless stated otherwise.
Rule 3: the time of an answer grows with the states it is about. The descendants of a state are a range of numbers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from interlock.model.charts.chart import Chart, State, Transition

HistoryMemory = Mapping[int, tuple[int, ...]]
"""History state -> recorded states, by number."""


@dataclass(slots=True)
class EntrySet:
    """States to enter, states whose `initial` actions run, and parent -> history whose default was used."""

    states: set[int] = field(default_factory=set)
    defaults: set[int] = field(default_factory=set)
    content: dict[int, int] = field(default_factory=dict)
    occupied: set[int] = field(default_factory=set)
    """The states and all their ancestors, which show the regions that are entered."""
    filled: set[int] = field(default_factory=set)
    """Parallel states in which every region is entered."""


class StateSets:
    """Computes the state sets of one chart's plans."""

    def __init__(self, chart: Chart) -> None:
        self.chart = chart
        self.states = chart.states
        self.xstate = chart.dialect.internal == "xstate"
        self.histories: dict[int, tuple[State, ...]] = {}
        for state in chart.states:
            if state.type == "history":
                self.histories[state.parent] = (*self.histories.get(state.parent, ()), state)
        self._reached_from: dict[int, frozenset[int]] = {}
        for state in chart.states:
            if self.histories and state.type == "parallel":
                self._reached_from[state.index] = frozenset(self._reached((state.index,)))
        self.reaches = tuple(self._reach(each) for each in chart.transitions)
        self.depth = max(len(self.chart.path(each.index)) for each in chart.states)
        self._children_active = tuple(self._active_children(each) for each in chart.states)

    def active(self, atomic: Iterable[int]) -> frozenset[int]:
        """Return these atomic states and all their ancestors."""
        return frozenset(each for state in atomic for each in self.chart.path(state))

    def is_legal(self, active: frozenset[int]) -> bool:
        """Return whether one child of every active compound and all regions of every active parallel are active."""
        if 0 not in active:
            return False
        counts: dict[int, int] = {}
        for index in active:
            parent = self.states[index].parent
            counts[parent] = counts.get(parent, 0) + 1
        return all(counts.get(index, 0) == self._children_active[index] for index in active)

    def _active_children(self, state: State) -> int:
        """Return how many children of a state are active with it; -1 for a history, which is never active."""
        regions = self.chart.regions(state.index)
        return {"compound": 1, "parallel": len(regions), "history": -1}.get(state.type, 0)

    # Domain (S14-S16)

    def effective_targets(self, targets: tuple[int, ...], recorded: HistoryMemory) -> list[int]:
        """Return the targets, with every history replaced by what it recorded, or by its default (S14)."""
        found: dict[int, None] = {}
        for target in targets:
            state = self.states[target]
            if state.type != "history":
                found[target] = None
            elif target in recorded:
                found.update(dict.fromkeys(recorded[target]))
            else:
                found.update(dict.fromkeys(self.effective_targets(state.default, recorded)))
        return list(found)

    def domain(self, transition: Transition, recorded: HistoryMemory) -> int | None:
        """Return the state whose descendants a transition exits and enters; None for one without targets (S15)."""
        return self.chart.domain(transition, self.effective_targets(transition.targets, recorded))

    # Exit (S13, S17, S26)

    def below(self, index: int, ordered: Sequence[int]) -> Sequence[int]:
        """Return those of some states, given in document order, that are descendants of a state."""
        return ordered[bisect_right(ordered, index) : bisect_right(ordered, self.states[index].last)]

    def remove_conflicts(
        self, enabled: tuple[int, ...], active: frozenset[int], recorded: HistoryMemory
    ) -> tuple[tuple[int, ...], frozenset[int]]:
        """Return the enabled transitions that are taken together (S13), and all the states they exit."""
        transitions = self.chart.transitions
        ordered = sorted(active)
        kept: dict[int, Sequence[int]] = {}
        exiting: dict[int, int] = {}  # state -> the transition that exits it: at most one does
        for number in enabled:
            source, domain = transitions[number].source, self.domain(transitions[number], recorded)
            exits = () if domain is None else self.below(domain, ordered)
            rivals = self._rivals(source, exits, exiting)
            if rivals is None:
                continue
            for rival in rivals:
                for each in kept.pop(rival):
                    del exiting[each]
            kept[number] = exits
            exiting.update(dict.fromkeys(exits, number))
        return tuple(kept), frozenset(exiting)

    def _rivals(self, source: int, exits: Sequence[int], exiting: Mapping[int, int]) -> set[int] | None:
        """Return the transitions that a new one preempts; None if one of them belongs to no outer state."""
        rivals: set[int] = set()
        for each in exits:
            rival = exiting.get(each)
            if rival is not None and rival not in rivals:
                if not self.chart.contains(self.chart.transitions[rival].source, source):
                    return None
                rivals.add(rival)
        return rivals

    def records(self, exits: frozenset[int], active: frozenset[int]) -> dict[int, tuple[int, ...]]:
        """Return what the histories of exited states record, from the configuration before any exit (S26)."""
        found: dict[int, tuple[int, ...]] = {}
        ordered = sorted(active)
        for index in sorted(exits.intersection(self.histories)):
            inside = self.below(index, ordered)
            memories = {
                "deep": tuple(each for each in inside if not self.states[each].children),
                "shallow": tuple(each for each in inside if self.states[each].parent == index),
            }
            for history in self.histories[index]:
                found[history.index] = memories["deep" if history.history == "deep" else "shallow"]
        return found

    # Entry (S19-S21)

    def start_set(self, recorded: HistoryMemory) -> EntrySet:
        """Return the entry set of a new entity: the root and its initial states."""
        entry = EntrySet()
        self._add_down(0, entry, recorded)
        return entry

    def entry_set(self, chosen: tuple[int, ...], before: HistoryMemory, recorded: HistoryMemory) -> EntrySet:
        """Return the states that these transitions enter together (S19).

        Domains are those of the exit set, by the history `before` the microstep. The history that it records may be
        deeper than the default it replaces, and every exited state must be entered. A target that is the domain itself
        stays active; only its descendants are entered again (X13).
        """
        entry = EntrySet()
        for number in chosen:
            transition = self.chart.transitions[number]
            domain = self.domain(transition, before)
            if domain is None:
                continue
            for target in transition.targets:
                if self.effective_targets((target,), before) == [domain]:
                    self._add_inside(domain, entry, recorded)
                else:
                    self._add_down(target, entry, recorded)
            for target in self.effective_targets(transition.targets, recorded):
                self._add_up(target, domain, entry, recorded)
            if self.xstate and self.states[domain].type == "parallel":
                self._add_regions(domain, entry, recorded, default=False)
        return entry

    def _add_down(self, index: int, entry: EntrySet, recorded: HistoryMemory, *, default: bool = True) -> None:
        """Add a state and the descendants entered with it.

        XState enters the initial child of a state that is entered only through a history or a parallel ancestor, but
        does not run its `initial` actions: `default` is False then.
        """
        state = self.states[index]
        if state.type == "history":
            self._add_history(state, entry, recorded)
            return
        self._occupy(index, entry)
        if default and state.type == "compound":
            entry.defaults.add(index)
        self._add_inside(index, entry, recorded)

    def _add_inside(self, index: int, entry: EntrySet, recorded: HistoryMemory) -> None:
        """Add the descendants entered with a state, which for XState's self-target itself stays active."""
        state = self.states[index]
        if state.type == "compound":
            for target in state.initial:
                self._add_down(target, entry, recorded)
            for target in state.initial:
                self._add_up(target, index, entry, recorded)
        elif state.type == "parallel":
            self._add_regions(index, entry, recorded, default=True)

    def _add_history(self, state: State, entry: EntrySet, recorded: HistoryMemory) -> None:
        targets = recorded.get(state.index)
        if targets is None:
            targets = state.default
            entry.content[state.parent] = state.index
        for target in targets:
            self._add_down(target, entry, recorded, default=not self.xstate)
        for target in targets:
            self._add_up(target, state.parent, entry, recorded)

    def _add_up(self, index: int, limit: int, entry: EntrySet, recorded: HistoryMemory) -> None:
        for ancestor in self.chart.path(index)[1:]:
            if self.chart.contains(limit, ancestor):
                self._occupy(ancestor, entry)
                if self.states[ancestor].type == "parallel":
                    self._add_regions(ancestor, entry, recorded, default=not self.xstate)

    def _add_regions(self, index: int, entry: EntrySet, recorded: HistoryMemory, *, default: bool) -> None:
        if index in entry.filled:
            return
        for region in self.chart.regions(index):
            if region not in entry.occupied:
                self._add_down(region, entry, recorded, default=default)
        entry.filled.add(index)

    def _occupy(self, index: int, entry: EntrySet) -> None:
        """Add a state, and mark its ancestors as occupied."""
        entry.states.add(index)
        while index not in entry.occupied and index > 0:
            entry.occupied.add(index)
            index = self.states[index].parent

    # Completion (S28, S29)

    def is_final(self, index: int, active: set[int]) -> bool:
        """Return whether a state is done (S29). XState counts a final child of a parallel state as done."""
        state = self.states[index]
        if state.type == "compound":
            return any(self.states[each].type == "final" and each in active for each in state.children)
        if state.type == "parallel":
            return all(self.is_final(each, active) for each in self.chart.regions(index))
        return self.chart.dialect.done == "nested" and state.type == "final"

    # Which histories a transition depends on (P4)

    def _reach(self, transition: Transition) -> tuple[int, ...]:
        if not self.histories:
            return ()
        return tuple(sorted(self._reached(transition.targets)))

    def _reached(self, targets: Iterable[int]) -> set[int]:
        """Return the histories that entering these states can use. The result for a parallel state is cached."""
        found: set[int] = set()
        seen: set[int] = set()
        stack = list(targets)
        while stack:
            index = stack.pop()
            if index in seen:
                continue
            seen.add(index)
            known = self._reached_from.get(index)
            if known is not None:
                found |= known
                continue
            state = self.states[index]
            if state.type == "history":
                found.add(index)
                stack += state.default
                stack += self.chart.regions(state.parent)  # no history records another one
            elif state.type == "compound":
                stack += state.initial
            else:
                stack += state.children
            for ancestor in self.chart.path(index)[1:]:
                if self.states[ancestor].type == "parallel" and ancestor not in seen:
                    stack.append(ancestor)
        return found
