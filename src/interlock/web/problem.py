"""Errors as `application/problem+json` (RFC 9457): everything about which error gives which status lives here.

Rule 1: the status follows the error's class, which says what the caller should do next; `code` and `hint` travel along.
Rule 2: a bug of ours says that it is one, and nothing of what it was about.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from interlock.errors import (
    ConflictError,
    CorruptionError,
    DefinitionError,
    DeniedError,
    InterlockError,
    MissingExtraError,
    NotFoundError,
    RejectedError,
    UnavailableError,
    UsageError,
)
from interlock.model.codec import encode

_STATUSES: tuple[tuple[type[InterlockError], int, str], ...] = (
    (DefinitionError, 422, "The definition is wrong"),
    (UsageError, 400, "The request is wrong"),
    (RejectedError, 422, "The chart said no"),
    (DeniedError, 403, "Not allowed"),
    (NotFoundError, 404, "Not found"),
    (ConflictError, 409, "Somebody else was first"),
    (UnavailableError, 503, "Not now"),
    (CorruptionError, 500, "Stored data is damaged"),
    (MissingExtraError, 501, "A part is not installed"),
)

TYPE = "https://interlock.invalid/problems/"
"""The beginning of a problem's `type`: a name, not a place; the code follows it."""


class HttpProblem(Exception):
    """An answer that only HTTP has: no login, a foreign origin, a body that is too long."""

    def __init__(self, status: int, title: str, detail: str, *, code: str, hint: str | None = None) -> None:
        super().__init__(detail)
        self.status, self.title, self.detail, self.code, self.hint = status, title, detail, code, hint


def problem_of(error: Exception) -> tuple[int, dict[str, Any]]:
    """The status and the body for an error."""
    if isinstance(error, HttpProblem):
        return error.status, _body(error.status, error.title, error.detail, error.code, error.hint)
    if isinstance(error, InterlockError):
        for kind, status, title in _STATUSES:
            if isinstance(error, kind):
                return status, _body(status, title, error.message, error.code, error.hint)
    hint = "please report it with what you did; the server's log has the rest"
    return 500, _body(500, "A bug of ours", "the server met something it did not expect", "internal", hint)


def problem_response(status: int, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Response:
    """The response for a problem."""
    given = {"Cache-Control": "no-store", **(headers or {})}  # what was not there for one may be there for another
    if status in (429, 503):
        given.setdefault("Retry-After", "1")
    return Response(encode(body), status, given, media_type="application/problem+json")


def _body(status: int, title: str, detail: str, code: str, hint: str | None) -> dict[str, Any]:
    body = {"type": TYPE + code, "title": title, "status": status, "detail": detail, "code": code}
    return body if hint is None else {**body, "hint": hint}
