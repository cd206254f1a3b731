"""Addresses of buses: what may stand in one, and what of it may be shown.

    scheme://user:password@host:port,host:port/path?option=value

Rule 1: no error names more of an address than hosts, path and the names of options: passwords never leave it.
Rule 2: an option that nobody knows is refused where it is written, with the nearest that is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from interlock.errors import MissingExtraError, UsageError
from interlock.model.diagnostics import suggestion
from interlock.model.journal.message import Message

ID_BYTES_MAX = 255
"""Bytes of an id on the wire: the shortest that any bus carries, which is AMQP's."""


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
        """An option that is 0 or 1. Raises UsageError for anything else."""
        text = self.options.get(option, "0")
        if text not in {"0", "1"}:
            raise UsageError(f"`{option}` of the bus's address is neither 0 nor 1", code="bus.option")
        return text == "1"

    def number(self, option: str, otherwise: int) -> int:
        """An option that is a whole number above zero. Raises UsageError for anything else."""
        text = self.options.get(option, str(otherwise))
        if not (text.isascii() and text.isdigit() and int(text[:18]) > 0):
            raise UsageError(f"`{option}` of the bus's address is no number above 0", code="bus.option")
        return int(text[:18])

    def needed(self, option: str, example: str) -> str:
        """An option that must be there. Raises UsageError when it is not."""
        found = self.options.get(option, "")
        if not found:
            message = f"the address of the bus at {self.place} names no `{option}`"
            raise UsageError(message, code="bus.option", hint=f"such as {example}")
        return found


def parse_address(
    url: str,
    *,
    port: int,
    options: tuple[str, ...],
    example: str,
    passed_on: Callable[[str], bool] = lambda name: False,
) -> BusAddress:
    """What an address says; `passed_on` tells which options are the client's own. Raises UsageError when it is none."""
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
        if name not in options and not passed_on(name):
            near = suggestion(name, options)
            hint = near or (f"there are {', '.join(options)}" if options else "there are none")
            raise UsageError(f"`{name[:80]}` is no option of such a bus", code="bus.option", hint=hint)
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
    """What is raised for an address that is none."""
    return UsageError("this is no address of a bus", code="bus.address", hint=f"such as {example}")


def missing_extra(error: ModuleNotFoundError, package: str, extra: str) -> MissingExtraError:
    """What is raised when the client of a bus is not installed; an import that fails inside it goes on as it is."""
    if error.name is None or error.name.partition(".")[0] != package:
        raise error
    message = f"this bus needs the package `{package}`"
    return MissingExtraError(message, code=f"extra.{extra}", hint=f"pip install 'interlock[{extra}]'")


def wire_id(message: Message) -> str:
    """The id by which a bus knows a message, as a header can carry it: bound to its source, without a full stop.

    A longer one than AMQP carries is a digest: cut short, two messages would be one.
    """
    text = quote(f"{message.source}#{message.id}", safe="/:#").replace(".", "%2E")
    return text if len(text) <= ID_BYTES_MAX else blake2b(text.encode(), digest_size=32).hexdigest()


def _host(text: str, port: int) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    if not parts.hostname or parts.username is not None:
        raise ValueError(text)
    return parts.hostname, parts.port or port


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
