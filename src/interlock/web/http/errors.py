"""Errors as `application/problem+json` (RFC 9457): the only place that maps an error to an HTTP status.

Rule 1: the status follows the error's class, which says what the caller should do next. The response always contains
the error's `code`.
Rule 2: an internal error is reported as one, without details.
Rule 3: `trust.disclosure` decides whether the response contains the error's own message and hint.
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
from interlock.model.audit import FLOOD
from interlock.model.encoding.codec import encode
from interlock.operate.jobs.runner import TooManyJobsError
from interlock.trust.disclosure import UNEXPECTED, public_text

_STATUSES: tuple[tuple[type[InterlockError], int, str], ...] = (
    (DefinitionError, 422, "Invalid definition"),
    (UsageError, 400, "Invalid request"),
    (RejectedError, 422, "Rejected by the chart"),
    (DeniedError, 403, "Forbidden"),
    (NotFoundError, 404, "Not found"),
    (ConflictError, 409, "Conflict"),
    (TooManyJobsError, 429, "Too many jobs"),
    (UnavailableError, 503, "Unavailable"),
    (CorruptionError, 500, "Corrupt data"),
    (MissingExtraError, 501, "Missing extra"),
)
"""Status and title by class: the first class that matches counts."""

_TOO_MANY = frozenset({"mailbox.full", "mailbox.share"})
"""Codes of UnavailableErrors that callers cause by sending faster than the entity can be stepped."""

TYPE = "https://interlock.invalid/problems/"
"""The start of a problem's `type`, followed by the code. It is a name, not an address."""


class HttpProblem(Exception):
    """An error of the HTTP interface itself, such as a missing session. Its text is sent to the caller."""

    def __init__(
        self,
        status: int,
        title: str,
        detail: str,
        *,
        code: str,
        hint: str | None = None,
        retry_after_ms: int | None = None,
    ) -> None:
        super().__init__(detail)
        self.status, self.title, self.detail, self.code, self.hint = status, title, detail, code, hint
        self.retry_after_ms = retry_after_ms


def problem_of(error: Exception) -> tuple[int, dict[str, Any]]:
    """Return the status and the body of the response for an error."""
    if isinstance(error, HttpProblem):
        return error.status, problem_body(error.status, error.title, error.detail, code=error.code, hint=error.hint)
    if isinstance(error, InterlockError):
        if error.code == FLOOD:
            return 429, problem_body(429, "Too many refused requests", error.message, code=FLOOD, hint=error.hint)
        for kind, status, title in _STATUSES:
            if isinstance(error, kind):
                status_of, title_of = (429, "Too many requests") if error.code in _TOO_MANY else (status, title)
                detail, hint = public_text(error)
                return status_of, problem_body(status_of, title_of, detail, code=error.code, hint=hint)
    hint = "please report it and describe what you did; the server's log has the details"
    return 500, problem_body(500, "Internal error", UNEXPECTED, code="internal", hint=hint)


def problem_body(status: int, title: str, detail: str, *, code: str, hint: str | None = None) -> dict[str, Any]:
    """Return a problem document."""
    body = {"type": TYPE + code, "title": title, "status": status, "detail": detail, "code": code}
    return body if hint is None else {**body, "hint": hint}


def retry_headers(error: Exception) -> dict[str, str]:
    """Return the header `Retry-After` in whole seconds, if the error knows it."""
    after_ms = error.retry_after_ms if isinstance(error, HttpProblem | UnavailableError) else None
    return {} if after_ms is None else {"Retry-After": str(max(1, -(-after_ms // 1000)))}


def problem_response(status: int, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Response:
    """Return the response for a problem. It is never cached: another caller may get another answer."""
    given = {"Cache-Control": "no-store", **(headers or {})}
    if status in (429, 503):
        given.setdefault("Retry-After", "1")
    return Response(encode(body), status, given, media_type="application/problem+json")
