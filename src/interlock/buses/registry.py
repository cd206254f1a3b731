"""Buses by the scheme of their address: the only module of the room that knows the others.

Rule: a bus's module is imported when its address is opened, and its client by that module.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from interlock.errors import UsageError
from interlock.model.diagnostics import suggestion
from interlock.ports.bus import Bus, MessageSource

BUSES = {
    "amqp": "interlock.buses.rabbitmq",
    "amqps": "interlock.buses.rabbitmq",
    "http": "interlock.buses.webhook",
    "https": "interlock.buses.webhook",
    "kafka": "interlock.buses.kafka",
    "memory": "interlock.buses.memory",
    "nats": "interlock.buses.nats",
    "redis": "interlock.buses.redis",
    "rediss": "interlock.buses.redis",
}
"""The buses that come with the package; each module has an `open_bus(url)`, and most an `open_source(url)`."""

BUS_GROUP = "interlock.buses"
"""The entry points by which other packages bring buses: a scheme, and a function of the address that opens one."""


def open_bus_url(url: str) -> Bus:
    """The bus at an address. It is connected to when the first message goes. Whoever opens it closes it.

    Raises UsageError for an address that is none, MissingExtraError where the client of its bus is not installed.
    """
    scheme, colon, _ = url.partition(":")
    if colon and scheme in BUSES:
        found: Bus = import_module(BUSES[scheme]).open_bus(url)
        return found
    others = {each.name: each for each in import_module("importlib.metadata").entry_points(group=BUS_GROUP)}
    if colon and scheme in others:
        other: Bus = others[scheme].load()(url)
        return other
    known = sorted({*BUSES, *others})
    hint = (colon and suggestion(scheme, known)) or f"addresses begin with {_listed(known)}"
    raise UsageError(f"`{scheme[:40]}{colon}` begins the address of no bus", code="bus.unknown", hint=hint)


def open_source_url(url: str) -> MessageSource:
    """The reader of the bus at an address; whoever opens it closes it. Raises as `open_bus_url` does."""
    scheme, colon, _ = url.partition(":")
    module: Any = import_module(BUSES[scheme]) if colon and scheme in BUSES else None
    if not hasattr(module, "open_source"):
        hint = f"addresses begin with {_listed([each for each in sorted(BUSES) if not each.startswith('http')])}"
        message = f"no messages come from an address that begins with `{scheme[:40]}{colon}`"
        raise UsageError(message, code="bus.unknown", hint=hint)
    found: MessageSource = module.open_source(url)
    return found


def _listed(names: list[str]) -> str:
    return ", ".join(f"{each}:" for each in names)
