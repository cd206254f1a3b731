"""Checks of transitions: targets and `reenter` (V2, V5), selection, loops, regions and wildcards."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from interlock.compiler.checks.graph import DescriptorIndex, Graph, is_unconditional
from interlock.compiler.checks.guard_overlap import GuardComparison
from interlock.compiler.checks.report import CheckReport, describe_trigger
from interlock.errors import SourceLocation
from interlock.expression.parser import ExpressionError, parse
from interlock.model.charts.chart import State, Transition
from interlock.model.charts.sites import guard_sites
from interlock.model.document.actions import Assign, AssignCall, Block, Foreach, GuardExpression, GuardName, Script
from interlock.model.document.walk import block_actions, guard_parts


def check_targets(report: CheckReport, graph: Graph) -> None:
    """Check the targets of every transition, every `initial` and every history default."""
    # Unknown targets are reported already; checking the remaining ones would mislead.
    broken = {each.location for each in report.diagnostics.items if each.code.startswith("target.")}
    for transition in graph.transitions:
        if transition.location in broken:
            continue
        _check_together(report, graph, transition.targets, transition.location)
        _check_history(report, graph, transition)
        if 0 in transition.targets and not graph.is_xstate:
            hint = "name the state to continue in"
            report.add("target.root", "the root is always active and cannot be a target", transition.location, hint)
        elif report.is_native and transition.source > 0:
            _check_reenter(report, graph, transition)
    for state in graph.states:
        for targets, location in _defaults(report, state):
            if location not in broken:
                _check_together(report, graph, targets, location)


def _defaults(report: CheckReport, state: State) -> Iterator[tuple[tuple[int, ...], SourceLocation]]:
    initial = report.tree.states[state.index].initial
    if initial is not None:
        yield state.initial, initial.location
    yield state.default, state.location


def _check_together(report: CheckReport, graph: Graph, targets: tuple[int, ...], location: SourceLocation) -> None:
    """Several targets must be active together: in different regions of one parallel state."""
    for position, second in enumerate(targets):
        for first in targets[:position]:
            problem = _problem(report, graph, first, second)
            if problem is not None:
                report.add("target.conflict", problem, location, "name one state in each of several regions")
                return


def _check_history(report: CheckReport, graph: Graph, transition: Transition) -> None:
    """A history of a state that stays active must not enter other regions of a parallel state that stays active.

    It enters its parent's descendants on the way to its default. The transition exits only what contains its source
    and that default: the regions that are on the way, but not exited, would be entered twice.
    """
    histories = [each for each in transition.targets if graph.states[each].type == "history"]
    if not histories:
        return
    defaults: list[int] = []
    for target in transition.targets:
        defaults += _default_states(graph, target)
    domain = graph.chart.domain(transition, defaults)
    if domain is None:
        return
    for target in histories:
        parent = graph.states[target].parent
        if not graph.is_descendant(domain, parent):
            continue
        kept = (each for each in graph.path(domain)[1:] if graph.is_descendant(each, parent))
        parallel = next((each for each in kept if graph.states[each].type == "parallel"), None)
        if parallel is not None:
            message = (
                f"the default of the history {report.name(target)} is in {report.name(parallel)}, which stays active: "
                f"its other regions would be entered twice"
            )
            hint = f"target a state of {report.name(domain)}, or {report.name(parallel)} itself"
            report.add("target.history", message, transition.location, hint)
            return


def _default_states(graph: Graph, target: int) -> list[int]:
    """The states that a target leads to while no history has recorded anything. A cycle of histories leads nowhere."""
    found: list[int] = []
    open_targets, seen = [target], {target}
    while open_targets:
        state = graph.states[open_targets.pop()]
        if state.type != "history":
            found.append(state.index)
            continue
        open_targets += [each for each in state.default if each not in seen]
        seen.update(state.default)
    return found


def _problem(report: CheckReport, graph: Graph, first: int, second: int) -> str | None:
    names = f"{report.name(first)} and {report.name(second)}"
    if first == second:
        return f"{report.name(first)} is named twice"
    if graph.is_descendant(first, second) or graph.is_descendant(second, first):
        return f"one of {names} contains the other"
    common = graph.common_ancestor(first, second)
    if graph.states[common].type != "parallel":
        return f"{names} are never active together"
    for each in (first, second):
        if graph.states[each].type == "history" and graph.states[each].parent == common:
            return f"the history {report.name(each)} restores every region, so {names} exclude each other"
    return None


def _check_reenter(report: CheckReport, graph: Graph, transition: Transition) -> None:
    """`reenter` is required exactly where the source is a target or an ancestor of one (V2)."""
    source, name = transition.source, report.name(transition.source)
    own = [each for each in transition.targets if each == source]
    inner = [each for each in transition.targets if graph.is_descendant(each, source)]
    is_given = transition.internal or transition.reenter
    if not own and not inner:
        if is_given:
            reason = "it has no target" if not transition.targets else f"its target is outside {name}"
            message = f"`reenter` has no effect here: {reason}"
            report.add("transition.reenter", message, transition.location, "remove `reenter`")
    elif own:
        if not transition.reenter:
            message = f"{name} is its own target, so `reenter` is required"
            hint = "write `reenter: true` to exit and enter it again; to stay in it, remove `target`"
            report.add("transition.reenter", message, transition.location, hint)
    elif graph.states[source].type != "compound" or len(inner) < len(transition.targets):
        if not transition.reenter:
            message = f"{name} contains the target {report.name(inner[0])} and must be exited"
            report.add("transition.reenter", message, transition.location, "write `reenter: true`")
    elif not is_given:
        message = f"{name} contains the target {report.name(inner[0])}, so `reenter` is required"
        hint = f"write `reenter: false` to stay in {name}, or `reenter: true` to exit and enter it again"
        report.add("transition.reenter", message, transition.location, hint)


PAIRS_MAX = 10_000
"""Pairs of guards compared for overlap per chart: a hostile definition must not take quadratic time."""

CONFLICTS_MAX = 200_000
"""Pairs of transitions compared for conflicts between regions per chart, for the same reason."""

RIVALS_MAX = 100
"""Earlier transitions for one event that a transition is compared with, for the same reason."""


def lint_choice(report: CheckReport, graph: Graph) -> None:
    """Per state, report transitions that an earlier one shadows, and guards that may be true together."""
    pairs = 0
    exclusion = GuardComparison(report.names.parsed)
    for state in graph.states:
        earlier = DescriptorIndex()
        unconditional = DescriptorIndex()
        for number in state.transitions:
            transition = graph.transitions[number]
            rivals = list(islice(_rivals(earlier, transition), RIVALS_MAX))
            if unconditional.covers(transition) or any(_is_repeated(each, transition) for each in rivals):
                message = (
                    f"{describe_trigger(transition)} is never taken here: an earlier transition always takes the event"
                )
                report.add(
                    "transition.shadowed",
                    message,
                    transition.location,
                    "remove it, or move it to the front",
                    within=state.index,
                )
            elif transition.guard is not None and not _is_from_saga(report, transition):
                for rival in rivals:
                    pairs += 1
                    if pairs > PAIRS_MAX or _lint_overlap(report, exclusion, rival, transition):
                        break
            (unconditional if is_unconditional(transition) else earlier).add(transition)


def _is_from_saga(report: CheckReport, transition: Transition) -> bool:
    """Whether the compiler generated the transition, so that its order is right."""
    mine = report.tree.states[transition.source].saga is not None and transition.origin == "onDone"
    return mine or report.is_from_saga(transition.source)


def _rivals(earlier: DescriptorIndex, transition: Transition) -> Iterator[Transition]:
    """Earlier transitions that take every event of one of the later one's descriptors."""
    if not transition.descriptors:
        yield from earlier.eventless
    for descriptor in transition.descriptors:
        yield from earlier.matching(descriptor)


def _is_repeated(first: Transition, second: Transition) -> bool:
    """Whether the later of two transitions has the same events, guard and roles as the earlier one."""
    return (first.guard, first.roles, first.descriptors) == (second.guard, second.roles, second.descriptors)


def _lint_overlap(report: CheckReport, exclusion: GuardComparison, first: Transition, second: Transition) -> bool:
    """Report two guards that may be true together; returns whether it did."""
    if first.guard is None or second.guard is None or exclusion.exclusive(first.guard, second.guard):
        return False
    message = f"for {describe_trigger(second)} both this guard and an earlier one may be true, so their order decides"
    hint = "make the guards exclude each other, or ignore this if the order is intended"
    report.add("transition.overlap", message, second.location, hint, within=second.source)
    return True


def lint_guards(report: CheckReport) -> None:
    """Report guards that are constant, and guard names that look like expressions."""
    for state, guard, _ in guard_sites(report.chart):
        for part in guard_parts(guard):
            if isinstance(part, GuardName) and _reads_like_expression(part.name):
                message = f'the guard "{part.name}" is the name of a function but looks like an expression'
                hint = "start it with `=`; in Python, use `build.expr`"
                report.add("guard.unmarked", message, part.location, hint, within=state)
            elif isinstance(part, GuardExpression):
                parsed = report.names.parsed.get(part.expression.text)
                if parsed is not None and parsed.constant:
                    message = f'the guard "{part.expression.text.strip()}" reads no data, so it is constant'
                    hint = "remove it, or compare a value of the context or the event"
                    report.add("guard.constant", message, part.expression.location, hint, within=state)


def _reads_like_expression(name: str) -> bool:
    """Whether a name would be an expression that reads data if it started with `=`."""
    try:
        return bool(parse(name).roots)
    except ExpressionError:
        return False


# Eventless loops


def lint_loops(report: CheckReport, graph: Graph) -> None:
    """Report eventless transitions that follow each other forever."""
    if report.chart.dialect.eventless != "loop":
        return
    eventless = [each for each in graph.transitions if not each.descriptors]
    for transition in eventless:
        if (
            transition.guard is not None
            and _returns_to_source(graph, transition)
            and not _may_change_context(graph, transition)
        ):
            message = (
                "this transition returns to its source and changes nothing, so its guard stays true: an endless loop"
            )
            hint = "change a value that its guard reads"
            report.add("always.loop", message, transition.location, hint, within=transition.source)
    for cycle in _cycles(graph, [each for each in eventless if each.guard is None]):
        names = " -> ".join(report.name(each.source) for each in (*cycle, cycle[0]))
        message = f"eventless transitions without guards form an endless loop: {names}"
        report.add("always.loop", message, cycle[0].location, "add a guard to one of them", within=cycle[0].source)


def _returns_to_source(graph: Graph, transition: Transition) -> bool:
    """Whether a transition certainly returns to its source. A parallel region might change what its guard reads."""
    alone = all(graph.states[each].type == "compound" for each in graph.path(transition.source)[1:])
    here = transition.targets in ((), (transition.source,))
    return here and alone and graph.states[transition.source].type == "atomic"


def _may_change_context(graph: Graph, transition: Transition) -> bool:
    """Whether any action that runs with a transition to its own source may write to the context."""
    source = graph.states[transition.source]
    around = (*source.exit, *source.entry) if transition.targets else ()
    return any(_writes(block) for block in (transition.block, *around))


def _writes(block: Block) -> bool:
    return any(isinstance(each, Assign | AssignCall | Foreach | Script) for each in block_actions(block))


def _cycles(graph: Graph, transitions: list[Transition]) -> Iterator[list[Transition]]:
    """The cycles of transitions that certainly follow each other, found in one walk without recursion."""
    over: set[int] = set()
    for start in transitions:
        path = [] if start.index in over else [start]
        following = [_following(graph, each) for each in path]
        while path:
            each = next(following[-1], None)
            numbers = [one.index for one in path]
            if each is None:
                over.add(path.pop().index)
                following.pop()
            elif each.index in numbers:
                yield path[numbers.index(each.index) :]
            elif each.index not in over:
                path.append(each)
                following.append(_following(graph, each))


def _following(graph: Graph, transition: Transition) -> Iterator[Transition]:
    """The unguarded eventless transitions that are certainly tried next after this one."""
    entered = graph.entered(transition, memory=False) or frozenset({transition.source})
    if any(graph.ends_entity(each) for each in entered):
        return
    for atom in sorted(entered):
        if graph.is_atomic(atom) or not transition.targets:
            numbers = [number for state in graph.path(atom) for number in graph.states[state].transitions]
            first = next((graph.transitions[each] for each in numbers if not graph.transitions[each].descriptors), None)
            if first is not None and is_unconditional(first):
                yield first


# Regions and wildcards


def lint_regions(report: CheckReport, graph: Graph) -> None:
    """Report regions that take the same event where one of them exits all: their order decides."""
    conflicts = _Conflicts(report, graph)
    for state in graph.states:
        if state.type == "parallel" and not report.is_from_saga(state.index) and graph.leaving(state.index):
            conflicts.lint(state)


class _Conflicts:
    """Finds conflicts between regions; at most `CONFLICTS_MAX` pairs of transitions are compared per chart."""

    def __init__(self, report: CheckReport, graph: Graph) -> None:
        self.report = report
        self.graph = graph
        self.exclusion = GuardComparison(report.names.parsed)
        self.pairs = 0

    def lint(self, parallel: State) -> None:
        """Report the conflicts between the regions of one parallel state."""
        report, graph, leaving = self.report, self.graph, DescriptorIndex(self.graph.leaving(parallel.index))
        for each in range(parallel.index + 1, parallel.last + 1):
            for transition in graph.outgoing[each]:
                rival = next(self._rivals(parallel, leaving, transition), None)
                # If both exit, the pair is reported once, at the later one.
                if rival is None or (graph.exits(transition, parallel.index) and transition.index < rival.index):
                    continue
                message = (
                    f"{describe_trigger(transition)} is also taken in {report.name(rival.source)}, "
                    f"where it exits {report.name(parallel)}: only the first in document order is taken"
                )
                hint = f"handle the event in {report.name(parallel)} itself, or use different events in the regions"
                report.add("parallel.conflict", message, transition.location, hint, within=transition.source)

    def _rivals(self, parallel: State, leaving: DescriptorIndex, transition: Transition) -> Iterator[Transition]:
        region = self.graph.child_towards(parallel.index, transition.source)
        for rival in islice(_rivals(leaving, transition), RIVALS_MAX):
            self.pairs += 1
            if self.pairs > CONFLICTS_MAX:
                return
            guards = (rival.guard, transition.guard)
            apart = guards[0] and guards[1] and self.exclusion.exclusive(guards[0], guards[1])
            if not apart and not self.graph.is_within(rival.source, region):
                yield rival


def lint_wildcards(report: CheckReport, graph: Graph) -> None:
    """Report wildcards that shadow the timers and results of an ancestor."""
    waiting = [_generated_events(graph, state) for state in graph.states]
    for transition in graph.transitions:
        wide = [each for each in transition.descriptors if not each.exact] if is_unconditional(transition) else []
        for ancestor in graph.path(transition.source)[1:]:
            hidden = next((waiting[ancestor][each.tokens] for each in wide if each.tokens in waiting[ancestor]), None)
            if hidden is not None:
                message = (
                    f'{describe_trigger(transition)} also takes "{hidden}", which {report.name(ancestor)} waits for'
                )
                hint = "list the events, or add a guard on `event.name`"
                report.add("descriptor.hides_timer", message, transition.location, hint, within=transition.source)
                break


def _generated_events(graph: Graph, state: State) -> dict[tuple[str, ...], str]:
    """The generated events that a state waits for, by every prefix that takes them."""
    made = [one for each in state.transitions for one in graph.transitions[each].descriptors if one.exact]
    kernels = [each for each in made if each.tokens[0] in ("after", "done", "error")]
    return {each.tokens[:length]: each.text for each in kernels for length in range(len(each.tokens) + 1)}


def lint_completion(report: CheckReport, graph: Graph) -> None:
    """Report parallel states directly inside another one, which does not always complete (S29)."""
    if report.chart.dialect.done != "scxml":
        return
    for transition in graph.transitions:
        source = graph.states[transition.source]
        if transition.origin != "onDone" or source.type != "parallel":
            continue
        inner = [each for each in graph.regions(source) if graph.states[each].type == "parallel"]
        if inner:
            message = (
                f"{report.name(source)} is not done if the last final state entered is in {report.name(inner[0])}, "
                "a parallel state directly inside it"
            )
            hint = f"put a compound state between {report.name(source)} and {report.name(inner[0])}"
            report.add("done.nested_parallel", message, transition.location, hint, within=source.index)
