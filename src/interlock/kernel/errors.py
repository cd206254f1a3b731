"""The two ways in which content fails: one operation of it, or the whole step.

Rule: an error of content is told to the chart as an event (S25); a limit, or any error under `errors: raise`, is not.
"""

from __future__ import annotations

from typing import Any

from interlock.expression.codegen import explain
from interlock.model.document.field import type_name
from interlock.model.event import RESERVED_HINT
from interlock.model.step import Fault


class StepFailed(Exception):
    """The whole step is void: a limit, or the first error under `errors: raise`."""

    def __init__(self, code: str, message: str, place: str = "") -> None:
        super().__init__(message)
        self.fault = Fault(code, message, place)


class ActionError(Exception):
    """An error of content that has its own event (S25): `error.execution` or `error.communication`, with the sendid."""

    def __init__(self, code: str, message: str, *, event: str = "error.execution", sendid: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.event = event
        self.sendid = sendid


def text_of(value: Any, code: str, what: str, sendid: str | None = None, *, length_max: int | None = None) -> str:
    """The value, which a chart computed and which must be text. Raises ContentError for anything else, or longer."""
    if type(value) is not str:
        raise ActionError(code, f"{what} must be a string, not {type_name(value)}", sendid=sendid)
    if length_max is not None and len(value) > length_max:
        raise ActionError(code, f"{what} has {len(value):,} characters, more than {length_max:,}", sendid=sendid)
    return value


def name_of(value: Any, code: str, what: str, sendid: str | None = None, *, length_max: int | None = None) -> str:
    """The value, which a chart computed and which must be text with at least one character."""
    text = text_of(value, code, what, sendid, length_max=length_max)
    if not text:
        raise ActionError(code, f"{what} must not be empty", sendid=sendid)
    return text


def reserved_name(name: str, sendid: str | None = None) -> ActionError:
    """The error for an event name that a chart computed and that belongs to the kernel."""
    message = f"the event name {name[:80]!r} is reserved; {RESERVED_HINT}"
    return ActionError("event.reserved", message, sendid=sendid)


def describe_error(error: Exception) -> tuple[str, str, str, str | None]:
    """Code, message, event name and sendid of an error of content."""
    if isinstance(error, ActionError):
        return error.code, error.message, error.event, error.sendid
    code, message = explain(error)
    return code, message, "error.execution", None
