"""Errors about the shape of states: what each type must have, may have, and must not have.

Rule 1: whatever would give an entity without a legal configuration is an error in every dialect.
Rule 2: whatever is merely without effect in other dialects is an error in ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from interlock.compiler.checks.graph import Graph
from interlock.compiler.checks.report import Review
from interlock.errors import Place
from interlock.model.chart import State
from interlock.model.document import document as doc
from interlock.model.limits import NAME_BYTES_MAX

_KEY = re.compile(r"[\w-]+")


def check_states(review: Review, graph: Graph) -> None:
    """Every state by its type, its key, and what it says of its beginning."""
    root = graph.states[0]
    if root.type in ("final", "history"):
        review.error("chart.root", f"the root cannot be a {root.type} state", root.place)
    elif not graph.regions(root):
        review.error("chart.no_states", "the chart has no states", root.place, "write at least one under `states`")
    for state in graph.states:
        written = review.tree.states[state.index]
        _check_key(review, graph, state)
        _check_begin(review, graph, state, written)
        if state.type == "final":
            _check_final(review, graph, state, written)
        elif state.type == "history":
            _check_history(review, graph, state, written)
        elif state.type == "parallel":
            _check_parallel(review, graph, state)
        _check_done(review, graph, state)


def _check_key(review: Review, graph: Graph, state: State) -> None:
    if len(state.id.encode()) > NAME_BYTES_MAX:
        message = f'the id "{state.id[:40]}..." has more than {NAME_BYTES_MAX} bytes'
        review.error("state.id_length", message, state.place, "give the state a short `id`")
    if state.index == 0:
        return
    if review.own and _KEY.fullmatch(state.key) is None:
        message = f'"{state.key}" cannot be the key of a state'
        review.error("state.key", message, state.place, "use letters, digits, _ and -")
    first = next(each for each in graph.states[state.parent].children if graph.states[each].key == state.key)
    if first != state.index:
        message = f'{review.name(state.parent)} has two states with the key "{state.key}"'
        review.error("state.duplicate_key", message, state.place, "rename one of them")


def _check_begin(review: Review, graph: Graph, state: State, written: doc.State) -> None:
    initial = written.initial
    if state.type == "compound":
        if not state.initial and state.index > 0 and initial is None:
            message = f"{review.name(state)} has only history states: it cannot begin anywhere"
            review.error("state.no_initial", message, state.place, "give it a child that can be active")
        for each in state.initial:
            if not graph.is_descendant(each, state.index):
                message = f"{review.name(state)} cannot begin in {review.name(each)}, which is not inside it"
                place = state.place if initial is None else initial.place
                review.error("initial.outside", message, place, "name one of its descendants")
    elif initial is not None:
        reason = "all its regions begin" if state.type == "parallel" else "it has no children to begin in"
        message = f"{review.name(state)} cannot have `initial`: {reason}"
        review.rule("initial.misplaced", message, initial.place, "take it out")


def _check_final(review: Review, graph: Graph, state: State, written: doc.State) -> None:
    for what, place in _content(written):
        review.rule("final.content", f"the final state {review.name(state)} cannot have {what}", place, "take that out")
    if state.index > 0 and graph.states[state.parent].type == "parallel" and graph.chart.dialect.done == "scxml":
        message = f"the final state {review.name(state)} cannot be a region of {review.name(state.parent)}"
        review.error("final.region", message, state.place, "put it inside a region")


def _check_history(review: Review, graph: Graph, state: State, written: doc.State) -> None:
    for what, place in _content(written):
        review.rule("history.content", f"the history {review.name(state)} cannot have {what}", place, "take that out")
    if not state.default:
        if not written.targets:
            message = f"the history {review.name(state)} does not say where it leads before anything was recorded"
            review.error("history.no_default", message, state.place, "write `target`")
        return
    # XState's history of a parallel state falls back to that state itself (X17).
    fallback = state.parent if graph.chart.dialect.name == "xstate" else None
    for each in state.default:
        if each != fallback and not graph.is_descendant(each, state.parent):
            message = f"the history {review.name(state)} cannot lead to {review.name(each)}, outside its parent"
            hint = f"name a descendant of {review.name(state.parent)}"
            review.error("history.outside", message, state.place, hint)
    if _is_circular(graph, state):
        message = f"the history {review.name(state)} leads back to itself"
        review.error("history.cycle", message, state.place, "name a state that is no history")


def _is_circular(graph: Graph, state: State) -> bool:
    """Whether following defaults and initial states from a history comes back to it."""
    seen: set[int] = set()
    waiting = list(state.default)
    while waiting:
        each = waiting.pop()
        if each == state.index:
            return True
        if each not in seen:
            seen.add(each)
            other = graph.states[each]
            waiting += other.default if other.type == "history" else other.initial
            waiting += graph.regions(other) if other.type == "parallel" else ()
    return False


def _content(written: doc.State) -> Iterator[tuple[str, Place]]:
    """What a final state or a history has although nothing can come of it."""
    if written.states:
        yield "states", written.states[0].place
    if written.transitions:
        yield "transitions", written.transitions[0].place
    if written.invokes:
        yield "an invoke", written.invokes[0].place
    if written.type == "history" and (written.entry or written.exit):
        yield "entry or exit actions", written.place


def _check_parallel(review: Review, graph: Graph, state: State) -> None:
    regions = graph.regions(state)
    if not regions and state.index > 0:
        message = f"the parallel state {review.name(state)} has no regions"
        review.error("parallel.no_region", message, state.place, "give it two or more states")
    elif len(regions) == 1:
        message = f"the parallel state {review.name(state)} has one region only"
        review.lint("parallel.one_region", message, state.index, hint="take `type: parallel` out, or add a region")


def _check_done(review: Review, graph: Graph, state: State) -> None:
    if review.tree.states[state.index].saga is not None:
        return  # one that could not be written out was told already
    for number in state.transitions:
        transition = graph.transitions[number]
        if transition.origin == "onDone" and not graph.can_be_done(state.index):
            message = f"{review.name(state)} can never be done, so its `onDone` is never taken"
            hint = "give it a final child" if state.type != "parallel" else "give each region a final child"
            review.rule("done.never", message, transition.place, hint)
