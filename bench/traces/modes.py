"""One mode of the traces suite, in its own process.

python -m bench.traces.modes MODE SENDS
"""

from __future__ import annotations

import asyncio
import gc
import io
import json
import logging
import sys
import time
from typing import TYPE_CHECKING

import interlock

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

MODES = ("off", "passed", "log", "unsampled", "spans")
ENTITIES = 100
SENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
LAMP = """
interlock: 1
kind: lamp
states:
  off: {on: {flip: on}}
  on: {on: {flip: off}}
"""


class _Nowhere(io.TextIOBase):
    def write(self, text: str) -> int:
        """Keep nothing."""
        return len(text)


def _provider(mode: str) -> TracerProvider | None:
    if mode not in ("spans", "unsampled"):
        return None
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON

    return TracerProvider(sampler=ALWAYS_ON if mode == "spans" else ALWAYS_OFF)


def _turn_log_on() -> None:
    from interlock.observe.log_format import JsonLines

    log, handler = logging.getLogger("interlock.transitions"), logging.StreamHandler(_Nowhere())
    handler.setFormatter(JsonLines())
    log.addHandler(handler)
    log.setLevel(logging.INFO)


async def measured(mode: str, sends: int) -> dict[str, float]:
    """Return the time of a send in microseconds."""
    if mode == "log":
        _turn_log_on()
    trace = SENT if mode == "passed" else None
    async with interlock.open("memory:", charts=[interlock.loads(LAMP)], tracer_provider=_provider(mode)) as lamps:
        for number in range(ENTITIES):
            await lamps.create(f"lamp/{number}", trace=trace)
        gc.collect()
        gc.disable()
        began_ns = time.perf_counter_ns()
        for number in range(sends):
            await lamps.send(f"lamp/{number % ENTITIES}", "flip", trace=trace)
        taken_ns = time.perf_counter_ns() - began_ns
    return {"us": taken_ns / sends / 1_000}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measured(sys.argv[1], int(sys.argv[2])))))
