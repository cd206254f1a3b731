"""Keys that the driver makes. They begin with `_`, which no sender may use, so no sender can take one beforehand.

| key | of |
|---|---|
| `_effect/...`, `_timer/...`, `_outbox/...`, `_message/...` | the answer to work (`model.work.Place`) |
| `_sent/...`, `_moved...`, `_child`, `_cancel` | deliveries, timers and children |
| `_bus/<length>:<source>#<id>` | a message of a bus; the length of the source in characters marks where it ends |
| `_bulk/<job>/<entity>` | one entity's event of a job of the console |
| `_reconcile/<name>/<version>` | the answer of a reconciler about a version |
| `_<event>:<value>` | a chart's `dedupe` |
| `_` and 32 or 64 hexadecimal digits | an event without a key, and a `dedupe` that has no other form |

Rule 1: a text that is too long for a key, or not printable, is replaced by its hash, behind the same prefix.
Rule 2: keys of the first releases are still recognised (`OwnKey.former`), so that a message or a job that was taken
before an upgrade is not taken again after it.
See ADR 0046.
"""

from __future__ import annotations

from hashlib import blake2b

from msgspec import Struct

from interlock.model.limits import KEY_BYTES_MAX

OWN = "_"
"""What every key of the driver begins with."""

BUS, BULK, RECONCILE = "_bus/", "_bulk/", "_reconcile/"

REQUESTS = (BUS, BULK, RECONCILE)
"""Keys that identify a request from outside: an entry under one of these belongs to one event, as with a sender's."""


class OwnKey(Struct, frozen=True):
    """A key of the driver for an event that somebody asked for.

    `name` is what the event itself carries as its id and key, for charts and messages. `former` is the key by which
    earlier releases knew the same request; a sender may have taken it.
    """

    key: str
    name: str
    former: str | None = None


def bus_key(source: str, message: str) -> OwnKey:
    """The key of a message, by its source and id."""
    former = f"{source}#{message}"
    if former.startswith(OWN) or not _fits(former):
        former = _digest(former)
    return OwnKey(_own(BUS, f"{len(source)}:{source}#{message}"), former, former)


def bulk_key(job: str, entity: str) -> OwnKey:
    """The key of one entity's event in a job."""
    former = f"bulk/{job}/{entity}"
    if len(former.encode()) > KEY_BYTES_MAX:
        former = f"bulk/{job}/{_digest(entity)}"
    return OwnKey(_own(BULK, f"{job}/{entity}"), former, former)


def reconcile_key(name: str, version: int) -> OwnKey:
    """The key of a reconciler's answer. It has no former key: an entry under that has raised the version."""
    return OwnKey(_own(RECONCILE, f"{name}/{version}"), f"reconcile/{name}/{version}")


def dedupe_key(event: str, value: str | int) -> tuple[str, str | None]:
    """The key that a chart's `dedupe` gives an event, and its former one where that was another.

    A `:` in the event's name would make two events one key, and a `/` one of the driver's other keys.
    """
    former = f"{OWN}{event}:{value}"
    if len(former.encode()) > KEY_BYTES_MAX:  # cut short, two values would be one key
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
