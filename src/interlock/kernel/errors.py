"""The two kinds of failure inside a step: one operation fails, or the whole step.

Rule: the chart sees the error of an operation as an event (S25). A limit fails the step, and so does every error under
`errors: raise`.
"""

from __future__ import annotations

from typing import Any

from interlock.expression.codegen import describe_exception
from interlock.model.document.field import type_name
from interlock.model.event import RESERVED_HINT
from interlock.model.step import Fault


class StepFailed(Exception):
    """The whole step fails: it reached a limit, or an action failed under `errors: raise`."""

    def __init__(self, code: str, message: str, place: str = "") -> None:
        super().__init__(message)
        self.fault = Fault(code, message, place)


class ActionError(Exception):
    """An error of an action with its own event (S25): `error.execution` or `error.communication`, with the send id."""

    def __init__(self, code: str, message: str, *, event: str = "error.execution", sendid: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.event = event
        self.sendid = sendid


def text_of(value: Any, code: str, what: str, sendid: str | None = None, *, length_max: int | None = None) -> str:
    """Return a value that the chart computed. Raises ActionError unless it is a string of at most `length_max`."""
    if type(value) is not str:
        raise ActionError(code, f"{what} must be a string, got {type_name(value)}", sendid=sendid)
    if length_max is not None and len(value) > length_max:
        raise ActionError(code, f"{what} has {len(value):,} characters; the maximum is {length_max:,}", sendid=sendid)
    return value


def name_of(value: Any, code: str, what: str, sendid: str | None = None, *, length_max: int | None = None) -> str:
    """Return a value that the chart computed. Raises ActionError unless it is a string that is not empty."""
    text = text_of(value, code, what, sendid, length_max=length_max)
    if not text:
        raise ActionError(code, f"{what} must not be empty", sendid=sendid)
    return text


def reserved_name(name: str, sendid: str | None = None) -> ActionError:
    """Return the error for a reserved event name that a chart computed."""
    message = f"the event name {name[:80]!r} is reserved; {RESERVED_HINT}"
    return ActionError("event.reserved", message, sendid=sendid)


def describe_error(error: Exception) -> tuple[str, str, str, str | None]:
    """Return the code, message, event name and send id of an error of an action."""
    if isinstance(error, ActionError):
        return error.code, error.message, error.event, error.sendid
    code, message = describe_exception(error)
    return code, message, "error.execution", None
