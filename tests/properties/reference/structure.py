"""The questions that appendix D asks about the tree of states, answered by walking it.

States are their numbers in document order. Nothing here is kept or computed ahead.
"""

from __future__ import annotations

from collections.abc import Iterable

from interlock.model.charts.chart import Chart, State, Transition

History = dict[str, tuple[str, ...]]
"""What was recorded: id of a history state -> ids of states."""


class Structure:
    """One chart's tree, with the predicates of appendix D under their own names."""

    def __init__(self, chart: Chart) -> None:
        self.chart = chart

    def state(self, index: int) -> State:
        """The state of this number."""
        return self.chart.states[index]

    def number(self, state_id: str) -> int:
        """The number of the state with this id."""
        return next(each.index for each in self.chart.states if each.id == state_id)

    def is_atomic_state(self, index: int) -> bool:
        """S2: no child states; a final is atomic."""
        return self.state(index).type in ("atomic", "final")

    def is_compound_state(self, index: int) -> bool:
        """S2: has children, of which exactly one is active."""
        return self.state(index).type == "compound"

    def is_parallel_state(self, index: int) -> bool:
        """S2: has children, all of which are active."""
        return self.state(index).type == "parallel"

    def is_history_state(self, index: int) -> bool:
        """S2: a pseudo-state, never active."""
        return self.state(index).type == "history"

    def is_final_state(self, index: int) -> bool:
        """Whether entering it completes its parent."""
        return self.state(index).type == "final"

    def get_child_states(self, index: int) -> list[int]:
        """The children that can be active, in document order."""
        return [each for each in self.state(index).children if not self.is_history_state(each)]

    def get_proper_ancestors(self, index: int, limit: int | None = None) -> list[int]:
        """The proper ancestors, nearest first, up to `limit` exclusive; none if `limit` is the state itself."""
        found: list[int] = []
        if limit == index:
            return found
        marker = self.state(index).parent
        while marker >= 0 and marker != limit:
            found.append(marker)
            marker = self.state(marker).parent
        return found

    def is_descendant(self, index: int, of: int) -> bool:
        """Whether the state is a proper descendant of the other."""
        return of in self.get_proper_ancestors(index)

    def get_effective_target_states(self, targets: Iterable[int], history: History) -> list[int]:
        """S14: a history is replaced by what it recorded, or else by the effective targets of its default."""
        found: list[int] = []
        for target in targets:
            state = self.state(target)
            if state.type != "history":
                effective = [target]
            elif state.id in history:
                effective = [self.number(each) for each in history[state.id]]
            else:
                effective = self.get_effective_target_states(state.default, history)
            found += [each for each in effective if each not in found]
        return found

    def get_transition_domain(self, transition: Transition, history: History) -> int | None:
        """S15, S16: the state whose descendants are left and entered; None without a target."""
        dialect = self.chart.dialect
        source = transition.source
        targets = self.get_effective_target_states(transition.targets, history)
        if not targets:
            return None
        if source == 0:
            return 0
        inner = [each for each in targets if self.is_descendant(each, source)]
        if dialect.internal == "scxml":
            if transition.internal and self.is_compound_state(source) and len(inner) == len(targets):
                return source
        elif not transition.reenter and len([each for each in targets if each == source or each in inner]) == len(
            targets
        ):
            return source
        return self.find_lcca(source, targets)

    def find_lcca(self, source: int, targets: list[int]) -> int:
        """The nearest proper ancestor that contains all targets: a compound or the root, or of any type in `lca`."""
        for ancestor in self.get_proper_ancestors(source):
            fits = self.chart.dialect.domain == "lca" or ancestor == 0 or self.is_compound_state(ancestor)
            if fits and all(self.is_descendant(each, ancestor) for each in targets):
                return ancestor
        raise AssertionError("the root contains every state")

    def is_in_final_state(self, index: int, configuration: Iterable[int]) -> bool:
        """S29: a compound with an active final child, a parallel of only such; in XState a final itself too."""
        active = list(configuration)
        if self.is_compound_state(index):
            return any(self.is_final_state(each) and each in active for each in self.get_child_states(index))
        if self.is_parallel_state(index):
            return all(self.is_in_final_state(each, active) for each in self.get_child_states(index))
        return self.chart.dialect.done == "nested" and self.is_final_state(index)
