"""Addresses of buses: how one is parsed, and which part of it may be shown.

    scheme://user:password@host:port,host:port/path?option=value

Rule 1: errors show only hosts, path and the names of options. Passwords are never shown.
Rule 2: an unknown option is refused when the bus is opened, with the closest known one.
Rule 3: a missing client library is reported when the bus is opened, not when the first message is published.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from importlib import import_module
from typing import Generic, TypeVar
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from interlock.errors import MissingExtraError, UsageError
from interlock.model.diagnostics import suggestion
from interlock.model.journal.message import Message

ID_BYTES_MAX = 255
"""Bytes of an id on the wire: the shortest limit of all buses, which is AMQP's."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class BusAddress:
    """Where a bus is. `user` and `password` are never shown."""

    scheme: str
    hosts: tuple[tuple[str, int], ...]
    path: str
    options: Mapping[str, str]
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)

    @property
    def place(self) -> str:
        """The hosts, as they may be shown."""
        return ",".join(f"{_bracketed(host)}:{port}" for host, port in self.hosts)

    def flag(self, option: str) -> bool:
        """Return an option that is 0 or 1. Raises UsageError for anything else."""
        text = self.options.get(option, "0")
        if text not in {"0", "1"}:
            raise UsageError(f"`{option}` in the address of the bus must be 0 or 1", code="bus.option")
        return text == "1"

    def number(self, option: str, default: int) -> int:
        """Return an option that is an integer above zero. Raises UsageError for anything else."""
        text = self.options.get(option, str(default))
        if not (text.isascii() and text.isdigit() and int(text[:18]) > 0):
            raise UsageError(f"`{option}` in the address of the bus must be an integer above 0", code="bus.option")
        return int(text[:18])

    def required(self, option: str, example: str) -> str:
        """Return an option that must be there. Raises UsageError when it is missing."""
        found = self.options.get(option, "")
        if not found:
            message = f"`{option}` is missing in the address of the bus at {self.place}"
            raise UsageError(message, code="bus.option", hint=f"such as {example}")
        return found


@dataclass(frozen=True, slots=True)
class BusSpec:
    """What differs between the addresses of buses: the client's package, the extra that installs it, the default port,
    an example, and which options go to the client unchecked.
    """

    package: str
    extra: str
    port: int
    example: str
    is_client_option: Callable[[str], bool] = lambda name: False

    def parse(self, url: str, options: tuple[str, ...]) -> BusAddress:
        """Return the parts of an address with these options.

        Raises UsageError for an invalid address, MissingExtraError when the client is not installed.
        """
        address = parse_address(
            url, port=self.port, options=options, example=self.example, is_client_option=self.is_client_option
        )
        try:
            import_module(self.package)
        except ModuleNotFoundError as error:
            raise missing_extra(error, self.package, self.extra) from error
        return address


def parse_address(
    url: str,
    *,
    port: int,
    options: tuple[str, ...],
    example: str,
    is_client_option: Callable[[str], bool] = lambda name: False,
) -> BusAddress:
    """Return the parts of an address. Raises UsageError when it is invalid or has unknown options."""
    try:
        parts = urlsplit(url)
        given = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
        login, _, hosts = parts.netloc.rpartition("@")
        found = tuple(_host(each, port) for each in hosts.split(","))
    except ValueError:
        raise malformed_address(example) from None
    if parts.fragment:
        raise malformed_address(example)
    for name in given:
        if name not in options and not is_client_option(name):
            known = f"known options: {', '.join(options)}" if options else "this bus has no options"
            hint = suggestion(name, options) or known
            raise UsageError(f"unknown option `{name[:80]}` in the address of the bus", code="bus.option", hint=hint)
    user, colon, password = login.partition(":")
    return BusAddress(
        scheme=parts.scheme,
        hosts=found,
        path=unquote(parts.path.removeprefix("/")),
        options=given,
        user=unquote(user) if user else None,
        password=unquote(password) if colon else None,
    )


def malformed_address(example: str) -> UsageError:
    """Return the error for an invalid address."""
    return UsageError("the address of the bus is invalid", code="bus.address", hint=f"such as {example}")


def missing_extra(error: ModuleNotFoundError, package: str, extra: str) -> MissingExtraError:
    """Return the error for a client that is not installed; raises `error` when an import inside the client failed."""
    if error.name is None or error.name.partition(".")[0] != package:
        raise error
    message = f"this bus needs the package `{package}`"
    return MissingExtraError(message, code=f"extra.{extra}", hint=f"pip install 'interlock[{extra}]'")


def wire_id(message: Message, *, safe: str = "/:#") -> str:
    """Return the id of a message on a bus, as a header can carry it: it includes the source, and has no full stop.

    `safe` are the characters besides letters, digits and `_~-` that are not percent-encoded. An id that is longer than
    AMQP allows is replaced by a digest: cut off, two messages would have one id.
    """
    text = quote(f"{message.source}#{message.id}", safe=safe).replace(".", "%2E")
    return text if len(text) <= ID_BYTES_MAX else blake2b(text.encode(), digest_size=32).hexdigest()


class LazyConnection(Generic[T]):
    """A connection that is opened when it is first needed, by one caller at a time."""

    def __init__(self, connect: Callable[[], Awaitable[T]]) -> None:
        self._connect = connect
        self._connection: T | None = None
        self._lock = asyncio.Lock()

    async def get(self, is_usable: Callable[[T], bool] = lambda _: True) -> T:
        """Return the connection; a new one when there is none or it is not usable. Raises what connecting raises."""
        async with self._lock:
            if self._connection is None or not is_usable(self._connection):
                self._connection = await self._connect()
            return self._connection

    def take(self) -> T | None:
        """Return the connection, if there is one, for the caller to close; the next `get` opens another."""
        connection, self._connection = self._connection, None
        return connection

    def discard(self, connection: T) -> bool:
        """Forget a connection that failed; False when another one has replaced it already."""
        if connection is not self._connection:
            return False
        self._connection = None
        return True


def _host(text: str, port: int) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    if not parts.hostname or parts.username is not None:
        raise ValueError(text)
    return parts.hostname, parts.port or port


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
