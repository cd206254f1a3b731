"""What follows from a chart's shape alone: domains, exit and entry sets, conflicts, history, completion.

Rule 1: nothing here reads a context, an event or a clock; every answer follows from its arguments, so it may be kept.
Rule 2: states are numbers; sets are `frozenset` or `set` of numbers, and every order is document order unless said
otherwise.
Rule 3: an answer takes time that grows with the states it is about; what lies below a state is a range of numbers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from interlock.model.chart import Chart, State, Transition

HistoryMemory = Mapping[int, tuple[int, ...]]
"""History memory by number: history state -> states recorded."""


@dataclass(slots=True)
class EntrySet:
    """States to enter, those whose `initial` content runs, and parent -> history whose default was used."""

    states: set[int] = field(default_factory=set)
    defaults: set[int] = field(default_factory=set)
    content: dict[int, int] = field(default_factory=dict)
    occupied: set[int] = field(default_factory=set)
    """The states, and all that lie around them: in which region something is entered."""
    filled: set[int] = field(default_factory=set)
    """Parallel states of which every region is occupied."""


class StateSets:
    """The questions that plans are made of, asked of one chart."""

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

    def active(self, atoms: Iterable[int]) -> frozenset[int]:
        """The whole configuration of these atomic states: with their ancestors."""
        return frozenset(each for atom in atoms for each in self.chart.path(atom))

    def is_legal(self, active: frozenset[int]) -> bool:
        """Whether exactly one child of every active compound and every region of every active parallel is active."""
        if 0 not in active:
            return False
        counts: dict[int, int] = {}
        for index in active:
            parent = self.states[index].parent
            counts[parent] = counts.get(parent, 0) + 1
        return all(counts.get(index, 0) == self._children_active[index] for index in active)

    def _active_children(self, state: State) -> int:
        """How many children of a state are active with it; -1 for a history, which never is."""
        regions = self.chart.regions(state.index)
        return {"compound": 1, "parallel": len(regions), "history": -1}.get(state.type, 0)

    # Domain (S14-S16)

    def effective_targets(self, targets: tuple[int, ...], recorded: HistoryMemory) -> list[int]:
        """The targets with every history replaced by what it recorded, or by its default (S14)."""
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
        """The state whose descendants the transition leaves and enters; None for a transition without target (S15)."""
        return self.chart.domain(transition, self.effective_targets(transition.targets, recorded))

    # Exit (S13, S17, S26)

    def below(self, index: int, ordered: Sequence[int]) -> Sequence[int]:
        """Those of some states, given in document order, that are proper descendants of a state."""
        return ordered[bisect_right(ordered, index) : bisect_right(ordered, self.states[index].last)]

    def remove_conflicts(
        self, enabled: tuple[int, ...], active: frozenset[int], recorded: HistoryMemory
    ) -> tuple[tuple[int, ...], frozenset[int]]:
        """The enabled transitions that are taken together (S13), and all the states they leave."""
        transitions = self.chart.transitions
        ordered = sorted(active)
        kept: dict[int, Sequence[int]] = {}
        leaving: dict[int, int] = {}  # which of those kept leaves a state: at most one does
        for number in enabled:
            source, domain = transitions[number].source, self.domain(transitions[number], recorded)
            exits = () if domain is None else self.below(domain, ordered)
            rivals = self._rivals(source, exits, leaving)
            if rivals is None:
                continue
            for rival in rivals:
                for each in kept.pop(rival):
                    del leaving[each]
            kept[number] = exits
            leaving.update(dict.fromkeys(exits, number))
        return tuple(kept), frozenset(leaving)

    def _rivals(self, source: int, exits: Sequence[int], leaving: Mapping[int, int]) -> set[int] | None:
        """The kept transitions that a new one takes precedence over; None when one of them is not an outer one."""
        rivals: set[int] = set()
        for each in exits:
            rival = leaving.get(each)
            if rival is not None and rival not in rivals:
                if not self.chart.contains(self.chart.transitions[rival].source, source):
                    return None
                rivals.add(rival)
        return rivals

    def records(self, exits: frozenset[int], active: frozenset[int]) -> dict[int, tuple[int, ...]]:
        """What every history of a state that is left remembers, from the configuration before any removal (S26)."""
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
        """The entry set of an entity that begins: the root and its initial states."""
        entry = EntrySet()
        self._add_down(0, entry, recorded)
        return entry

    def entry_set(self, chosen: tuple[int, ...], before: HistoryMemory, recorded: HistoryMemory) -> EntrySet:
        """The states that these transitions enter together (S19).

        Domains are those of the exit set, by the history `before` the microstep: what it records itself may lie deeper
        than the default it replaces (a parallel's history that falls back to the parallel), and all that was left is
        entered. A target that is the domain itself, by name or by history, stays; only what is inside it is entered
        anew (X13).
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
        """The state and what is entered below it. XState runs no `initial` content of a state that only a history
        or a parallel ancestor brought in (`default` is False then), though it enters its initial child.
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
        """What is entered below a state that is entered, or, for XState's self-target, below one that stays."""
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
        """Enter a state, and note that something is entered in all that lie around it."""
        entry.states.add(index)
        while index not in entry.occupied and index > 0:
            entry.occupied.add(index)
            index = self.states[index].parent

    # Completion (S28, S29)

    def is_final(self, index: int, active: set[int]) -> bool:
        """Whether a state is "in a final state" (S29; XState counts a final child of a parallel as done)."""
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
        """The histories that entering these states can ask. What a parallel state leads to is found out once."""
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
                stack += self.states[state.parent].children
            elif state.type == "compound":
                stack += state.initial
            else:
                stack += state.children
            for ancestor in self.chart.path(index)[1:]:
                if self.states[ancestor].type == "parallel" and ancestor not in seen:
                    stack.append(ancestor)
        return found
