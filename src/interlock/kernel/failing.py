"""The two ways in which content fails: one operation of it, or the whole step.

Rule: an error of content is told to the chart as an event (S25); a limit, or any error under `errors: raise`, is not.
"""

from __future__ import annotations

from interlock.expression.compile import explain
from interlock.model.step import Fault


class StepFailed(Exception):
    """The whole step is void: a limit, or the first error under `errors: raise`."""

    def __init__(self, code: str, message: str, place: str = "") -> None:
        super().__init__(message)
        self.fault = Fault(code, message, place)


class ContentError(Exception):
    """An error of content that has its own event (S25): `error.execution` or `error.communication`, with the sendid."""

    def __init__(self, code: str, message: str, *, event: str = "error.execution", sendid: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.event = event
        self.sendid = sendid


def error_facts(error: Exception) -> tuple[str, str, str, str | None]:
    """Code, message, event name and sendid of an error of content."""
    if isinstance(error, ContentError):
        return error.code, error.message, error.event, error.sendid
    code, message = explain(error)
    return code, message, "error.execution", None
