"""The message that a remote caller gets for an error (ADR 0044).

Rule: an error's own message and hint are disclosed only if its code is in `OPEN_CODES`. The messages of all other
errors may name what the caller may not know: hidden kinds and revisions, versions, keys of other senders, addresses of
databases. Such an error is replaced by a fixed sentence, chosen by its code or its class; the log gets the message.
"""

from __future__ import annotations

from collections.abc import Mapping

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

OPEN_CODES = frozenset(
    {
        # Raised by the console and by jobs
        "body.type",
        "envelope.denied",
        "envelope.malformed",
        "envelope.meaning",
        "kind.foreign",
        "bulk.count",
        "bulk.filter",
        "bulk.reason",
        "bulk.rehearsal",
        "console.read_only",
        "csrf.token",
        "cursor.foreign",
        "entity.not_then",
        "hold.what",
        "job.act",
        "job.elsewhere",
        "job.full",
        "job.over",
        "job.unknown",
        "kind.own",
        "lab.full",
        "lab.size",
        "metrics.kinds",
        "older.malformed",
        "origin.foreign",
        "rate.refused",
        "refusals.none",
        "report.unknown",
        "right.missing",
        "stream.full",
        "token.keys",
        # Errors in the request
        "after.range",
        "at.malformed",
        "at.type",
        "at.zone",
        "context.missing",
        "context.refused",
        "context.unknown",
        "entity.malformed",
        "entity.reserved",
        "argument.unknown",
        "event.malformed",
        "event.payload",
        "event.reserved",
        "event.unknown",
        "expected.malformed",
        "index.building",
        "index.dropping",
        "index.unknown",
        "key.malformed",
        "key.reserved",
        "limit.range",
        "payload.reserved",
        "principal.malformed",
        "read.denied",
        "reason.malformed",
        "trace.malformed",
        "where.malformed",
        "where.range",
        "where.value",
        # Results, in terms of the entity that the caller named
        "conflict.retries",
        "entity.unknown",
        "entry.size",
        "mailbox.full",
        "mailbox.share",
        "rate.limited",
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
"""Codes of errors whose messages consist of the request, of limits, and of what every caller may know."""

_BY_CODE: Mapping[str, tuple[str, str | None]] = {
    "conflict.expected": ("the entity is not at the expected version", "load it again and decide"),
    "entity.pruned": ("the entity was removed by retention", "use another id: an id is never used twice"),
    "journal.compacted": ("the oldest entries of this entity's journal were removed", None),
    "journal.archived": ("the journal of this entity is archived", None),
    "journal.unread": ("the journal of this entity cannot be read now; see the server's log", None),
    "key.reused": (
        "the key was used for another event of this entity, or by another sender",
        "use one key per event, such as `<request>/<event>`",
    ),
    "kind.unknown": ("no chart of this kind is loaded", None),
    "revision.unknown": (
        "no chart is loaded for the revision of this entity",
        "start the server with the chart of that revision, too",
    ),
}
"""The replacement for an error's message and hint, by its code."""

_BY_CLASS: Mapping[type[InterlockError], tuple[str, str | None]] = {
    DefinitionError: ("the definition is invalid", None),
    UsageError: ("the request is invalid", None),
    RejectedError: ("the chart rejected the event", None),
    DeniedError: ("not allowed", None),
    NotFoundError: ("not found", None),
    ConflictError: ("another writer changed the entity first", "load it again and decide"),
    UnavailableError: ("temporarily unavailable; nothing was acknowledged", "try again later with the same key"),
    CorruptionError: ("stored data is corrupt; see the server's log", None),
    MissingExtraError: ("the server lacks an optional dependency for this", None),
}
"""The replacement for an error's message and hint, by its class."""

UNEXPECTED = "unexpected error"

_OPEN_DAMAGE = frozenset({"entity.unknown", "entity.unreadable", "store.beside"})
"""Codes of damage whose messages name the place in the journal and no address."""


def public_text(error: InterlockError) -> tuple[str, str | None]:
    """Return the message and the hint that a remote caller gets for an error."""
    if error.code in OPEN_CODES:
        return error.message, error.hint
    replacement = _BY_CODE.get(error.code)
    if replacement is None:
        replacement = next((text for kind, text in _BY_CLASS.items() if isinstance(error, kind)), None)
    return replacement or (UNEXPECTED, None)


def damage_text(code: str, message: str) -> str:
    """Return the message for damage to an entity that the caller may read: its place, but no address of a store."""
    if code in _BY_CODE:
        return _BY_CODE[code][0]
    is_open = code.startswith(("journal.", "snapshot.")) or code in _OPEN_DAMAGE
    return message if is_open else _BY_CLASS[CorruptionError][0]


def is_withheld(error: Exception) -> bool:
    """Whether a remote caller gets another message than the error's own, so that the log needs it."""
    return isinstance(error, InterlockError) and public_text(error)[0] != error.message
