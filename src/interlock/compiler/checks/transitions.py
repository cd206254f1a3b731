"""Lints about choice: transitions that can never be chosen, that loop, or between which only their order decides."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from interlock.compiler.checks.graph import DescriptorIndex, Graph, is_free
from interlock.compiler.checks.guard_overlap import Exclusion
from interlock.compiler.checks.report import Review, trigger
from interlock.compiler.checks.sites import guards
from interlock.expression.parser import ExpressionError, parse
from interlock.model.chart import State, Transition
from interlock.model.document.actions import (
    Assign,
    AssignCall,
    Block,
    Foreach,
    GuardExpression,
    GuardName,
    Script,
    block_actions,
    guard_parts,
)

PAIRS_MAX = 10_000
"""Pairs of guards compared for overlap in one chart: keeps a hostile definition from taking quadratic time."""

CONFLICTS_MAX = 200_000
"""Pairs of transitions compared for a conflict between regions in one chart, for the same reason."""

RIVALS_MAX = 100
"""Transitions for one event that a single one is compared with, for the same reason."""


def lint_choice(review: Review, graph: Graph) -> None:
    """Per state, transitions that an earlier one hides, and guards that do not exclude each other."""
    pairs = 0
    exclusion = Exclusion(review.names.parsed)
    for state in graph.states:
        earlier = DescriptorIndex()
        free = DescriptorIndex()
        for number in state.transitions:
            transition = graph.transitions[number]
            rivals = list(islice(_rivals(earlier, transition), RIVALS_MAX))
            if free.covers(transition) or any(_is_repeated(each, transition) for each in rivals):
                message = f"{trigger(transition)} can never be chosen here: an earlier transition always takes it first"
                review.lint(
                    "transition.shadowed", message, state.index, transition.place, "take it out, or put it first"
                )
            elif transition.guard is not None and not _is_of_saga(review, transition):
                for rival in rivals:
                    pairs += 1
                    if pairs > PAIRS_MAX or _lint_overlap(review, exclusion, rival, transition):
                        break
            (free if is_free(transition) else earlier).add(transition)


def _is_of_saga(review: Review, transition: Transition) -> bool:
    """Whether the compiler wrote the transition, so that its order is right."""
    mine = review.tree.states[transition.source].saga is not None and transition.origin == "onDone"
    return mine or review.is_generated(transition.source)


def _rivals(earlier: DescriptorIndex, transition: Transition) -> Iterator[Transition]:
    """Earlier transitions that take every event one of the later one's descriptors takes."""
    if not transition.descriptors:
        yield from earlier.eventless
    for descriptor in transition.descriptors:
        yield from earlier.taking(descriptor)


def _is_repeated(first: Transition, second: Transition) -> bool:
    """Whether the later of two transitions asks exactly what the earlier asked for the same events."""
    return (first.guard, first.roles, first.descriptors) == (second.guard, second.roles, second.descriptors)


def _lint_overlap(review: Review, exclusion: Exclusion, first: Transition, second: Transition) -> bool:
    """Tells when two guards can hold together; whether it did."""
    if first.guard is None or second.guard is None or exclusion.exclusive(first.guard, second.guard):
        return False
    message = f"for {trigger(second)} both this guard and an earlier one may hold: their order decides"
    hint = "make the guards exclude each other, or leave it when the order says what you mean"
    review.lint("transition.overlap", message, second.source, second.place, hint)
    return True


def lint_guards(review: Review) -> None:
    """Guards that always say the same, and names that were meant as expressions."""
    for state, guard, _ in guards(review.chart):
        for part in guard_parts(guard):
            if isinstance(part, GuardName) and _reads_like_expression(part.name):
                message = f'the guard "{part.name}" is the name of a function, and reads like an expression'
                hint = "begin it with `=`; in Python, make it with `build.expr`"
                review.lint("guard.unmarked", message, state, part.place, hint)
            elif isinstance(part, GuardExpression):
                parsed = review.names.parsed.get(part.expression.text)
                if parsed is not None and parsed.constant:
                    message = f'the guard "{part.expression.text.strip()}" reads nothing, so it always says the same'
                    hint = "take it out, or compare something of the context or the event"
                    review.lint("guard.constant", message, state, part.expression.place, hint)


def _reads_like_expression(name: str) -> bool:
    """Whether a name would be an expression of the context or the event, had it begun with `=`."""
    try:
        return bool(parse(name).roots)
    except ExpressionError:
        return False


# Eventless loops


def lint_loops(review: Review, graph: Graph) -> None:
    """Eventless transitions that follow each other for ever."""
    if review.chart.dialect.eventless != "loop":
        return
    eventless = [each for each in graph.transitions if not each.descriptors]
    for transition in eventless:
        if transition.guard is not None and _comes_back(graph, transition) and not _changes(graph, transition):
            message = "it leads back to where it was and changes nothing, so its guard holds again, for ever"
            hint = "let it change what its guard reads"
            review.lint("always.loop", message, transition.source, transition.place, hint)
    for cycle in _cycles(graph, [each for each in eventless if each.guard is None]):
        names = " -> ".join(review.name(each.source) for each in (*cycle, cycle[0]))
        message = f"eventless transitions without a guard go round for ever: {names}"
        review.lint("always.loop", message, cycle[0].source, cycle[0].place, "give one of them a guard")


def _comes_back(graph: Graph, transition: Transition) -> bool:
    """Whether a transition certainly leads to where it was; a region beside it might change what its guard reads."""
    alone = all(graph.states[each].type == "compound" for each in graph.path(transition.source)[1:])
    here = transition.targets in ((), (transition.source,))
    return here and alone and graph.states[transition.source].type == "atomic"


def _changes(graph: Graph, transition: Transition) -> bool:
    """Whether anything that runs with a transition to its own source may write into the context."""
    source = graph.states[transition.source]
    around = (*source.exit, *source.entry) if transition.targets else ()
    return any(_writes(block) for block in (transition.block, *around))


def _writes(block: Block) -> bool:
    return any(isinstance(each, Assign | AssignCall | Foreach | Script) for each in block_actions(block))


def _cycles(graph: Graph, transitions: list[Transition]) -> Iterator[list[Transition]]:
    """The circles of transitions that certainly follow each other, found in one walk without recursion."""
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
    """The unguarded eventless transitions that are certainly tried next where this one leads."""
    entered = graph.entered(transition, memory=False) or frozenset({transition.source})
    if any(graph.ends(each) for each in entered):
        return
    for atom in sorted(entered):
        if graph.is_atomic(atom) or not transition.targets:
            numbers = [number for state in graph.path(atom) for number in graph.states[state].transitions]
            first = next((graph.transitions[each] for each in numbers if not graph.transitions[each].descriptors), None)
            if first is not None and is_free(first):
                yield first


# Regions and wildcards


def lint_regions(review: Review, graph: Graph) -> None:
    """Regions that react to the same event, where one of them leaves them all: their order decides."""
    conflicts = _Conflicts(review, graph)
    for state in graph.states:
        if state.type == "parallel" and not review.is_generated(state.index) and graph.leaving(state.index):
            conflicts.lint(state)


class _Conflicts:
    """Looks for conflicts between regions; at most `CONFLICTS_MAX` pairs of transitions are compared in one chart."""

    def __init__(self, review: Review, graph: Graph) -> None:
        self.review = review
        self.graph = graph
        self.exclusion = Exclusion(review.names.parsed)
        self.pairs = 0

    def lint(self, parallel: State) -> None:
        """Tells the conflicts between the regions of one parallel state."""
        review, graph, leaving = self.review, self.graph, DescriptorIndex(self.graph.leaving(parallel.index))
        for each in range(parallel.index + 1, parallel.last + 1):
            for transition in graph.outgoing[each]:
                rival = next(self._rivals(parallel, leaving, transition), None)
                # Where both leave, the pair is told once, at the later one.
                if rival is None or (graph.leaves(transition, parallel.index) and transition.index < rival.index):
                    continue
                message = (
                    f"{trigger(transition)} is also taken in {review.name(rival.source)}, "
                    f"where it leaves {review.name(parallel)}: only the first in document order happens"
                )
                hint = f"let {review.name(parallel)} itself take the event, or give the regions different events"
                review.lint("parallel.conflict", message, transition.source, transition.place, hint)

    def _rivals(self, parallel: State, leaving: DescriptorIndex, transition: Transition) -> Iterator[Transition]:
        region = self.graph.child(parallel.index, transition.source)
        for rival in islice(_rivals(leaving, transition), RIVALS_MAX):
            self.pairs += 1
            if self.pairs > CONFLICTS_MAX:
                return
            guards = (rival.guard, transition.guard)
            apart = guards[0] and guards[1] and self.exclusion.exclusive(guards[0], guards[1])
            if not apart and not self.graph.is_within(rival.source, region):
                yield rival


def lint_wildcards(review: Review, graph: Graph) -> None:
    """Wildcards in a state that hide the timers and results of a state around it."""
    waiting = [_awaited(graph, state) for state in graph.states]
    for transition in graph.transitions:
        wide = [each for each in transition.descriptors if not each.exact] if is_free(transition) else []
        for ancestor in graph.path(transition.source)[1:]:
            hidden = next((waiting[ancestor][each.tokens] for each in wide if each.tokens in waiting[ancestor]), None)
            if hidden is not None:
                message = f'{trigger(transition)} also takes "{hidden}", which {review.name(ancestor)} waits for'
                hint = "name the events you mean, or give it a guard on `event.name`"
                review.lint("descriptor.hides_timer", message, transition.source, transition.place, hint)
                break


def _awaited(graph: Graph, state: State) -> dict[tuple[str, ...], str]:
    """The events that the compiler made for a state, under every prefix that takes them."""
    made = [one for each in state.transitions for one in graph.transitions[each].descriptors if one.exact]
    kernels = [each for each in made if each.tokens[0] in ("after", "done", "error")]
    return {each.tokens[:length]: each.text for each in kernels for length in range(len(each.tokens) + 1)}


def lint_completion(review: Review, graph: Graph) -> None:
    """A parallel state directly inside another does not always complete it (S29)."""
    if review.chart.dialect.done != "scxml":
        return
    for transition in graph.transitions:
        source = graph.states[transition.source]
        if transition.origin != "onDone" or source.type != "parallel":
            continue
        inner = [each for each in graph.regions(source) if graph.states[each].type == "parallel"]
        if inner:
            message = (
                f"{review.name(source)} is not done when the last final state entered lies in {review.name(inner[0])}, "
                "a parallel state directly inside it"
            )
            hint = f"put a compound state between {review.name(source)} and {review.name(inner[0])}"
            review.lint("done.nested_parallel", message, source.index, transition.place, hint)
