"""The address of a Temporal namespace: `temporal://host:port/namespace?queue=...&journal=...`."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct

from interlock.errors import UsageError
from interlock.model.duration import parse_duration
from interlock.model.limits import ENGINE_CONTINUE_AFTER, ENGINE_WAIT_MS

_HINT = "such as temporal://127.0.0.1:7233/default; options: queue, journal, lists, continue, wait, tls, migrate"
_OPTIONS = frozenset({"queue", "journal", "lists", "continue", "wait", "tls", "migrate"})


class Address(Struct, frozen=True, kw_only=True):
    """A namespace, and how this process uses it.

    `queue`: the start of the names of its task queues. `journal`: the store that has a copy of all entries. `lists`:
    whether entities are found by state. `continue_after`: the number of Updates after which an entity starts a new
    history. `wait_ms`: how long a call waits for an answer. `migrate`: whether missing search attributes are added.
    """

    target: str
    namespace: str
    queue: str = "interlock"
    journal: str | None = None
    lists: bool = True
    continue_after: int = ENGINE_CONTINUE_AFTER
    wait_ms: int = ENGINE_WAIT_MS
    tls: bool = False
    migrate: bool = True

    def queue_of(self, kind: str) -> str:
        """Return the task queue of a kind. An inline chart such as `order.payment` uses that of `order`."""
        return f"{self.queue}-{kind.partition('.')[0]}"


def parse_address(url: str) -> Address:
    """Return the address in a URL. Raises UsageError (`url.malformed`)."""
    parts = urlsplit(url)
    try:
        port = parts.port or 7233
    except ValueError:
        port = 0
    namespace = unquote(parts.path.strip("/"))
    given = parse_qsl(parts.query, keep_blank_values=True)
    options = dict(given)
    unknown = sorted(options.keys() - _OPTIONS)
    if parts.scheme != "temporal" or not parts.hostname or not port or not namespace or "/" in namespace:
        raise _malformed("expected temporal://host:port/namespace")
    if "@" in parts.netloc:
        raise _malformed("an address has no user or password; an API key is read from TEMPORAL_API_KEY")
    if parts.fragment or unknown or len(options) != len(given):
        raise _malformed(f"unknown or repeated option `{(unknown or [parts.fragment or 'twice'])[0]}`")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    values: dict[str, Any] = {}
    for name, field in (("lists", "lists"), ("tls", "tls"), ("migrate", "migrate")):
        if name in options:
            values[field] = _flag(name, options[name])
    if "queue" in options:
        values["queue"] = _text("queue", options["queue"])
    if "journal" in options:
        values["journal"] = _journal(options["journal"])
    if "continue" in options:
        values["continue_after"] = _number("continue", options["continue"])
    if "wait" in options:
        wait_ms = parse_duration(options["wait"])
        if not wait_ms:
            raise _malformed(f"wait={options['wait']!r:.40} is not a duration above zero")
        values["wait_ms"] = wait_ms
    return Address(target=f"{host}:{port}", namespace=namespace, **values)


def _flag(name: str, value: str) -> bool:
    if value not in ("on", "off", "1", "0"):
        raise _malformed(f"{name}={value!r:.40} must be `on` or `off`")
    return value in ("on", "1")


def _text(name: str, value: str) -> str:
    if not value or len(value) > 200:
        raise _malformed(f"{name} must have 1 to 200 characters")
    return value


def _number(name: str, value: str) -> int:
    if not (value.isascii() and value.isdecimal()) or not 1 <= int(value) <= 100_000:
        raise _malformed(f"{name}={value!r:.40} must be a number from 1 to 100,000")
    return int(value)


def _journal(value: str) -> str:
    if value.partition(":")[0] not in ("file", "sqlite", "postgres", "postgresql"):
        raise _malformed(
            f"journal={value!r:.80} must be the percent-encoded address of a file, SQLite or PostgreSQL store"
        )
    return value


def _malformed(what: str) -> UsageError:
    return UsageError(f"invalid Temporal address: {what}", code="url.malformed", hint=_HINT)
