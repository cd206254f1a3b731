"""Run an expression as the kernel would: parse, compile, call. Shared by the tests of this folder."""

from __future__ import annotations

from typing import Any

from interlock.expression.codegen import Meter, compile_parsed, describe_exception
from interlock.expression.parser import ExpressionError, parse
from interlock.model.event import Event
from interlock.model.limits import WORK_MAX

WORK = WORK_MAX
EVENT = Event("paid", data={"amount": 5, "size": "m"}, id="e-1", time_ms=1_000, principal={"id": "ann"})
ROOTS = frozenset({"context", "event", "entity", "principal"})


class Entity:
    """Has the fields of an entity that an expression can read."""

    id = "A-1"
    kind = "order"
    version = 3


def evaluate(
    text: str,
    context: dict[str, Any] | None = None,
    *,
    event: Any = EVENT,
    active: frozenset[str] = frozenset(),
    meter: Meter | None = None,
    principal: Any = None,
) -> Any:
    """Return the value of an expression. State ids are as in the text."""
    parsed = parse(text, names=ROOTS)
    inside = {name: name for name, _ in parsed.inside}
    function = compile_parsed(parsed, inside=inside).function
    counted = Meter(WORK) if meter is None else meter
    return function(context or {}, event, Entity(), active, counted, principal)


def failure(text: str, context: dict[str, Any] | None = None, **given: Any) -> tuple[str, str]:
    """The code and message of an expression that has no value."""
    try:
        value = evaluate(text, context, **given)
    except Exception as error:  # noqa: BLE001  # `describe_exception` describes it
        return describe_exception(error)
    raise AssertionError(f"{text} has the value {value!r}")


def refusal(text: str, *, names: frozenset[str] = ROOTS) -> ExpressionError:
    """The error of a text that is not an expression."""
    try:
        parse(text, names=names)
    except ExpressionError as error:
        return error
    raise AssertionError(f"{text!r} was accepted")
