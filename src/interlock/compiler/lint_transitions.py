"""Lints about choice: transitions that can never be chosen, that loop, or between which only their order decides."""

from __future__ import annotations

from collections.abc import Iterator

from interlock.compiler.content import guards
from interlock.compiler.exclusive import exclusive
from interlock.compiler.graph import DescriptorIndex, Graph, is_free
from interlock.compiler.review import Review, trigger
from interlock.model.action import (
    Assign,
    AssignCall,
    Block,
    Foreach,
    GuardExpression,
    Script,
    block_actions,
    guard_parts,
)
from interlock.model.chart import State, Transition

PAIRS_MAX = 10_000
"""Pairs of transitions compared for overlap in one chart: keeps a hostile definition from taking quadratic time."""


def lint_choice(review: Review, graph: Graph) -> None:
    """Per state, transitions that an earlier one hides, and guards that do not exclude each other."""
    pairs = 0
    for state in graph.states:
        earlier = DescriptorIndex()
        free = DescriptorIndex()
        for number in state.transitions:
            transition = graph.transitions[number]
            if free.covers(transition) or any(_is_repeated(each, transition) for each in _rivals(earlier, transition)):
                message = f"{trigger(transition)} can never be chosen here: an earlier transition always takes it first"
                review.lint(
                    "transition.shadowed", message, state.index, transition.place, "take it out, or put it first"
                )
            elif transition.guard is not None and not _is_of_saga(review, transition):
                for rival in _rivals(earlier, transition):
                    pairs += 1
                    if pairs > PAIRS_MAX or _lint_overlap(review, rival, transition):
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


def _lint_overlap(review: Review, first: Transition, second: Transition) -> bool:
    """Tells when two guards can hold together; whether it did."""
    if first.guard is None or second.guard is None or exclusive(first.guard, second.guard, review.names.parsed):
        return False
    message = f"for {trigger(second)} both this guard and an earlier one may hold: their order decides"
    hint = "make the guards exclude each other, or leave it when the order says what you mean"
    review.lint("transition.overlap", message, second.source, second.place, hint)
    return True


def lint_guards(review: Review) -> None:
    """Guards that always say the same."""
    for state, guard, _ in guards(review.chart):
        for part in guard_parts(guard):
            if isinstance(part, GuardExpression):
                parsed = review.names.parsed.get(part.expression.text)
                if parsed is not None and parsed.constant:
                    message = f'the guard "{part.expression.text.strip()}" reads nothing, so it always says the same'
                    hint = "take it out, or compare something of the context or the event"
                    review.lint("guard.constant", message, state, part.expression.place, hint)


# Eventless loops


def lint_loops(review: Review, graph: Graph) -> None:
    """Eventless transitions that follow each other for ever."""
    if review.chart.dialect.eventless != "loop":
        return
    told: set[int] = set()
    for transition in graph.transitions:
        if transition.descriptors or transition.index in told:
            continue
        if transition.guard is not None:
            if _comes_back(graph, transition) and not _changes(graph, transition):
                message = "it leads back to where it was and changes nothing, so its guard holds again, for ever"
                review.lint(
                    "always.loop", message, transition.source, transition.place, "let it change what its guard reads"
                )
            continue
        cycle = _cycle(graph, transition)
        if cycle is not None:
            told.update(each.index for each in cycle)
            names = " -> ".join(review.name(each.source) for each in (*cycle, cycle[0]))
            message = f"eventless transitions without a guard go round for ever: {names}"
            review.lint("always.loop", message, transition.source, transition.place, "give one of them a guard")


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


def _cycle(graph: Graph, start: Transition) -> list[Transition] | None:
    """The circle of unguarded eventless transitions that begins with this one, if it is in one."""
    origin: dict[int, Transition] = {}
    queue = [start]
    for each in queue:  # grows by each transition at most once
        for following in _following(graph, each):
            if following.index == start.index:
                path = [each]
                while path[0].index != start.index:
                    path.insert(0, origin[path[0].index])
                return path
            if following.index not in origin:
                origin[following.index] = each
                queue.append(following)
    return None


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
    for state in graph.states:
        if state.type != "parallel" or review.is_generated(state.index):
            continue
        regions = graph.regions(state)
        inside = {region: _targeted(graph, region) for region in regions}
        for region in regions:
            leaving = DescriptorIndex(each for each in inside[region] if graph.leaves(each, state.index))
            for other in regions:
                if other != region:
                    _lint_conflicts(review, graph, state, leaving, inside[other])


def _targeted(graph: Graph, region: int) -> list[Transition]:
    first, last = region, graph.states[region].last
    numbers = [number for each in range(first, last + 1) for number in graph.states[each].transitions]
    return [graph.transitions[each] for each in numbers if graph.transitions[each].targets]


def _lint_conflicts(
    review: Review, graph: Graph, parallel: State, leaving: DescriptorIndex, others: list[Transition]
) -> None:
    for transition in others:
        rival = next(_conflicting(review, leaving, transition), None)
        if rival is None or (graph.leaves(transition, parallel.index) and transition.index < rival.index):
            # Where both leave, the pair is told once, at the later one.
            continue
        message = (
            f"{trigger(transition)} is also taken in {review.name(rival.source)}, "
            f"where it leaves {review.name(parallel)}: only the first in document order happens"
        )
        hint = f"let {review.name(parallel)} itself take the event, or give the regions different events"
        review.lint("parallel.conflict", message, transition.source, transition.place, hint)


def _conflicting(review: Review, leaving: DescriptorIndex, transition: Transition) -> Iterator[Transition]:
    for rival in _rivals(leaving, transition):
        both = rival.guard is not None and transition.guard is not None
        if not (both and exclusive(rival.guard, transition.guard, review.names.parsed)):  # type: ignore[arg-type]
            yield rival


def lint_wildcards(review: Review, graph: Graph) -> None:
    """Wildcards in a state that hide the timers and results of a state around it."""
    for transition in graph.transitions:
        wide = [each for each in transition.descriptors if not each.exact] if is_free(transition) else []
        for ancestor in graph.path(transition.source)[1:] if wide else ():
            made = [graph.transitions[each] for each in graph.states[ancestor].transitions]
            names = [
                one.text
                for each in made
                for one in each.descriptors
                if one.exact and one.tokens[0] in ("after", "done", "error")
            ]
            hidden = next((name for name in names if any(each.matches(name) for each in wide)), None)
            if hidden is not None:
                message = f'{trigger(transition)} also takes "{hidden}", which {review.name(ancestor)} waits for'
                hint = "name the events you mean, or give it a guard on `event.name`"
                review.lint("descriptor.hides_timer", message, transition.source, transition.place, hint)
                break


def lint_completion(review: Review, graph: Graph) -> None:
    """A parallel state directly inside another does not always complete it (S29)."""
    if review.chart.dialect.done != "scxml":
        return
    for transition in graph.transitions:
        source = graph.states[transition.source]
        inner = [each for each in graph.regions(source) if graph.states[each].type == "parallel"]
        if transition.origin == "onDone" and source.type == "parallel" and inner:
            message = (
                f"{review.name(source)} is not done when the last final state entered lies in {review.name(inner[0])}, "
                "a parallel state directly inside it"
            )
            hint = f"put a compound state between {review.name(source)} and {review.name(inner[0])}"
            review.lint("done.nested_parallel", message, source.index, transition.place, hint)
