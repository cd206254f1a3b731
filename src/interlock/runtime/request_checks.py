"""What callers may ask for: entity ids, keys, event names and payloads, checked before anything is loaded.

Rule 1: malformed arguments are a UsageError that names what is wrong; nothing was read or written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from interlock.errors import NotFoundError, UsageError
from interlock.model.event import check_sendable
from interlock.model.json_value import payload_refusal
from interlock.model.keys import OWN
from interlock.model.limits import (
    ENTITY_ID_BYTES_MAX,
    KEY_BYTES_MAX,
    NAME_BYTES_MAX,
)

VERSION_MAX = 2**62
"""No journal is so long; stores keep versions as integers of 64 bits."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_UNSEEN = frozenset({"Cc", "Cf", "Zl", "Zp", "Zs"})
"""Categories of characters that people do not see, or see as a plain space: controls, marks of direction, no width."""


def check_entity(entity: str) -> str:
    """The kind of an entity id shaped `kind/id`."""
    _check_text(entity, "entity id", ENTITY_ID_BYTES_MAX, "entity.malformed")
    kind, _, rest = entity.partition("/")
    if not kind or not rest:
        raise UsageError(f"an entity is named `kind/id`, not {entity[:80]!r}", code="entity.malformed")
    return kind


def check_new_entity(entity: str) -> None:
    """The id of an entity that is to begin: no path, and nothing in it that people cannot see, or see as another.

    Asked of new ones only: whoever has others goes on with them. Stores keep every id apart from all others as it is.
    """
    if not entity.isascii():
        import unicodedata  # of use for few ids, and of some size

        hidden = next((each for each in entity if each != " " and unicodedata.category(each) in _UNSEEN), None)
        if hidden is not None:
            message = f"the entity id holds U+{ord(hidden):04X}, which cannot be seen: {entity!a:.80}"
            raise UsageError(message, code="entity.malformed", hint="leave it out")
        if not unicodedata.is_normalized("NFC", entity):
            message = f"the entity id is spelled with parts of letters: {entity!a:.80}"
            raise UsageError(message, code="entity.malformed", hint='spell it with unicodedata.normalize("NFC", ...)')
    if "/." in entity and not {".", ".."}.isdisjoint(entity.split("/")):
        hint = "an id is a name and leads nowhere: leave out `.` and `..` between slashes"
        raise UsageError(f"the entity id is written as a path: {entity[:80]!r}", code="entity.malformed", hint=hint)


def check_key(key: str) -> None:
    """A sender's key: a short text that does not begin with `_`, which is the driver's own."""
    _check_text(key, "key", KEY_BYTES_MAX, "key.malformed")
    if not key or key.startswith(OWN):
        raise UsageError(
            f"a key must not be empty or begin with `{OWN}`: {key[:80]!r}",
            code="key.reserved",
            hint=f"keys that begin with `{OWN}` are the driver's own; write another character before it",
        )


def check_event(name: str) -> None:
    """An event name that a sender may use."""
    _check_text(name, "event name", NAME_BYTES_MAX, "event.malformed")
    if not name:
        raise UsageError("an event has a name", code="event.malformed", hint="`interlock can` lists those taken now")
    check_sendable(name)


def check_sender(principal: Mapping[str, Any] | None, trace: str | None) -> None:
    """Who sends, as plain JSON of a payload's size at most, and a short trace id: both are kept with the entry."""
    if principal is not None and not isinstance(principal, Mapping):
        hint = 'such as {"id": "ada", "roles": ["clerk"]}'
        raise UsageError(f"a principal is a mapping, not {principal!r:.60}", code="principal.malformed", hint=hint)
    problem = None if principal is None else payload_refusal(dict(principal))
    if problem is not None:
        raise UsageError(f"the principal is refused: {problem}", code="principal.malformed")
    if trace is not None:
        _check_text(trace, "trace", NAME_BYTES_MAX, "trace.malformed")


def check_expected(expected: int | None) -> None:
    """The version that a sender expects: a whole number; `1.0` or `True` would compare as one, and `"1"` never."""
    if expected is not None and (type(expected) is not int or expected < 0):
        message = f"`expected` is a version, a whole number from 0 on, not {expected!r:.60}"
        raise UsageError(message, code="expected.malformed", hint="take it from a receipt or a snapshot: `.version`")


def check_sent(sent_ms: int | None) -> None:
    """When a sender first sent an event."""
    if sent_ms is not None and type(sent_ms) is not int:
        hint = "write int(time.time() * 1000)"
        raise UsageError(f"sent_ms is whole milliseconds, not {sent_ms!r:.60}", code="sent.malformed", hint=hint)


def check_range(after: int, limit: int | None = None) -> None:
    """Which part of a journal is asked for: after a version, and how many entries, or all of them."""
    if type(after) is not int or not 0 <= after <= VERSION_MAX:
        message = f"after={after!r:.40} is no version"
        raise UsageError(message, code="after.range", hint="entries after 0 are all of them, after 7 those from 8 on")
    if limit is not None and (type(limit) is not int or limit < 1):
        message = f"limit={limit!r:.40} is no number of entries"
        raise UsageError(message, code="limit.range", hint="a whole number from 1 on; without it, all of them")


def unknown_entity(entity: str) -> NotFoundError:
    """What is said where there is no such entity."""
    hint = "check its name, or create it first"
    return NotFoundError(f"no entity `{entity}`", code="entity.unknown", hint=hint)


def _check_text(text: object, what: str, bytes_max: int, code: str) -> None:
    if not isinstance(text, str):
        raise UsageError(f"the {what} must be a string", code=code)
    if len(text) <= bytes_max and text.isascii() and text.isprintable():
        return
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise UsageError(f"the {what} holds half a surrogate pair", code=code) from None
    if size > bytes_max:
        raise UsageError(f"the {what} has {size:,} bytes; {bytes_max} are allowed", code=code)
    if _CONTROL.search(text):
        raise UsageError(f"the {what} holds control characters", code=code)
