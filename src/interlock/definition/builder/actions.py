"""Guards and actions of the Python builder, one function each.

Rule 1: where a guard or an action is expected, a string is the name of a registered function or handler.
Rule 2: names are those of the vocabulary; reserved words of Python end in `_`: `raise_`, `if_`, `not_`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from interlock.definition.builder.values import (
    Json,
    caller_location,
    choice,
    definition_error,
    items,
    name,
    optional_text,
    text,
    usage_error,
    value,
)
from interlock.definition.vocabulary.names import DURATION, EVENT, FIELD_PATH, TEXT
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
    RestorePolicy,
    Script,
    Send,
)

GuardLike: TypeAlias = Guard | Expression | str
"""A guard, an expression, or the name of a registered function."""

ActionLike: TypeAlias = Action | str
"""An action, or the name of a handler."""

Actions: TypeAlias = ActionLike | Sequence[ActionLike]
"""One action or several: a block."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """Several blocks: an error in one does not stop the next."""

    blocks: tuple[Block, ...]


def blocks(*each: Actions) -> Blocks:
    """Return several blocks for `entry` or `exit`: an error in one does not skip the others."""
    return Blocks(tuple(read_block(one) for one in each))


def read_guard(given: object, what: str = "a guard") -> Guard:
    """The guard of a name, an expression or a guard."""
    if isinstance(given, Guard):
        return given
    if isinstance(given, Expression):
        return GuardExpression(expression=given, location=given.location)
    if isinstance(given, str):
        return GuardName(name=name(given, what), location=caller_location())
    raise usage_error(what, "a name, an expression or a guard", given)


def optional_guard(given: object) -> Guard | None:
    """The guard; None if there is none."""
    return None if given is None else read_guard(given)


def read_action(given: object) -> Action:
    """The action of a handler's name or an action."""
    if isinstance(given, Action):
        return given
    if isinstance(given, str):
        return Do(name=name(given, "an action"), location=caller_location())
    raise usage_error("an action", "a handler's name or an action", given)


def read_block(given: object) -> Block:
    """The block of one action or a list of actions."""
    if isinstance(given, str | Action):
        return (read_action(given),)
    return tuple(read_action(each) for each in items(given, "actions"))


def guard(function: str, arguments: Json = None) -> GuardName:
    """Return a guard that calls a registered pure function of context and event, with arguments."""
    return GuardName(
        name=name(function, "a guard"), arguments=value(arguments, "arguments"), location=caller_location()
    )


def all_of(*guards: GuardLike) -> GuardAll:
    """Return a guard that is true if all are true."""
    return GuardAll(guards=tuple(read_guard(each) for each in guards), location=caller_location())


def any_of(*guards: GuardLike) -> GuardAny:
    """Return a guard that is true if one of them is true."""
    return GuardAny(guards=tuple(read_guard(each) for each in guards), location=caller_location())


def not_(guard: GuardLike) -> GuardNot:
    """Return a guard that is true if the given one is false."""
    return GuardNot(guard=read_guard(guard), location=caller_location())


def in_state(state: str) -> GuardIn:
    """Return a guard that is true while the state is active; `state` is an id, or a target as in the transition."""
    return GuardIn(state=text(state, TEXT, "a state"), location=caller_location())


def do(handler: str, arguments: Mapping[str, Json] | Expression | None = None) -> Do:
    """Return an action that calls a handler: an effect."""
    if arguments is not None and not isinstance(arguments, Mapping | Expression):
        raise usage_error("the arguments of an action", "a mapping or an expression", arguments)
    return Do(name=name(handler, "a handler"), arguments=value(arguments, "arguments"), location=caller_location())


def assign(values: Mapping[str, Json] | None = None, /, **fields: Json) -> Assign:
    """Return an action that writes values to the context: a mapping for dotted paths, keywords for plain fields.

    >>> assign({"address.city": "Ulm"}, visits=1).values
    (('address.city', 'Ulm'), ('visits', 1))
    """
    if values is not None and not isinstance(values, Mapping):
        raise usage_error("the assigned values", "a mapping", values)
    given = {**(values or {}), **fields}
    pairs = tuple((text(path, TEXT, "a field"), value(each, f"the value of {path}")) for path, each in given.items())
    if not pairs:
        raise definition_error("value.empty", "this assign has no values", "give at least one field and its value")
    return Assign(values=pairs, location=caller_location())


def assign_from(function: str, arguments: Json = None) -> AssignCall:
    """Return an action that writes the fields that a registered pure function returns."""
    return AssignCall(
        name=name(function, "a function"), arguments=value(arguments, "arguments"), location=caller_location()
    )


def raise_(event: str | Expression, data: Json = None) -> Raise:
    """Return an action that puts an event at the end of the internal queue."""
    return Raise(event=_event(event), data=value(data, "data"), location=caller_location())


def send(
    event: str | Expression,
    data: Json = None,
    *,
    to: str | Expression | None = None,
    delay: str | Expression | None = None,
    id: str | Expression | None = None,
    id_location: str | None = None,
    type: str | Expression | None = None,
    restore: RestorePolicy | None = None,
) -> Send:
    """Return an action that sends an event: an effect, or a timer with `delay`.

    `restore`: how downtime affects the timer.
    `to`: `self` (default), `internal`, `parent`, an invoke's id, or an expression giving `kind/id`.
    """
    return Send(
        event=_event(event),
        to=_optional(to, "`to`"),
        delay=delay if isinstance(delay, Expression) else optional_text(delay, DURATION, "a delay"),
        id=_optional(id, "the id of a send"),
        id_location=optional_text(id_location, FIELD_PATH, "the location of an id"),
        data=value(data, "data"),
        type=_optional(type, "the type of a send"),
        restore=choice(restore, (None, "deadline", "remaining", "restart"), "`restore`"),
        location=caller_location(),
    )


def cancel(id: str | Expression) -> Cancel:
    """Return an action that cancels this entity's pending timers of a send id."""
    return Cancel(id=_value_or_text(id, "a send id"), location=caller_location())


def emit(type: str | Expression, data: Json = None) -> Emit:
    """Return an action that publishes a message through the outbox; `type` is its CloudEvents type."""
    return Emit(type=_value_or_text(type, "a message's type"), data=value(data, "data"), location=caller_location())


def log(message: Json = None, *, label: str | None = None) -> Log:
    """Return an action that writes a log line after the step is stored: a constant label, and a value."""
    return Log(
        label=optional_text(label, TEXT, "a label"),
        value=value(message, "the logged value"),
        location=caller_location(),
    )


def if_(
    guard: GuardLike,
    then: Actions,
    *,
    elif_: Sequence[tuple[GuardLike, Actions]] = (),
    else_: Actions = (),
) -> If:
    """Return an action that runs the block of the first branch whose guard is true, else `else_`."""
    branches = [(read_guard(guard), read_block(then))]
    for each in items(elif_, "`elif_`"):
        match each:
            case (condition, actions):
                branches.append((read_guard(condition), read_block(actions)))
            case _:
                raise usage_error("each of `elif_`", "a pair of a guard and actions", each)
    return If(branches=tuple(branches), otherwise=read_block(else_), location=caller_location())


def foreach(list_: Sequence[Json] | Expression, actions: Actions, *, item: str, index: str | None = None) -> Foreach:
    """Return an action that runs a block once per item of a list; `item` and `index` are context fields."""
    if not isinstance(list_, Expression):
        items(list_, "the list of `foreach`")
    return Foreach(
        items=value(list_, "the list of `foreach`"),
        item=text(item, TEXT, "`item`"),
        index=optional_text(index, TEXT, "`index`"),
        block=read_block(actions),
        location=caller_location(),
    )


def script(source: str) -> Script:
    """Return an action with code of another language, refused unless the caller provides a trusted language for it."""
    return Script(text=text(source, TEXT, "a script"), location=caller_location())


def _event(given: str | Expression) -> str | Expression:
    return given if isinstance(given, Expression) else text(given, EVENT, "an event")


def _value_or_text(given: str | Expression, what: str) -> str | Expression:
    return given if isinstance(given, Expression) else text(given, TEXT, what)


def _optional(given: str | Expression | None, what: str) -> str | Expression | None:
    return None if given is None else _value_or_text(given, what)
