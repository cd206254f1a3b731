"""Buses by the scheme of their address.

The module of a bus is imported when its address is opened, and its client by that module.
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
"""The buses of this package. Each module has an `open_bus(url)`, and most an `open_source(url)`."""

BUS_GROUP = "interlock.buses"
"""The entry points of other packages: a scheme, and a function that opens a bus by its address."""


def open_bus_url(url: str) -> Bus:
    """Return the bus at an address. It connects when the first message is published. The caller closes it.

    Raises UsageError for an invalid address, MissingExtraError when the client of the bus is not installed.
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
    hint = (colon and suggestion(scheme, known)) or f"known schemes: {_listed(known)}"
    raise UsageError(f"unknown scheme `{scheme[:40]}{colon}` of a bus", code="bus.unknown", hint=hint)


def open_source_url(url: str) -> MessageSource:
    """Return the reader of the bus at an address. The caller closes it. Raises as `open_bus_url` does."""
    scheme, colon, _ = url.partition(":")
    module: Any = import_module(BUSES[scheme]) if colon and scheme in BUSES else None
    if not hasattr(module, "open_source"):
        hint = f"known schemes: {_listed([each for each in sorted(BUSES) if not each.startswith('http')])}"
        message = f"messages cannot be read from an address with the scheme `{scheme[:40]}{colon}`"
        raise UsageError(message, code="bus.unknown", hint=hint)
    found: MessageSource = module.open_source(url)
    return found


def _listed(names: list[str]) -> str:
    return ", ".join(f"{each}:" for each in names)
