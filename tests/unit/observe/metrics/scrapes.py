"""Charts, and what a scrape of their runtime shows."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from interlock.observe.metrics.exporter import CACHE_MS, MetricsExporter
from interlock.testing.clock import VirtualClock

ORDER = """
interlock: 1
kind: order
revision: 1.0.0
events: {pay: {roles: [customer]}, ship: {roles: [customer]}, look: {roles: [customer]}}
initial: unpaid
states:
  unpaid: {expect: {within: 1h}, on: {pay: paid}, after: {48h: expired}}
  paid: {on: {ship: shipped, look: {actions: [seen]}}}
  shipped: {type: final}
  expired: {type: final}
"""
ACCOUNT = """
interlock: 1
kind: account
initial: open
states:
  open: {on: {freeze: frozen, use: {actions: [used]}}}
  frozen: {sensitive: {as: open}, expect: {within: 1h}, on: {thaw: open}, entry: [report]}
"""
CUSTOMER = {"id": "ada", "roles": ["customer"]}

Scrape = dict[tuple[str, tuple[tuple[str, str], ...]], float]
"""Every sample by its name and labels."""


def parsed(text: bytes) -> Scrape:
    """The samples of a text."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


async def scrape(exporter: MetricsExporter, clock: VirtualClock) -> Scrape:
    """A new text of an exporter: the cached one is too old by then."""
    clock.time_ms += CACHE_MS
    return parsed(await exporter.render())


def value(found: Scrape, name: str, **labels: str) -> float | None:
    """One sample, or None."""
    return found.get((name, tuple(sorted(labels.items()))))


def names(found: Scrape) -> set[str]:
    """The names of samples."""
    return {name for name, _ in found}
