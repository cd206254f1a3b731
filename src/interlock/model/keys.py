"""Keys that the driver makes. They start with `_`, which senders may not use, so no sender can use one first.

| key | of |
|---|---|
| `_effect/...`, `_timer/...`, `_outbox/...`, `_message/...` | the result of work (`WorkId.result_key`) |
| `_sent/...`, `_moved...`, `_child`, `_cancel` | deliveries, timers and children |
| `_bus/<length>:<source>#<id>` | a message of a bus; starts with the length of the source in characters |
| `_env/<sender>/<id>` | a signed envelope of a sender; neither contains a slash |
| `_bulk/<job>/<entity>` | the event of one entity in a bulk job of the console |
| `_expect/<state>/<entered_ms>` | the event of `expect.then`, once while the entity is in the state |
| `_reconcile/<name>/<version>` | the result of a reconciler for a version |
| `_<event>:<value>` | a chart's `dedupe` |
| `_` and 32 or 64 hexadecimal digits | an event without a key, and a `dedupe` that has no other form |

Rule 1: text that is too long for a key, or not printable, is replaced by its hash after the same prefix.
Rule 2: keys of the first releases are still recognised (`OwnKey.former`), so that a message or a job that was accepted
        before an upgrade is not accepted again after it.
See ADR 0046.
"""

from __future__ import annotations

from hashlib import blake2b

from msgspec import Struct

from interlock.model.limits import KEY_BYTES_MAX

OWN = "_"
"""The prefix of every key of the driver."""

BUS, BULK, RECONCILE, ENVELOPE = "_bus/", "_bulk/", "_reconcile/", "_env/"

EXPECT = "_expect/"

REQUESTS = (BUS, BULK, RECONCILE, ENVELOPE)
"""Prefixes of keys that identify a request from outside: one key means one event, as with a sender's key."""


class OwnKey(Struct, frozen=True):
    """A key of the driver for a request from outside.

    `name` is the id and key in the event itself, for charts and messages. `former` is the key of the same request in
    earlier releases; a sender may have used it.
    """

    key: str
    name: str
    former: str | None = None


def bus_key(source: str, message: str) -> OwnKey:
    """Return the key of a message with this source and id."""
    former = f"{source}#{message}"
    if former.startswith(OWN) or not _fits(former):
        former = _digest(former)
    return OwnKey(_own(BUS, f"{len(source)}:{source}#{message}"), former, former)


def envelope_key(sender: str, message_id: str) -> OwnKey:
    """Return the key of an envelope. The id is only unique for its sender."""
    text = f"{sender}/{message_id}"
    return OwnKey(_own(ENVELOPE, text), text if _fits(text) else _digest(text))


def bulk_key(job: str, entity: str) -> OwnKey:
    """Return the key of one entity's event in a job."""
    former = f"bulk/{job}/{entity}"
    if len(former.encode()) > KEY_BYTES_MAX:
        former = f"bulk/{job}/{_digest(entity)}"
    return OwnKey(_own(BULK, f"{job}/{entity}"), former, former)


def reconcile_key(name: str, version: int) -> OwnKey:
    """Return the key of a reconciler's result. It needs no former key: such an entry has raised the version."""
    return OwnKey(_own(RECONCILE, f"{name}/{version}"), f"reconcile/{name}/{version}")


def expect_key(state: str, entered_ms: int) -> str:
    """Return the key of the event for an entity that has been in a state for too long, since a time."""
    return _own(EXPECT, f"{state}/{entered_ms}")


def dedupe_key(event: str, value: str | int) -> tuple[str, str | None]:
    """Return the key of an event by the chart's `dedupe`, and its former key if that was different.

    A `:` in the event's name could give two events the same key, and a `/` one of the driver's other keys.
    """
    former = f"{OWN}{event}:{value}"
    if len(former.encode()) > KEY_BYTES_MAX:  # truncated, two values could have the same key
        former = f"{OWN}{_digest(former)}"
    if ":" in event or "/" in event:
        return f"{OWN}{_digest(f'{len(event)}:{event}:{value}')}", former
    return former, None


def _own(prefix: str, text: str) -> str:
    key = prefix + text
    return key if _fits(key) else prefix + _digest(text)


def _fits(key: str) -> bool:
    return key.isprintable() and len(key.encode()) <= KEY_BYTES_MAX  # a lone surrogate is not printable


def _digest(text: str) -> str:
    return blake2b(text.encode(errors="surrogatepass"), digest_size=32).hexdigest()
