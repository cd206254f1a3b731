"""Interlock on Temporal's development server: `interlock.open("temporal://...")`, with a worker in this process.

The order has an effect, which runs as an activity and does nothing, and it is listed by its state.
"""

from __future__ import annotations

import os
import time
from importlib.metadata import version
from pathlib import Path

import interlock
from bench.durable.engines.interlock_stores import Orders
from bench.durable.order import Line, Place

CHART = interlock.load(Path(__file__).resolve().parents[2] / "charts" / "shipment.interlock.yaml")


@CHART.handler("charge_card")
async def charge_card(_: interlock.Attempt) -> None:
    """Do nothing."""


def _on_temporal(place: Place) -> Orders:
    if place.temporal is None:
        raise RuntimeError("no Temporal server")
    queue = f"bench-{os.getpid()}-{time.monotonic_ns()}"
    return Orders(f"temporal://{place.temporal}/default?queue={queue}", chart=CHART)


LINES = {"temporal": Line(name="Interlock on Temporal", version=version("interlock"), make=_on_temporal)}
