"""Checks of the arguments of callers: entity ids, keys, event names and principals, before anything is loaded.

An invalid argument is a UsageError that names what is wrong; nothing was read or written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any, TypedDict, TypeVar

from interlock.errors import NotFoundError, UsageError
from interlock.model.document.field import is_text
from interlock.model.encoding.json_value import json_payload
from interlock.model.entity_id import split_entity
from interlock.model.event import check_sendable
from interlock.model.keys import OWN
from interlock.model.limits import (
    ENTITY_ID_BYTES_MAX,
    KEY_BYTES_MAX,
    NAME_BYTES_MAX,
    REASON_LENGTH_MAX,
)
from interlock.trust.roles import active_roles

ROLE_ENDS_MAX_MS = 2**62
"""No role ends so late: without a time, roles with an end do not count."""

VERSION_MAX = 2**62
"""No journal is that long; stores keep versions as integers of 64 bits."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_UNSEEN = frozenset({"Cc", "Cf", "Zl", "Zp", "Zs"})
"""Unicode categories of characters that are invisible or look like a space: controls, direction marks, zero width."""


class CreateOptions(TypedDict, total=False):
    """The keyword arguments of `create`, for functions that pass them on: `**options: Unpack[CreateOptions]`."""

    key: str | None
    principal: Mapping[str, Any] | None
    trace: str | None
    reason: str | None


class SendOptions(TypedDict, total=False):
    """The keyword arguments of `send`, for functions that pass them on: `**options: Unpack[SendOptions]`."""

    key: str | None
    expected: int | None
    principal: Mapping[str, Any] | None
    trace: str | None
    sent_ms: int | None
    reason: str | None


CREATE_ARGUMENTS = ("context", *CreateOptions.__annotations__)
SEND_ARGUMENTS = ("payload", *SendOptions.__annotations__)
DRY_RUN_ARGUMENTS = ("payload", "key", "principal")
"""Arguments of a call after its entity and event, for the error about an unknown one."""

F = TypeVar("F", bound=Callable[..., Any])


def passes_on_to(other: Callable[..., Any]) -> Callable[[F], F]:
    """Show a function that passes `**options` on with the arguments of another one, in `help` and interactive tools."""

    def decorate(function: F) -> F:
        vars(function)["__signature__"] = signature(other)
        return function

    return decorate


def check_entity(entity: str) -> str:
    """Return the kind of an entity id. Raises UsageError when it is not `kind/id`."""
    _check_text(entity, "entity id", ENTITY_ID_BYTES_MAX, "entity.malformed")
    kind, name = split_entity(entity)
    if not kind or not name:
        hint = "such as order/1: the kind of the chart, a slash, and an id"
        raise UsageError(f"expected an entity id `kind/id`, got {entity[:80]!r}", code="entity.malformed", hint=hint)
    return kind


def check_new_entity(entity: str) -> None:
    """Check the id of a new entity: not a path, without invisible characters, in NFC.

    Only new ids are checked: existing entities with other ids stay usable. Stores distinguish ids byte by byte.
    """
    if not entity.isascii():
        import unicodedata  # large, and needed for few ids

        hidden = next((each for each in entity if each != " " and unicodedata.category(each) in _UNSEEN), None)
        if hidden is not None:
            message = f"the entity id contains the invisible character U+{ord(hidden):04X}: {entity!a:.80}"
            raise UsageError(message, code="entity.malformed", hint="remove it")
        if not unicodedata.is_normalized("NFC", entity):
            message = f"the entity id is not in Unicode form NFC: {entity!a:.80}"
            raise UsageError(message, code="entity.malformed", hint='use unicodedata.normalize("NFC", ...)')
    if "/." in entity and not {".", ".."}.isdisjoint(entity.split("/")):
        hint = "remove `.` and `..` between slashes"
        raise UsageError(f"the entity id must not be a path: {entity[:80]!r}", code="entity.malformed", hint=hint)


def check_key(key: str) -> None:
    """Check a caller's key: a short text that does not start with `_`, which is reserved for the runtime."""
    _check_text(key, "key", KEY_BYTES_MAX, "key.malformed")
    if not key or key.startswith(OWN):
        raise UsageError(
            f"a key must not be empty or start with `{OWN}`: {key[:80]!r}",
            code="key.reserved",
            hint=f"keys that start with `{OWN}` are reserved; put another character before it",
        )


def check_event(name: str) -> None:
    """Check that a caller may use an event name."""
    _check_text(name, "event name", NAME_BYTES_MAX, "event.malformed")
    if not name:
        raise UsageError(
            "the event name is empty", code="event.malformed", hint="`interlock can` lists accepted events"
        )
    check_sendable(name)


def check_principal(principal: Mapping[str, Any] | None, *, now_ms: int | None = None) -> dict[str, Any] | None:
    """Return a principal as JSON, at most of the size of a payload, with the roles that have not ended. It is stored
    with the entry. Without a time, no role with an end counts.
    """
    if principal is None:
        return None
    if not isinstance(principal, Mapping):
        hint = 'such as {"id": "ada", "roles": ["clerk"]}'
        raise UsageError(
            f"the principal must be a mapping, got {principal!r:.60}", code="principal.malformed", hint=hint
        )
    checked: dict[str, Any] = json_payload(dict(principal), what="the principal", code="principal.malformed")
    roles = checked.get("roles")
    if roles is not None and not (type(roles) is list and all(type(each) is str for each in roles)):
        checked["roles"] = active_roles(roles, now_ms=ROLE_ENDS_MAX_MS if now_ms is None else now_ms)
    return checked


def check_trace(trace: str | None) -> None:
    """Check a trace id. It is stored with the entry."""
    if trace is not None:
        _check_text(trace, "trace", NAME_BYTES_MAX, "trace.malformed")


def check_reason(reason: object) -> None:
    """Check the reason that a sender gives for an event. It is stored with the entry."""
    if reason is None:
        return
    if not isinstance(reason, str) or not is_text(reason):
        raise UsageError(f"the reason must be a string, got {reason!a:.60}", code="reason.malformed")
    if not reason.strip() or len(reason) > REASON_LENGTH_MAX:
        message = f"the reason must have 1 to {REASON_LENGTH_MAX:,} characters, got {len(reason):,}"
        raise UsageError(message, code="reason.malformed", hint="put more text into the payload, or leave `reason` out")


def check_expected(expected: int | None) -> None:
    """Check an expected version: an integer. `1.0` or `True` would compare as one, and `"1"` never."""
    if expected is not None and (type(expected) is not int or expected < 0):
        message = f"`expected` must be a version, an integer of 0 or more, got {expected!r:.60}"
        raise UsageError(message, code="expected.malformed", hint="take it from a receipt or a snapshot: `.version`")


def check_sent(sent_ms: int | None) -> None:
    """Check the time at which an event was first sent."""
    if sent_ms is not None and type(sent_ms) is not int:
        hint = "write int(time.time() * 1000)"
        raise UsageError(f"sent_ms must be whole milliseconds, got {sent_ms!r:.60}", code="sent.malformed", hint=hint)


def check_range(after: int, limit: int | None = None) -> None:
    """Check which part of a journal to read: after a version, and how many entries, or all of them."""
    if type(after) is not int or not 0 <= after <= VERSION_MAX:
        message = f"after={after!r:.40} is not a version"
        raise UsageError(message, code="after.range", hint="after=0 reads all entries, after=7 those from 8 on")
    if limit is not None and (type(limit) is not int or limit < 1):
        message = f"limit={limit!r:.40} is not a number of entries"
        raise UsageError(message, code="limit.range", hint="use an integer of 1 or more; without a limit all are read")


def unknown_entity(entity: str) -> NotFoundError:
    """Return the error for an entity that does not exist."""
    hint = "check its id, or create it first"
    return NotFoundError(f"unknown entity `{entity}`", code="entity.unknown", hint=hint)


def _check_text(text: object, what: str, bytes_max: int, code: str) -> None:
    if not isinstance(text, str):
        hint = "write str(...)" if isinstance(text, int) else None
        raise UsageError(f"the {what} must be a string, got {type(text).__name__}", code=code, hint=hint)
    if len(text) <= bytes_max and text.isascii() and text.isprintable():
        return
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise UsageError(f"the {what} contains a lone surrogate", code=code) from None
    if size > bytes_max:
        raise UsageError(f"the {what} has {size:,} bytes; the limit is {bytes_max}", code=code)
    if _CONTROL.search(text):
        raise UsageError(f"the {what} contains control characters", code=code)


def check_resumed(timers: object) -> None:
    """Raise UsageError (`hold.timers`) for an unknown way to resume timers."""
    if timers not in ("deadline", "shift"):
        hint = 'use "deadline" (overdue timers fire now) or "shift" (all are later by the time of the hold)'
        raise UsageError(f"invalid `timers`: {timers!r:.40}", code="hold.timers", hint=hint)
