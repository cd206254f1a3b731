"""A message: sent through the outbox to a bus, or received from one, as a CloudEvent 1.0.

Rule 1: the content of a message is fixed when its entry is made (`message_body`) and stored with it. Sending it needs
        neither the chart nor the journal. Only `source` comes from the bus.
Rule 2: `sequence` orders the messages of one entity, including those of one entry, and compares as text. After a
        restore it starts with the epoch, and comes after everything that was sent before.
Rule 3: neither the payload of the event nor the context is sent. To send more, a chart uses `emit`.
Rule 4: every bus has the same wire format, the structured JSON of CloudEvents. Unknown attributes are kept in `more`.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct

from interlock.errors import RejectedError
from interlock.model.actor import originator_of
from interlock.model.encoding.codec import UNDECODABLE, encode
from interlock.model.journal.cause import is_traceparent
from interlock.model.journal.entry import Entry, visible_version
from interlock.model.journal.work import EPOCH, PLACE, WorkId, key_base
from interlock.model.keys import OWN, REQUESTS
from interlock.model.limits import MESSAGE_BYTES_MAX

CONTENT_TYPE = "application/cloudevents+json; charset=utf-8"

SOURCE = "/interlock"
"""The `source` of messages, before the kind, unless the address of the bus names another."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TEXTS = ("id", "source", "type", "subject", "sequence", "kind", "event", "key", "principal", "revision")
_REQUIRED = ("id", "source", "type")


class Message(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message. One from another system has at least `id`, `source` and `type`.

    `subject` is the entity, `event` the event it received, with its `key` and the id of its `principal`. `originator`
    is the id of another one for whom it happened. `trace` is the W3C traceparent of the step or of its sender. Binary
    data is bytes.
    """

    id: str
    source: str
    type: str
    subject: str | None = None
    time_ms: int | None = None
    sequence: str | None = None
    kind: str | None = None
    event: str | None = None
    key: str | None = None
    principal: str | None = None
    originator: str | None = None
    trace: str | None = None
    revision: str | None = None
    data: Any = None
    more: dict[str, Any] = {}


def change_message(entry: Entry, ended: str | None) -> tuple[str, dict[str, Any]]:
    """Return the type, without the kind, and the data of the message of an applied entry."""
    word = "state.changed" if entry.before != entry.after else "context.changed"
    data: dict[str, Any] = {
        "event": entry.event.name,
        "from": entry.before,
        "to": entry.after,
        "version": visible_version(entry),
    }
    return word, data if ended is None else {**data, "ended": ended}


def message_body(entry: Entry, type: str, data: Any) -> dict[str, Any]:
    """Return the part of a message that is stored until it is sent: all but what its work id and the bus add."""
    who = entry.event.principal.get("id") if isinstance(entry.event.principal, dict) else None
    whom = entry.originator or originator_of(entry.event.principal)
    found = {
        "type": type,
        "data": data,
        "time_ms": entry.event.time_ms,
        "event": entry.event.name,
        "key": _public_key(entry),
        "principal": None if who is None else str(who),
        "originator": None if whom is None else whom.id,
        "trace": entry.trace,
        "revision": entry.revision,
    }
    return {name: value for name, value in found.items() if value is not None}


def _public_key(entry: Entry) -> str | None:
    """Return the key of the sender, or the name of the outside request; None for other keys of the driver."""
    if entry.key.startswith(REQUESTS):
        return entry.event.key
    return None if entry.key.startswith(OWN) else entry.key


def message_of(entity: str, work_id: WorkId, body: Any, *, source: str = SOURCE) -> Message:
    """Return the message of this work, as it is sent to the bus."""
    kind, _, _ = entity.partition("/")
    epoch = body.get(EPOCH, 0)
    version, ordinal = body.get(PLACE, (work_id.version, work_id.ordinal))
    place = f"{version:012}.{ordinal:04}"
    return Message(
        id=f"{key_base(entity, version, epoch)}/{ordinal}",
        source=f"{source}/{kind}",
        subject=entity,
        kind=kind,
        sequence=f"e{epoch:04}.{place}" if epoch else place,
        **{name: value for name, value in body.items() if name not in (EPOCH, PLACE)},
    )


def encode_message(message: Message) -> bytes:
    """Return a message as structured CloudEvents JSON."""
    found: dict[str, Any] = {"specversion": "1.0", **message.more}
    found |= {name: value for name in _TEXTS if (value := getattr(message, name)) is not None}
    if message.time_ms is not None and (time := _time_text(message.time_ms)) is not None:
        found["time"] = time
    if message.subject is not None:
        found["partitionkey"] = message.subject
    if message.originator is not None:
        found["originator"] = message.originator
    if message.trace is not None:
        # The trace of a sender need not be a traceparent. Only a valid one may have that name.
        found["traceparent" if is_traceparent(message.trace) else "trace"] = message.trace
    if isinstance(message.data, bytes):
        found["data_base64"] = b64encode(message.data).decode()
    elif message.data is not None:
        found |= {"datacontenttype": "application/json", "data": message.data}
    return encode(found)


def decode_message(body: bytes) -> Message:
    """Return the message in these bytes. Raises RejectedError if they are invalid: a retry would not help."""
    if len(body) > MESSAGE_BYTES_MAX:
        raise _malformed(f"it has {len(body):,} bytes; the maximum is {MESSAGE_BYTES_MAX:,}")
    try:
        found = msgspec.json.decode(body)
    except UNDECODABLE as error:
        raise _malformed(f"it is not JSON: {str(error)[:200]}") from None
    if not isinstance(found, dict) or found.pop("specversion", None) != "1.0":
        raise _malformed("it is not a CloudEvent of specversion 1.0")
    texts: dict[str, Any] = {}
    for name in _TEXTS:
        texts[name] = value = found.pop(name, None)
        if name in _REQUIRED and not value:
            raise _malformed(f"`{name}` is missing")
        if not isinstance(value, str | None):
            raise _malformed(f"`{name}` is not a string")
    found.pop("partitionkey", None)
    found.pop("datacontenttype", None)
    trace = found.pop("traceparent", None)
    if not isinstance(trace, str) or not is_traceparent(trace):  # W3C: an invalid one is ignored
        # The attribute `trace` of another system may have any type.
        trace = found.pop("trace") if isinstance(found.get("trace"), str) else None
    return Message(
        **texts,
        time_ms=_time_ms(found.pop("time", None)),
        trace=trace,
        originator=found.pop("originator") if isinstance(found.get("originator"), str) else None,
        data=_data(found),
        more=found,
    )


def _data(found: dict[str, Any]) -> Any:
    packed = found.pop("data_base64", None)
    plain = found.pop("data", None)
    if packed is None:
        return plain
    try:
        return b64decode(packed, validate=True)
    except (ValueError, TypeError):
        raise _malformed("`data_base64` is not valid base64") from None


def _time_text(ms: int) -> str | None:
    try:
        return (_EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:  # not representable as a date, and optional
        return None


def _time_ms(text: Any) -> int | None:
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
        return (found - _EPOCH) // timedelta(milliseconds=1)
    except (TypeError, ValueError, OverflowError):  # not a string, not a time, or a time without zone
        raise _malformed("`time` is not an RFC 3339 time") from None


def _malformed(why: str) -> RejectedError:
    hint = "check the sender: expected a structured CloudEvent 1.0 in JSON"
    return RejectedError(f"invalid message: {why}", code="message.malformed", hint=hint)
