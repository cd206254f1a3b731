"""Every block, guard and expression of a chart with its state.

Rule 1: document order, at any depth of `if` and `foreach`.
Rule 2: all checks of content use these functions, so that no block and no expression is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from interlock.model.charts.chart import Chart, Transition
from interlock.model.document.actions import Action, Block, Emit, Expression, Foreach, Guard, If, Raise, Send, Value
from interlock.model.document.field import UNSET, Field
from interlock.model.document.walk import action_expressions, block_actions, guard_expressions, value_expressions
from interlock.model.event import is_reserved

Role = Literal["entry", "exit", "transition", "initial", "history", "finalize"]


@dataclass(frozen=True, slots=True)
class BlockSite:
    """A block with its state, its role there, and its transition if it has one."""

    state: int
    role: Role
    block: Block
    transition: Transition | None = None

    def actions(self) -> Iterator[Action]:
        """Every action of the block, at any depth."""
        return block_actions(self.block)


@dataclass(frozen=True, slots=True)
class ExpressionSite:
    """An expression with its state, its transition if it has one, and whether it belongs to an invoke."""

    state: int
    expression: Expression
    transition: Transition | None = None
    invoke: bool = False


def block_sites(chart: Chart) -> Iterator[BlockSite]:
    """Every block of a chart that is not empty."""
    for state in chart.states:
        found = [
            *(BlockSite(state.index, "entry", block) for block in state.entry),
            *(BlockSite(state.index, "exit", block) for block in state.exit),
            BlockSite(state.index, "initial", state.initial_block),
            BlockSite(state.index, "history", state.default_block),
            *(BlockSite(state.index, "finalize", invoke.finalize or ()) for invoke in state.invokes),
        ]
        for number in state.transitions:
            transition = chart.transitions[number]
            found.append(BlockSite(state.index, "transition", transition.block, transition))
        yield from (each for each in found if each.block)


def guard_sites(chart: Chart) -> Iterator[tuple[int, Guard, Transition | None]]:
    """Every guard of transitions and of `if`, with its state, and its transition if it has one."""
    for transition in chart.transitions:
        if transition.guard is not None:
            yield transition.source, transition.guard, transition
    for site in block_sites(chart):
        for action in site.actions():
            if isinstance(action, If):
                yield from ((site.state, guard, None) for guard, _ in action.branches)


def expression_sites(chart: Chart) -> Iterator[ExpressionSite]:
    """Every expression of a chart, once for each place."""
    for state in chart.states:
        index = state.index
        values: list[Value] = [state.output, *(each.delay for each in state.after)]
        values += [each.default for each in state.context if each.default is not UNSET]
        yield from (ExpressionSite(index, each) for value in values for each in value_expressions(value))
        for invoke in state.invokes:
            given = [invoke.src, invoke.type, invoke.input, invoke.key]
            yield from (ExpressionSite(index, each, None, True) for value in given for each in value_expressions(value))
    for transition in chart.transitions:
        if transition.guard is not None:
            for each in guard_expressions(transition.guard):
                yield ExpressionSite(transition.source, each, transition)
    for site in block_sites(chart):
        for action in site.actions():
            yield from (ExpressionSite(site.state, each, site.transition) for each in action_expressions(action))
    for event in chart.events or ():
        yield from (
            ExpressionSite(0, each) for value in (event.permit, event.dedupe) for each in value_expressions(value)
        )
    yield from (ExpressionSite(0, each.permit) for each in (chart.create, chart.read) if each and each.permit)


def written_names(chart: Chart) -> frozenset[str]:
    """Every literal name in a chart: of events, handlers, timers, sends, targets, sources and messages."""
    found: set[Value] = {*chart.handlers, *(each.name for each in chart.events or ())}
    for state in chart.states:
        found.update(each.event for each in state.after)
        found.update((f"done.state.{state.id}",))
        for invoke in state.invokes:
            found.update(each for each in (invoke.src, invoke.type, invoke.id) if isinstance(each, str))
    for transition in chart.transitions:
        found.update(each.text for each in transition.descriptors)
    for site in block_sites(chart):
        for action in site.actions():
            found.update(each for each in computable_names(action) if isinstance(each, str))
    return frozenset(found)


def event_names(chart: Chart) -> tuple[str, ...]:
    """Return the events that a sender can send: the declared events or, without declarations, those of transitions."""
    if chart.events is not None:
        return tuple(each.name for each in chart.events if each.direction == "in")
    texts = (each.text for transition in chart.transitions for each in transition.descriptors)
    return tuple(dict.fromkeys(each for each in texts if not is_reserved(each)))


def takes_any_event(chart: Chart) -> bool:
    """Whether a chart without declared events also takes names that it does not write.

    It does if a transition has the event `*`, or if an invoke forwards every event to a child.
    """
    if chart.events is not None:
        return False
    wildcard = any(not each.tokens for transition in chart.transitions for each in transition.descriptors)
    return wildcard or any(invoke.autoforward for state in chart.states for invoke in state.invokes)


def computable_names(action: Action) -> tuple[Value, ...]:
    """The names in an action that may be computed; names are stored and shown unmasked."""
    match action:
        case Send():
            return action.event, action.to, action.id, action.type
        case Raise():
            return (action.event,)
        case Emit():
            return (action.type,)
        case _:
            return ()


def declared_fields(chart: Chart) -> dict[str, Field]:
    """Every declared field of the context, by name."""
    return {field.name: field for state in chart.states for field in state.context}


def known_fields(chart: Chart) -> set[str]:
    """Every name that the context can have: declared fields, and the variables of `foreach`."""
    names = set(declared_fields(chart))
    for site in block_sites(chart):
        for action in site.actions():
            if isinstance(action, Foreach):
                names.update(each for each in (action.item, action.index) if each is not None)
    return names
