"""Lints about single states: can it be entered, can it be left, can it wait for ever, is its name honest."""

from __future__ import annotations

from collections.abc import Iterator

from interlock.compiler.checks.graph import Graph
from interlock.compiler.checks.report import Review, trigger
from interlock.compiler.checks.sites import sites
from interlock.model.chart import State, Transition
from interlock.model.document.actions import Send
from interlock.model.document.document import State as WrittenState

CHILDREN_MAX = 20
"""Children of one state before a flat list is taken for a hidden hierarchy."""

STATES_MAX = 100
"""States of a chart before it is taken for several kinds in one; ten are healthy."""

_CATCH_ALL = frozenset({"failed", "error", "failure"})
_NO_VERBS = frozenset({"pending", "missing", "outstanding", "incoming"})


def lint_sizes(review: Review) -> None:
    """Lists of states too long to be read; saga states are not counted, since nobody wrote them."""
    for state in review.chart.states:
        written = review.tree.states[state.index]
        count = sum(each.type != "history" for each in written.states)
        if count > CHILDREN_MAX and written.saga is None:
            message = (
                f"{review.name(state)} has {count} children; a flat list of more than {CHILDREN_MAX} hides a hierarchy"
            )
            review.lint("state.too_many_children", message, state.index, hint="group what belongs together")
    total = sum(1 for _ in _written(review.document.root)) - 1
    if total > STATES_MAX:
        message = f"the chart has {total} states; more than {STATES_MAX} are usually several kinds in one"
        review.lint("chart.too_many_states", message, 0, hint="split it, and `invoke` one chart from the other")


def _written(state: WrittenState) -> Iterator[WrittenState]:
    yield state
    for child in state.states:
        yield from _written(child)


def lint_names(review: Review, graph: Graph) -> None:
    """Names that say what is done instead of what is, and failures that say nothing."""
    for state in graph.states[1:]:
        if review.is_generated(state.index):
            continue
        word = state.key.lower().replace("-", "_").rsplit("_", 1)[-1]
        if word.endswith("ing") and word not in _NO_VERBS:
            message = f'"{state.key}" names something that is done: usually two states in one'
            review.lint(
                "state.verb_name", message, state.index, hint="name what is so meanwhile, such as payment_pending"
            )
        if state.key.lower() in _CATCH_ALL:
            _lint_catch_all(review, graph, state)


def _lint_catch_all(review: Review, graph: Graph, state: State) -> None:
    causes = {(each.source, each.label): each for each in graph.transitions if state.index in each.targets}
    if len(causes) > 1:
        names = ", ".join(f"{review.name(each.source)} by {trigger(each)}" for each in causes.values())
        message = f"{review.name(state)} is entered for {len(causes)} causes ({names})"
        review.lint(
            "state.catch_all_failure", message, state.index, hint="one state per cause, each with its own way on"
        )


def lint_ways(review: Review, graph: Graph, reachable: frozenset[int]) -> None:
    """States without a way in or without a way out. What lies inside an unreachable state is not told again."""
    for state in graph.states[1:]:
        if review.is_generated(state.index):
            continue
        if state.index not in reachable:
            if state.parent in reachable:
                what = "history" if state.type == "history" else "state"
                message = f"no way leads into the {what} {review.name(state)}"
                review.lint("state.unreachable", message, state.index, hint="add a transition to it, or take it out")
        elif _is_leaf(review, state) and not any(True for _ in ways_out(graph, state.index)) and not graph.is_exhausted:
            message = f"{review.name(state)} is not final and has no way out"
            review.lint("state.trap", message, state.index, hint="add a transition, or make it `type: final`")


def _is_leaf(review: Review, state: State) -> bool:
    return state.type == "atomic" or review.tree.states[state.index].saga is not None


def ways_out(graph: Graph, index: int) -> Iterator[Transition]:
    """The transitions that may be taken while the state is active and leave it for another.

    Not all of them once the graph is exhausted: a caller that concludes something from there being none must ask.
    """
    for transition, outer in _near(graph, index):
        graph.questions += 1
        if graph.is_exhausted:
            return
        leads_out = transition.targets != (index,) and graph.leaves(transition, index)
        if leads_out and (not outer or _is_taken(graph, transition, index)):
            yield transition


def _near(graph: Graph, index: int) -> Iterator[tuple[Transition, bool]]:
    """What may be taken while the state is active: in it, around it, and in regions beside it; and whether it is
    around it, where an inner transition may hide it.
    """
    for each in range(index, graph.states[index].last + 1):
        yield from ((transition, False) for transition in graph.outgoing[each])
    for ancestor in graph.path(index)[1:]:
        yield from ((transition, True) for transition in graph.outgoing[ancestor])
        if graph.states[ancestor].type == "parallel":
            region = graph.child(ancestor, index)
            leaving = graph.leaving(ancestor)
            yield from ((each, False) for each in leaving if not graph.is_within(each.source, region))


def _is_taken(graph: Graph, transition: Transition, index: int) -> bool:
    """Whether an outer state's transition may be taken while this one is active, for it or for a region beside it."""
    if transition.origin == "onDone" and not graph.is_done_with(transition.source, index):
        return False
    if not all(graph.is_hidden(transition, atom) for atom in graph.atoms(index)):
        return True
    around = graph.path(index)[1:]
    if not any(graph.states[each].type == "parallel" and graph.is_within(each, transition.source) for each in around):
        return False
    graph.questions += graph.states[transition.source].last - transition.source
    beside = (atom for atom in graph.atoms(transition.source) if graph.together(atom, index))
    return not all(graph.is_hidden(transition, atom) for atom in beside)


def lint_waiting(review: Review, graph: Graph) -> None:
    """States that wait for events and nothing else, with nobody to notice when none comes."""
    timed = {site.state for site in sites(review.chart) if site.role == "entry" and _sets_timer(site.actions())}
    for state in graph.states[1:]:
        if state.type != "atomic" or state.invokes or review.tree.states[state.index].saga is not None:
            continue
        if review.is_generated(state.index) or _passes(graph, state):
            continue
        around = [graph.states[each] for each in graph.path(state.index)]
        if not any(each.after or each.expect or each.index in timed for each in around):
            message = f"{review.name(state)} waits for events, and nothing happens when none comes"
            hint = "add `after`, or `expect` with `within: forever` when resting here is normal"
            review.lint("state.no_timeout", message, state.index, hint=hint)


def _sets_timer(actions: Iterator[object]) -> bool:
    return any(isinstance(each, Send) and each.delay is not None for each in actions)


def _passes(graph: Graph, state: State) -> bool:
    """Whether the state is always left at once."""
    own = [graph.transitions[each] for each in state.transitions]
    return any(not each.descriptors and each.guard is None and each.targets for each in own)
