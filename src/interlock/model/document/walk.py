"""Walks over a document, and rewrites of values, guards and blocks.

Rule 1: order is document order.
Rule 2: code that needs every state, transition, block, guard or expression of a document uses these functions, so that
        none is forgotten.
Rule 3: `documents` and `states` use no recursion, because they run before the depth of a document is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from interlock.model.document.actions import (
    Action,
    Assign,
    AssignCall,
    Block,
    Cancel,
    Do,
    Emit,
    Expression,
    Foreach,
    Guard,
    GuardAll,
    GuardAny,
    GuardExpression,
    GuardIn,
    GuardName,
    GuardNot,
    If,
    Log,
    Raise,
    Script,
    Send,
    Value,
)
from interlock.model.document.document import Document, State, Transition

ExpressionRewriter = Callable[[Expression], Value]
InStateRewriter = Callable[[GuardIn], Guard]

_VALUE_FIELDS: dict[type[Any], tuple[str, ...]] = {
    Do: ("arguments",),
    AssignCall: ("arguments",),
    Raise: ("event", "data"),
    Send: ("event", "to", "delay", "id", "data", "type"),
    Cancel: ("id",),
    Emit: ("type", "data"),
    Log: ("value",),
    Foreach: ("items",),
    GuardName: ("arguments",),
}


def documents(document: Document) -> Iterator[Document]:
    """The document and every inline chart in it, at any depth."""
    stack = [document]
    while stack:
        each = stack.pop()
        yield each
        invokes = (invoke for state in states(each.root) for invoke in state.invokes)
        stack.extend(invoke.src for invoke in invokes if isinstance(invoke.src, Document))


def states(root: State) -> Iterator[State]:
    """The state and every state below it, without those of inline charts."""
    stack = [root]
    while stack:
        state = stack.pop()
        yield state
        stack.extend(reversed(state.states))


def state_transitions(state: State) -> Iterator[Transition]:
    """The transitions of a state: its own, and those for the results of its invokes and its saga."""
    yield from state.transitions
    for invoke in state.invokes:
        yield from invoke.done
        yield from invoke.error
    if state.saga is not None:
        yield from (*state.saga.done, *state.saga.compensated, *state.saga.error)


def state_blocks(state: State) -> Iterator[Block]:
    """Every block of a state, those of its transitions and invokes included."""
    yield from (*state.entry, *state.exit, state.actions)
    if state.initial is not None:
        yield state.initial.actions
    yield from (invoke.finalize for invoke in state.invokes if invoke.finalize is not None)
    yield from (transition.actions for transition in state_transitions(state))


def state_guards(state: State) -> Iterator[Guard]:
    """The guards of a state's transitions and saga steps; not those of `if`."""
    yield from (each.guard for each in state_transitions(state) if each.guard is not None)
    if state.saga is not None:
        yield from (step.guard for step in state.saga.steps if step.guard is not None)


def block_actions(block: Block) -> Iterator[Action]:
    """Every action of a block in document order, also those inside `if` and `foreach`."""
    for action in block:
        yield action
        if isinstance(action, If):
            for _, inner in action.branches:
                yield from block_actions(inner)
            yield from block_actions(action.otherwise)
        elif isinstance(action, Foreach):
            yield from block_actions(action.block)


def value_expressions(value: Value) -> Iterator[Expression]:
    """Every expression in a value, in order."""
    if isinstance(value, Expression):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from value_expressions(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from value_expressions(each)


def guard_parts(guard: Guard) -> Iterator[Guard]:
    """The guard and every guard inside it."""
    yield guard
    match guard:
        case GuardAll() | GuardAny():
            for each in guard.guards:
                yield from guard_parts(each)
        case GuardNot():
            yield from guard_parts(guard.guard)
        case _:
            pass


def guard_expressions(guard: Guard) -> Iterator[Expression]:
    """Every expression of a guard, also in its arguments."""
    for part in guard_parts(guard):
        if isinstance(part, GuardExpression):
            yield part.expression
        elif isinstance(part, GuardName):
            yield from value_expressions(part.arguments)


def action_expressions(action: Action) -> Iterator[Expression]:
    """Every expression of the action itself, without those of blocks inside it."""
    match action:
        case Assign():
            for _, value in action.values:
                yield from value_expressions(value)
        case If():
            for guard, _ in action.branches:
                yield from guard_expressions(guard)
        case Script():
            return
        case _:
            for name in _VALUE_FIELDS[type(action)]:
                yield from value_expressions(getattr(action, name))


def rewrite_value(value: Value, rewrite: ExpressionRewriter) -> Value:
    """The value with every expression in it replaced."""
    if isinstance(value, Expression):
        return rewrite(value)
    if isinstance(value, dict):
        return {key: rewrite_value(each, rewrite) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [rewrite_value(each, rewrite) for each in value]
    return value


def rewrite_guard(guard: Guard, rewrite: ExpressionRewriter, rewrite_in: InStateRewriter) -> Guard:
    """The guard with every expression and every `{in: state}` in it replaced."""
    match guard:
        case GuardExpression():
            return replace(guard, expression=rewrite(guard.expression))
        case GuardAll() | GuardAny():
            return replace(guard, guards=tuple(rewrite_guard(each, rewrite, rewrite_in) for each in guard.guards))
        case GuardNot():
            return replace(guard, guard=rewrite_guard(guard.guard, rewrite, rewrite_in))
        case GuardIn():
            return rewrite_in(guard)
        case _:
            return replace(guard, arguments=rewrite_value(guard.arguments, rewrite))


def rewrite_block(block: Block, rewrite: ExpressionRewriter, rewrite_in: InStateRewriter) -> Block:
    """The block with every expression and every `{in: state}` in it replaced, at any depth."""
    return tuple(_rewrite_action(action, rewrite, rewrite_in) for action in block)


def _rewrite_action(action: Action, rewrite: ExpressionRewriter, rewrite_in: InStateRewriter) -> Action:
    match action:
        case Assign():
            values = tuple((path, rewrite_value(value, rewrite)) for path, value in action.values)
            return replace(action, values=values)
        case If():
            branches = tuple(
                (rewrite_guard(guard, rewrite, rewrite_in), rewrite_block(block, rewrite, rewrite_in))
                for guard, block in action.branches
            )
            return replace(action, branches=branches, otherwise=rewrite_block(action.otherwise, rewrite, rewrite_in))
        case Foreach():
            items, block = rewrite_value(action.items, rewrite), rewrite_block(action.block, rewrite, rewrite_in)
            return replace(action, items=items, block=block)
        case Script():
            return action
        case _:
            fields = {name: rewrite_value(getattr(action, name), rewrite) for name in _VALUE_FIELDS[type(action)]}
            return replace(action, **fields)
