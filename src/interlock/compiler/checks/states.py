"""Checks of single states: their shape, names and sizes, and whether they can be entered, left, or wait forever.

Rule 1: what would leave an entity without a legal configuration is an error in every dialect.
Rule 2: what merely has no effect in other dialects is an error in ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from interlock.compiler.checks.graph import Graph
from interlock.compiler.checks.report import CheckReport, describe_trigger
from interlock.errors import SourceLocation
from interlock.model.charts.chart import State, Transition
from interlock.model.charts.sites import block_sites
from interlock.model.document import document as doc
from interlock.model.document.actions import Send
from interlock.model.document.walk import states
from interlock.model.limits import NAME_BYTES_MAX

_KEY = re.compile(r"[\w-]+")


def check_states(report: CheckReport, graph: Graph) -> None:
    """Check every state by its type, key and initial state."""
    root = graph.states[0]
    if root.type in ("final", "history"):
        report.add("chart.root", f"the root cannot be a {root.type} state", root.location)
    elif not graph.regions(root):
        report.add("chart.no_states", "the chart has no states", root.location, "add at least one under `states`")
    for state in graph.states:
        written = report.tree.states[state.index]
        _check_key(report, graph, state)
        _check_initial(report, graph, state, written)
        if state.type == "final":
            _check_final(report, graph, state, written)
        elif state.type == "history":
            _check_history(report, graph, state, written)
        elif state.type == "parallel":
            _check_parallel(report, graph, state)
        _check_done(report, graph, state)


def _check_key(report: CheckReport, graph: Graph, state: State) -> None:
    if len(state.id.encode()) > NAME_BYTES_MAX:
        message = f'the id "{state.id[:40]}..." has more than {NAME_BYTES_MAX} bytes'
        report.add("state.id_length", message, state.location, "give the state a shorter `id`")
    if state.index == 0:
        return
    if report.is_native and state.key.startswith("_") and not report.is_from_saga(state.index):
        report.add_reserved("state", state.key, state.location)
    if report.is_native and _KEY.fullmatch(state.key) is None:
        message = f'"{state.key}" is not a valid state key'
        report.add("state.key", message, state.location, "use letters, digits, _ and -")
    first = next(each for each in graph.states[state.parent].children if graph.states[each].key == state.key)
    if first != state.index:
        message = f'{report.name(state.parent)} has two states with the key "{state.key}"'
        report.add("state.duplicate_key", message, state.location, "rename one of them")


def _check_initial(report: CheckReport, graph: Graph, state: State, written: doc.State) -> None:
    initial = written.initial
    if state.type == "compound":
        if not state.initial and state.index > 0 and initial is None:
            message = f"{report.name(state)} has only history states, so it has no initial state"
            report.add("state.no_initial", message, state.location, "add a child that can be active")
        for each in state.initial:
            if not graph.is_descendant(each, state.index):
                message = f"the initial state {report.name(each)} is not inside {report.name(state)}"
                location = state.location if initial is None else initial.location
                report.add("initial.outside", message, location, "name a descendant of it")
    elif initial is not None:
        reason = "all its regions are entered" if state.type == "parallel" else "it has no children"
        message = f"{report.name(state)} cannot have `initial`: {reason}"
        report.add("initial.misplaced", message, initial.location, "remove it")


def _check_final(report: CheckReport, graph: Graph, state: State, written: doc.State) -> None:
    for what, location in _useless_parts(written):
        report.add("final.content", f"the final state {report.name(state)} cannot have {what}", location, "remove it")
    if state.index > 0 and graph.states[state.parent].type == "parallel" and graph.chart.dialect.done == "scxml":
        message = (
            f"the final state {report.name(state)} cannot be a region of the parallel state {report.name(state.parent)}"
        )
        report.add("final.region", message, state.location, "move it into a region")


def _check_history(report: CheckReport, graph: Graph, state: State, written: doc.State) -> None:
    for what, location in _useless_parts(written):
        report.add("history.content", f"the history {report.name(state)} cannot have {what}", location, "remove it")
    if not state.default:
        if not written.targets:
            message = f"the history {report.name(state)} has no default target"
            report.add("history.no_default", message, state.location, "add `target`")
        return
    # XState's history of a parallel state falls back to that state itself (X17).
    fallback = state.parent if graph.chart.dialect.name == "xstate" else None
    for each in state.default:
        if each != fallback and not graph.is_descendant(each, state.parent):
            message = f"the target {report.name(each)} of the history {report.name(state)} is outside its parent"
            hint = f"name a descendant of {report.name(state.parent)}"
            report.add("history.outside", message, state.location, hint)
    if _is_circular(graph, state):
        message = f"the default of the history {report.name(state)} leads back to itself"
        report.add("history.cycle", message, state.location, "use a target that is not a history")


def _is_circular(graph: Graph, state: State) -> bool:
    """Whether the defaults and initial states that follow from a history lead back to it."""
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


def _useless_parts(written: doc.State) -> Iterator[tuple[str, SourceLocation]]:
    """The parts of a final state or a history that have no effect."""
    if written.states:
        yield "states", written.states[0].location
    if written.transitions:
        yield "transitions", written.transitions[0].location
    if written.invokes:
        yield "an invoke", written.invokes[0].location
    if written.type == "history" and (written.entry or written.exit):
        yield "entry or exit actions", written.location


def _check_parallel(report: CheckReport, graph: Graph, state: State) -> None:
    regions = graph.regions(state)
    if not regions and state.index > 0:
        message = f"the parallel state {report.name(state)} has no regions"
        report.add("parallel.no_region", message, state.location, "add two or more states")
    elif len(regions) == 1:
        message = f"the parallel state {report.name(state)} has only one region"
        report.add("parallel.one_region", message, state.index, "remove `type: parallel`, or add a region")


def _check_done(report: CheckReport, graph: Graph, state: State) -> None:
    if report.tree.states[state.index].saga is not None:
        return  # an invalid saga is reported already
    for number in state.transitions:
        transition = graph.transitions[number]
        if transition.origin == "onDone" and not graph.can_be_done(state.index):
            message = f"{report.name(state)} can never be done, so its `onDone` is never taken"
            hint = "add a final child" if state.type != "parallel" else "add a final child to each region"
            report.add("done.never", message, transition.location, hint)


CHILDREN_MAX = 20
"""Children of one state. A longer flat list usually hides a hierarchy."""

STATES_MAX = 100
"""States of a chart. A larger chart is usually several kinds in one; ten states are healthy."""

_CATCH_ALL = frozenset({"failed", "error", "failure"})
_NO_VERBS = frozenset({"pending", "missing", "outstanding", "incoming"})


def lint_sizes(report: CheckReport) -> None:
    """Report lists of states that are too long to read; generated saga states are not counted."""
    for state in report.chart.states:
        written = report.tree.states[state.index]
        count = sum(each.type != "history" for each in written.states)
        if count > CHILDREN_MAX and written.saga is None:
            message = f"{report.name(state)} has {count} children; more than {CHILDREN_MAX} usually hide a hierarchy"
            report.add("state.too_many_children", message, state.index, "group related states")
    total = sum(1 for _ in states(report.document.root)) - 1
    if total > STATES_MAX:
        message = f"the chart has {total} states; more than {STATES_MAX} are usually several kinds in one"
        report.add("chart.too_many_states", message, 0, "split it, and `invoke` one chart from the other")


def lint_names(report: CheckReport, graph: Graph) -> None:
    """Report states named after an activity, and failure states with several causes."""
    for state in graph.states[1:]:
        if report.is_from_saga(state.index):
            continue
        word = state.key.lower().replace("-", "_").rsplit("_", 1)[-1]
        if word.endswith("ing") and word not in _NO_VERBS:
            message = f'"{state.key}" names an activity, which is usually two states in one'
            report.add(
                "state.verb_name",
                message,
                state.index,
                "name the condition that holds meanwhile, such as payment_pending",
            )
        if state.key.lower() in _CATCH_ALL:
            _lint_catch_all(report, graph, state)


def _lint_catch_all(report: CheckReport, graph: Graph, state: State) -> None:
    causes = {(each.source, each.label): each for each in graph.transitions if state.index in each.targets}
    if len(causes) > 1:
        names = ", ".join(f"{report.name(each.source)} by {describe_trigger(each)}" for each in causes.values())
        message = f"{report.name(state)} has {len(causes)} causes ({names})"
        report.add("state.catch_all_failure", message, state.index, "use one state per cause")


def lint_reachability(report: CheckReport, graph: Graph, reachable: frozenset[int]) -> None:
    """Report states that cannot be entered or left. States inside an unreachable state are not reported again."""
    for state in graph.states[1:]:
        if report.is_from_saga(state.index):
            continue
        if state.index not in reachable:
            if state.parent in reachable:
                what = "history" if state.type == "history" else "state"
                message = f"the {what} {report.name(state)} is unreachable"
                report.add("state.unreachable", message, state.index, "add a transition to it, or remove it")
        elif _is_leaf(report, state) and not any(True for _ in exits_of(graph, state.index)) and not graph.is_exhausted:
            message = f"{report.name(state)} is not final and cannot be left"
            report.add("state.trap", message, state.index, "add a transition, or make it `type: final`")


def _is_leaf(report: CheckReport, state: State) -> bool:
    return state.type == "atomic" or report.tree.states[state.index].saga is not None


def exits_of(graph: Graph, index: int) -> Iterator[Transition]:
    """The transitions that can be taken while the state is active and that leave it for another state.

    Incomplete once the graph is exhausted: a caller that relies on there being none must check `is_exhausted`.
    """
    for transition, outer in _possible_transitions(graph, index):
        graph.question_count += 1
        if graph.is_exhausted:
            return
        leads_out = transition.targets != (index,) and graph.exits(transition, index)
        if leads_out and (not outer or _can_be_taken(graph, transition, index)):
            yield transition


def _possible_transitions(graph: Graph, index: int) -> Iterator[tuple[Transition, bool]]:
    """The transitions that may be taken while the state is active: in it, in its ancestors, and in regions.

    The flag says whether the transition belongs to an ancestor, where an inner transition may shadow it.
    """
    for each in range(index, graph.states[index].last + 1):
        yield from ((transition, False) for transition in graph.outgoing[each])
    for ancestor in graph.path(index)[1:]:
        yield from ((transition, True) for transition in graph.outgoing[ancestor])
        if graph.states[ancestor].type == "parallel":
            region = graph.child_towards(ancestor, index)
            leaving = graph.leaving(ancestor)
            yield from ((each, False) for each in leaving if not graph.is_within(each.source, region))


def _can_be_taken(graph: Graph, transition: Transition, index: int) -> bool:
    """Whether an ancestor's transition can be taken while this state is active, in its region or a parallel one."""
    if transition.origin == "onDone" and not graph.is_done_with(transition.source, index):
        return False
    if not all(graph.is_shadowed(transition, atom) for atom in graph.atomic_states(index)):
        return True
    around = graph.path(index)[1:]
    if not any(graph.states[each].type == "parallel" and graph.is_within(each, transition.source) for each in around):
        return False
    graph.question_count += graph.states[transition.source].last - transition.source
    parallel_states = (
        atom for atom in graph.atomic_states(transition.source) if graph.can_be_active_together(atom, index)
    )
    return not all(graph.is_shadowed(transition, atom) for atom in parallel_states)


def lint_waiting(report: CheckReport, graph: Graph) -> None:
    """Report states that wait for events without any timeout."""
    timed = {site.state for site in block_sites(report.chart) if site.role == "entry" and _sets_timer(site.actions())}
    for state in graph.states[1:]:
        if state.type != "atomic" or state.invokes or report.tree.states[state.index].saga is not None:
            continue
        if report.is_from_saga(state.index) or _is_left_at_once(graph, state):
            continue
        around = [graph.states[each] for each in graph.path(state.index)]
        if not any(each.after or each.expect or each.index in timed for each in around):
            message = f"{report.name(state)} waits for events without a timeout"
            hint = "add `after`, or `expect` with `within: forever` if waiting here is normal"
            report.add("state.no_timeout", message, state.index, hint)


def _sets_timer(actions: Iterator[object]) -> bool:
    return any(isinstance(each, Send) and each.delay is not None for each in actions)


def _is_left_at_once(graph: Graph, state: State) -> bool:
    """Whether the state is always exited in the step that enters it."""
    own = [graph.transitions[each] for each in state.transitions]
    return any(not each.descriptors and each.guard is None and each.targets for each in own)
