"""What a chart names: expressions, values, guards and actions. Documents and charts share them.

Rule 1: these are values; what they mean is said in `kernel/`, how they are written in `definition/`.
Rule 2: a place never counts in equality, so a chart read back from another format compares equal.
Rule 3: lists and mappings inside a value are never changed in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from interlock.errors import NOWHERE, Place


@dataclass(frozen=True, slots=True)
class Expression:
    """A text of the expression language, without YAML's leading `=`.

    `inside` is filled by the compiler: what each literal of `In('...')` means, as pairs (literal, state id).
    `malformed` is set by it where the dialect lets a bad expression load: evaluating it then fails with this message.
    """

    text: str
    place: Place = field(default=NOWHERE, compare=False)
    inside: tuple[tuple[str, str], ...] = ()
    malformed: str | None = None


Value = Any
"""A literal JSON value, in which an `Expression` may stand anywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardName:
    """A registered pure function of (context, event), or of (context, event, arguments) where `arguments` are given."""

    name: str
    arguments: Value = None
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardExpression:
    """An expression; Python's truth of its value decides."""

    expression: Expression
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardAll:
    """Holds when all of its guards hold; stops at the first that does not."""

    guards: tuple[Guard, ...]
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardAny:
    """Holds when one of its guards holds; stops at the first that does."""

    guards: tuple[Guard, ...]
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardNot:
    """Holds when its guard does not."""

    guard: Guard
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardIn:
    """Holds while the state is active. In a document `state` is an id or a target, in a chart an id."""

    state: str
    place: Place = field(default=NOWHERE, compare=False)


Guard = GuardName | GuardExpression | GuardAll | GuardAny | GuardNot | GuardIn


@dataclass(frozen=True, slots=True, kw_only=True)
class Do:
    """Ask a handler: becomes a `call` effect. `arguments` is None or a mapping of values, the handler's input."""

    name: str
    arguments: Value = None
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assign:
    """Write values into the context, in the order given; each pair is (dotted path of a field, value)."""

    values: tuple[tuple[str, Value], ...]
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignCall:
    """Write what a registered pure function of (context, event) returns: a mapping field -> value."""

    name: str
    arguments: Value = None
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Raise:
    """Put an event at the end of the internal queue. `event` is a name or an Expression."""

    event: Value
    data: Value = None
    place: Place = field(default=NOWHERE, compare=False)


RestorePolicy = Literal["deadline", "remaining", "restart"]
"""What downtime means to a timer (S39)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Send an event: an effect, or with `delay` a timer.

    `to`: None or `self`; `internal`; `parent`; an invoke id; SCXML's `#_...`; `kind/id`; or an Expression giving one.
    `delay`: None, a duration text, or an Expression giving one or whole milliseconds; `restore` is what downtime means
    to it.
    """

    event: Value
    to: Value = None
    delay: Value = None
    id: Value = None
    id_location: str | None = None
    data: Value = None
    type: Value = None
    restore: RestorePolicy | None = None
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """Drop this entity's pending timers of a send id."""

    id: Value
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Emit:
    """Publish a message through the outbox; `type` is its CloudEvents type."""

    type: Value
    data: Value = None
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """Write a log line after the step is kept."""

    label: str | None = None
    value: Value = None
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class If:
    """Run the block of the first branch whose guard holds, else `otherwise`."""

    branches: tuple[tuple[Guard, Block], ...]
    otherwise: Block = ()
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreach:
    """Run a block once per item of a shallow copy of a list; `item` and `index` are context fields."""

    items: Value
    item: str
    index: str | None = None
    block: Block
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """Code of another language, refused unless the caller brings a trusted language for it."""

    text: str
    place: Place = field(default=NOWHERE, compare=False)


Action = Do | Assign | AssignCall | Raise | Send | Cancel | Emit | Log | If | Foreach | Script
Block = tuple[Action, ...]
"""Actions that share one fate: an error in one skips the rest of its block, and no more."""

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


def value_rewritten(value: Value, change: Callable[[Expression], Value]) -> Value:
    """The value with `change` applied to every expression in it."""
    if isinstance(value, Expression):
        return change(value)
    if isinstance(value, dict):
        return {key: value_rewritten(each, change) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [value_rewritten(each, change) for each in value]
    return value


def guard_rewritten(guard: Guard, change: Callable[[Expression], Value], inside: Callable[[GuardIn], Guard]) -> Guard:
    """The guard with `change` applied to every expression and `inside` to every `{in: state}`."""
    match guard:
        case GuardExpression():
            return replace(guard, expression=change(guard.expression))
        case GuardAll() | GuardAny():
            return replace(guard, guards=tuple(guard_rewritten(each, change, inside) for each in guard.guards))
        case GuardNot():
            return replace(guard, guard=guard_rewritten(guard.guard, change, inside))
        case GuardIn():
            return inside(guard)
        case _:
            return replace(guard, arguments=value_rewritten(guard.arguments, change))


def block_rewritten(block: Block, change: Callable[[Expression], Value], inside: Callable[[GuardIn], Guard]) -> Block:
    """The block with every expression and every `{in: state}` in it replaced, at any depth."""
    return tuple(_action_rewritten(action, change, inside) for action in block)


def _action_rewritten(
    action: Action, change: Callable[[Expression], Value], inside: Callable[[GuardIn], Guard]
) -> Action:
    match action:
        case Assign():
            return replace(
                action, values=tuple((path, value_rewritten(value, change)) for path, value in action.values)
            )
        case If():
            branches = tuple(
                (guard_rewritten(guard, change, inside), block_rewritten(block, change, inside))
                for guard, block in action.branches
            )
            return replace(action, branches=branches, otherwise=block_rewritten(action.otherwise, change, inside))
        case Foreach():
            return replace(
                action,
                items=value_rewritten(action.items, change),
                block=block_rewritten(action.block, change, inside),
            )
        case Script():
            return action
        case _:
            fields = {name: value_rewritten(getattr(action, name), change) for name in _VALUE_FIELDS[type(action)]}
            return replace(action, **fields)


def block_actions(block: Block) -> Iterator[Action]:
    """Every action of a block, those inside `if` and `foreach` too, in document order."""
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
    """Every expression a guard may evaluate, those of its arguments too."""
    for part in guard_parts(guard):
        if isinstance(part, GuardExpression):
            yield part.expression
        elif isinstance(part, GuardName):
            yield from value_expressions(part.arguments)


def action_expressions(action: Action) -> Iterator[Expression]:
    """Every expression of one action itself; not of the blocks inside it."""
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


def guard_text(guard: Guard) -> str:
    """The guard in one line, as people read it: `paid`, `context.amount > 0`, `not In('live')`."""
    match guard:
        case GuardName():
            return guard.name
        case GuardExpression():
            return guard.expression.text.strip()
        case GuardIn():
            return f"In('{guard.state}')"
        case GuardNot():
            return f"not {_operand_text(guard.guard)}"
        case _:
            word = " and " if isinstance(guard, GuardAll) else " or "
            return word.join(map(_operand_text, guard.guards))


def _operand_text(guard: Guard) -> str:
    """A guard inside another one: in brackets, unless it is a name or an `In`."""
    text = guard_text(guard)
    return text if isinstance(guard, GuardName | GuardIn) else f"({text})"
