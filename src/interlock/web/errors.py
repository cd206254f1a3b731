"""Errors as `application/problem+json` (RFC 9457): everything about which error gives which status lives here.

Rule 1: the status follows the error's class, which says what the caller should do next; its `code` always goes out.
Rule 2: a bug of ours says that it is one, and nothing of what it was about.
Rule 3: an error's own message and hint go out only when its code is in `OPEN_CODES`. Messages of all other errors may
name what the caller may not know: hidden kinds and revisions, versions, keys of other senders, addresses of databases.
Such an error is answered with a sentence of our own, by its code or its class; the log has the message (ADR 0044).
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


OPEN_CODES = frozenset(
    {
        # What this package says itself
        "body.type",
        "bulk.count",
        "bulk.filter",
        "bulk.reason",
        "bulk.rehearsal",
        "console.read_only",
        "csrf.token",
        "cursor.foreign",
        "entity.not_then",
        "job.act",
        "job.elsewhere",
        "job.full",
        "job.over",
        "job.unknown",
        "kind.own",
        "lab.full",
        "lab.size",
        "older.malformed",
        "origin.foreign",
        "refusals.none",
        "right.missing",
        "stream.full",
        # What is wrong with what the caller sent
        "after.range",
        "at.malformed",
        "at.type",
        "at.zone",
        "context.missing",
        "context.refused",
        "context.unknown",
        "entity.malformed",
        "event.malformed",
        "event.reserved",
        "expected.malformed",
        "key.malformed",
        "key.reserved",
        "limit.range",
        "principal.malformed",
        "trace.malformed",
        # What became of it, in terms of the entity that the caller named
        "conflict.retries",
        "entity.unknown",
        "entry.size",
        "mailbox.full",
        "runtime.closed",
        "runtime.draining",
        "snapshot.size",
        "store.work",
        "work.alive",
        "work.changed",
        "work.compensation",
        "work.unknown",
    }
)
"""Codes of errors whose messages are made of what the caller sent, of limits, and of what every caller may know."""

_BY_CODE: Mapping[str, tuple[str, str | None]] = {
    "conflict.expected": ("the entity is at another version than expected", "read it again, then decide"),
    "journal.archived": ("the journal of this entity is in an archive", None),
    "journal.unread": ("the journal of this entity cannot be read now; the server's log has the details", None),
    "key.reused": (
        "the key belongs to another event of this entity",
        "use one key per event, such as `<request>/<event>`",
    ),
    "kind.unknown": ("this server has no chart of this kind", None),
    "revision.unknown": (
        "this server has no chart for the revision of this entity",
        "start it with the chart of that revision too",
    ),
}
"""What is said in place of an error's own message, by its code."""

_BY_CLASS: Mapping[type[InterlockError], tuple[str, str | None]] = {
    DefinitionError: ("the definition is invalid", None),
    UsageError: ("the request cannot be carried out as it is", None),
    RejectedError: ("the chart refuses it", None),
    DeniedError: ("this is not allowed", None),
    NotFoundError: ("there is no such thing", None),
    ConflictError: ("another writer was first", "read it again, then decide"),
    UnavailableError: ("the server cannot do this now; nothing was acknowledged", "try again later, with the same key"),
    CorruptionError: ("stored data is damaged; the server's log has the details", None),
    MissingExtraError: ("a part that this needs is not installed on the server", None),
}
"""What is said in place of an error's own message, by its class."""


class HttpProblem(Exception):
    """An answer of the interface itself: no login, an unknown kind, a body that is too long. Its text goes out."""

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
                detail, hint = public_text(error)
                return status, _body(status, title, detail, error.code, hint)
    hint = "please report it with what you did; the server's log has the rest"
    return 500, _body(500, "A bug of ours", "the server met something it did not expect", "internal", hint)


def public_text(error: InterlockError) -> tuple[str, str | None]:
    """What an HTTP caller is told of an error, and the hint that goes with it."""
    if error.code in OPEN_CODES:
        return error.message, error.hint
    said = _BY_CODE.get(error.code)
    if said is None:
        said = next((text for kind, text in _BY_CLASS.items() if isinstance(error, kind)), None)
    return said or ("the server met something it did not expect", None)


def damage_text(code: str, message: str) -> str:
    """What an HTTP caller who may read an entity is told of damage to it: its place, but no address of a store."""
    if code in _BY_CODE:
        return _BY_CODE[code][0]
    is_open = code.startswith(("journal.", "snapshot.")) or code in (
        "entity.unknown",
        "entity.unreadable",
        "store.beside",
    )
    return message if is_open else _BY_CLASS[CorruptionError][0]


def is_withheld(error: Exception) -> bool:
    """Whether an HTTP caller is told something else than the error's own message, so that the log should have it."""
    return isinstance(error, InterlockError) and public_text(error)[0] != error.message


def problem_response(status: int, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Response:
    """The response for a problem."""
    given = {"Cache-Control": "no-store", **(headers or {})}  # what was not there for one may be there for another
    if status in (429, 503):
        given.setdefault("Retry-After", "1")
    return Response(encode(body), status, given, media_type="application/problem+json")


def _body(status: int, title: str, detail: str, code: str, hint: str | None) -> dict[str, Any]:
    body = {"type": TYPE + code, "title": title, "status": status, "detail": detail, "code": code}
    return body if hint is None else {**body, "hint": hint}
