"""What a storm plays with: the charts of the examples, hurried; and the workers that perform their work.

Rule 1: the charts are the examples' own, word for word; only each duration is a fraction of itself, since a storm has
no two days to wait for.
Rule 2: a worker is an ordinary runtime with a short lease: what a killed one had in hand is taken up after that. Its
clock may be wrong, as on another host.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from examples.order import order
from examples.vm import vm
from interlock.assemble.charts import BoundChart
from interlock.assemble.runtimes import PendingRuntime
from interlock.assemble.runtimes import open as opening
from interlock.model.duration import parse_duration
from interlock.ports.clock import SystemClock
from tests.chaos.services import Line

HURRY = 8
"""Durations are divided by this: a charge may take 250 ms, a saga's step of ten seconds 1,250."""
LEASE_MS = 1_000
SLOW_S = 1.6
"""How long a slow service takes: longer than most calls may, by a good measure."""

_DURATION = re.compile(r"(?<![\w.])(\d+(?:ms|s|m|h|d))\b")


def hurried(text: str, by: float) -> str:
    """A definition with every duration a fraction of itself."""

    def shorter(found: re.Match[str]) -> str:
        return f"{round((parse_duration(found[1]) or 0) / by)}ms"

    return _DURATION.sub(shorter, text)


def write_definitions(folder: Path, hurry: float = HURRY) -> None:
    """The hurried definitions, in a folder."""
    for source in (order.CHART, *sorted(vm.FOLDER.glob("*.interlock.yaml"))):
        (folder / source.name).write_text(hurried(source.read_text(encoding="utf-8"), hurry), encoding="utf-8")


def charts(services: Any, folder: Path) -> list[BoundChart]:
    """The charts of both examples with their handlers, on these services."""
    return [order.shop(services, folder / order.CHART.name), *vm.provider(services, folder)]


class Loud:
    """The services, with a word to the driver before each call: a kill then meets a handler at work."""

    def __init__(self, line: Line, say: Callable[[bytes], None]) -> None:
        self._line = line
        self._say = say

    async def do(self, deed: str, key: str, entity: str) -> str:
        """As `Line.do`."""
        self._say(b"do")
        number = await self._line.do(deed, key, entity)
        self._say(b"done")
        return number

    async def undo(self, name: str) -> None:
        """As `Line.undo`."""
        self._say(b"undo")
        await self._line.undo(name)

    async def find(self, key: str) -> str | None:
        """As `Line.find`."""
        self._say(b"find")
        return await self._line.find(key)


class Forgetful(Loud):
    """A control: it makes up a key for each call, as a handler does that ignores the one it is given."""

    _calls = 0

    async def do(self, deed: str, key: str, entity: str) -> str:
        """Do it under another key each time."""
        self._calls += 1
        return await super().do(deed, f"{key}~{os.getpid()}.{self._calls}", entity)


class Mortal(Loud):
    """Not a fault of ours, but of the day: the process is killed when the deed is done, before its result is kept."""

    async def do(self, deed: str, key: str, entity: str) -> str:
        """Do it, and die."""
        await super().do(deed, key, entity)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("still alive")


FAULTS: dict[str, type[Loud]] = {"": Loud, "ignores_key": Forgetful, "dies_after_deed": Mortal}


class Skewed(SystemClock):
    """The clock of a host that goes wrong by some time."""

    def __init__(self, skew_ms: int) -> None:
        self._skew_ms = skew_ms

    def now_ms(self) -> int:
        """What this host takes for the time."""
        return super().now_ms() + self._skew_ms


def works(
    pipe: Connection, url: str, port: int, folder: str, fault: str = "", bus: str | None = None, skew_ms: int = 0
) -> None:
    """The process: performs what it finds until it is killed, or told to leave (SIGTERM)."""
    opened = opening(
        url,
        charts=charts(FAULTS[fault](Line(port), pipe.send_bytes), Path(folder)),
        clock=Skewed(skew_ms),
        bus=bus,
        lease_ms=LEASE_MS,
    )
    asyncio.run(_worked(opened, pipe))


async def _worked(opened: PendingRuntime, pipe: Connection) -> None:
    told_to_leave, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, told_to_leave.set)
    loop.add_reader(pipe.fileno(), os._exit, 1)  # nothing ever comes but its end: nobody is there to end us
    async with opened:
        pipe.send_bytes(b"here")
        await told_to_leave.wait()
