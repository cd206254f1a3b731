"""The charts of a storm, which are those of the examples with shorter durations, and its workers.

Rule 1: the charts are those of the examples; only their durations are shorter.
Rule 2: a worker is an ordinary runtime with a short lease, after which the work of a killed one is claimed by another.
Its clock may be wrong, as on another host.
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
from tests.crash.chaos.services import Line

HURRY = 8
"""Durations are divided by this: a charge may take 250 ms, a saga's step of ten seconds 1,250."""
LEASE_MS = 1_000
SLOW_S = 1.6
"""How long a slow service takes: longer than most timeouts."""

_DURATION = re.compile(r"(?<![\w.])(\d+(?:ms|s|m|h|d))\b")


def hurried(text: str, by: float) -> str:
    """Return a definition with every duration divided."""

    def shorter(found: re.Match[str]) -> str:
        return f"{round((parse_duration(found[1]) or 0) / by)}ms"

    return _DURATION.sub(shorter, text)


def write_definitions(folder: Path, hurry: float = HURRY) -> None:
    """Write the definitions with shorter durations to a folder."""
    for source in (order.CHART, *sorted(vm.FOLDER.glob("*.interlock.yaml"))):
        (folder / source.name).write_text(hurried(source.read_text(encoding="utf-8"), hurry), encoding="utf-8")


def charts(services: Any, folder: Path) -> list[BoundChart]:
    """Return the charts of both examples with their handlers, on these services."""
    return [order.shop(services, folder / order.CHART.name), *vm.provider(services, folder)]


class Loud:
    """The services, with a report to the storm before each call: a kill then hits a running handler."""

    def __init__(self, line: Line, say: Callable[[bytes], None]) -> None:
        self._line = line
        self._say = say

    async def do(self, operation: str, key: str, entity: str) -> str:
        """As `Line.do`."""
        self._say(b"do")
        number = await self._line.do(operation, key, entity)
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
    """A control: it uses a new key for each call, like a handler that ignores its key."""

    _calls = 0

    async def do(self, operation: str, key: str, entity: str) -> str:
        """Do it under a new key each time."""
        self._calls += 1
        return await super().do(operation, f"{key}~{os.getpid()}.{self._calls}", entity)


class Mortal(Loud):
    """Kills the process after the operation and before its result is stored."""

    async def do(self, operation: str, key: str, entity: str) -> str:
        """Do it, and kill the process."""
        await super().do(operation, key, entity)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("still alive")


FAULTS: dict[str, type[Loud]] = {"": Loud, "ignores_key": Forgetful, "dies_after_deed": Mortal}


class Skewed(SystemClock):
    """A clock that is wrong by some time."""

    def __init__(self, skew_ms: int) -> None:
        self._skew_ms = skew_ms

    def now_ms(self) -> int:
        """Return the wrong time."""
        return super().now_ms() + self._skew_ms


def works(
    pipe: Connection, url: str, port: int, folder: str, fault: str = "", bus: str | None = None, skew_ms: int = 0
) -> None:
    """Run a worker process until it is killed or gets SIGTERM."""
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
    loop.add_reader(pipe.fileno(), os._exit, 1)  # the parent has ended
    async with opened:
        pipe.send_bytes(b"here")
        await told_to_leave.wait()
