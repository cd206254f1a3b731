"""Errors about where transitions lead: several targets at once, the root, and `reenter` (V2, V5)."""

from __future__ import annotations

from collections.abc import Iterator

from interlock.compiler.checks.graph import Graph
from interlock.compiler.checks.report import Review
from interlock.errors import Place
from interlock.model.chart import State, Transition


def check_targets(review: Review, graph: Graph) -> None:
    """Every transition, every `initial` and every history's default."""
    # A transition that names an unknown state was told already; what is left of its targets would mislead.
    broken = {each.place for each in review.findings.items if each.code.startswith("target.")}
    for transition in graph.transitions:
        if transition.place in broken:
            continue
        _check_list(review, graph, transition.targets, transition.place)
        if 0 in transition.targets and not graph.xstate:
            hint = "name the state that it should go on in"
            review.error("target.root", "the root is always active and cannot be a target", transition.place, hint)
        elif review.own and transition.source > 0:
            _check_reenter(review, graph, transition)
    for state in graph.states:
        for targets, place in _defaults(review, state):
            if place not in broken:
                _check_list(review, graph, targets, place)


def _defaults(review: Review, state: State) -> Iterator[tuple[tuple[int, ...], Place]]:
    initial = review.tree.states[state.index].initial
    if initial is not None:
        yield state.initial, initial.place
    yield state.default, state.place


def _check_list(review: Review, graph: Graph, targets: tuple[int, ...], place: Place) -> None:
    """Several targets must be states that are active together: in distinct regions of one parallel state."""
    for position, second in enumerate(targets):
        for first in targets[:position]:
            problem = _problem(review, graph, first, second)
            if problem is not None:
                review.error("target.conflict", problem, place, "name one state in each of several regions")
                return


def _problem(review: Review, graph: Graph, first: int, second: int) -> str | None:
    names = f"{review.name(first)} and {review.name(second)}"
    if first == second:
        return f"{review.name(first)} is named twice"
    if graph.is_descendant(first, second) or graph.is_descendant(second, first):
        return f"of {names} one contains the other"
    common = graph.common(first, second)
    if graph.states[common].type != "parallel":
        return f"{names} are never active together"
    for each in (first, second):
        if graph.states[each].type == "history" and graph.states[each].parent == common:
            return f"the history {review.name(each)} restores every region, so {names} exclude each other"
    return None


def _check_reenter(review: Review, graph: Graph, transition: Transition) -> None:
    """`reenter` is said exactly where the source is a target or an ancestor of one (V2)."""
    source, name = transition.source, review.name(transition.source)
    own = [each for each in transition.targets if each == source]
    inner = [each for each in transition.targets if graph.is_descendant(each, source)]
    said = transition.internal or transition.reenter
    if not own and not inner:
        if said:
            reason = "it has no target" if not transition.targets else f"it leads out of {name}"
            message = f"`reenter` has no meaning here: {reason}"
            review.error("transition.reenter", message, transition.place, "take `reenter` out")
    elif own:
        if not transition.reenter:
            message = f"{name} is its own target"
            hint = "write `reenter: true` to leave and enter it again; to stay in it, leave `target` out"
            review.error("transition.reenter", message, transition.place, hint)
    elif graph.states[source].type != "compound" or len(inner) < len(transition.targets):
        if not transition.reenter:
            message = f"{name} contains the target {review.name(inner[0])} and must be left on the way"
            review.error("transition.reenter", message, transition.place, "write `reenter: true`")
    elif not said:
        message = f"{name} contains the target {review.name(inner[0])}: is it left on the way?"
        hint = f"write `reenter: false` to stay in {name}, or `reenter: true` to leave and enter it again"
        review.error("transition.reenter", message, transition.place, hint)
