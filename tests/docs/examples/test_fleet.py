"""A fleet that is kept as it should be: whatever made a device differ, it is brought back, on a real database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from examples.device_fleet.fleet import OPERATOR, fleet
from interlock.assemble.runtimes import open as opening
from interlock.errors import RejectedError, UnavailableError
from interlock.runtime.runtime import Runtime
from tests.docs.examples.scene import reached
from tests.support.eventually import PATIENCE_SECONDS

DEVICE = "device/1"


class Field:
    """One device and its observer."""

    def __init__(self, firmware: str = "1.0") -> None:
        self.firmware = firmware
        self.installs: list[str] = []
        self.is_silent = False
        self.is_offline = False
        self._looks = 0
        self._looked = asyncio.Event()

    async def observe(self, device: str) -> str:
        """What it runs, unless it does not say."""
        self._looks += 1
        self._looked.set()
        if self.is_silent:
            raise UnavailableError(f"{device} does not answer", code="device.silent")
        return self.firmware

    async def install(self, device: str, firmware: str, key: str) -> None:
        """Install, unless it is offline."""
        if self.is_offline:
            raise RejectedError(f"{device} is offline", code="device.offline")
        self.installs.append(key)
        self.firmware = firmware

    async def looked_at(self, times: int) -> None:
        """Wait until it was looked at some more times."""
        wanted = self._looks + times
        async with asyncio.timeout(PATIENCE_SECONDS):
            while self._looks < wanted:
                self._looked.clear()
                await self._looked.wait()


@asynccontextmanager
async def devices(folder: Path, field: Field) -> AsyncIterator[Runtime]:
    """A device in a file, its handler and its reconciler."""
    url = f"sqlite:///{folder}/fleet.db"
    async with opening(url, charts=[fleet(field, every="20ms")]) as runtime:
        await runtime.create(DEVICE, {"firmware": "1.0", "pause": "10ms"}, key="created")
        yield runtime


async def updated(runtime: Runtime) -> None:
    """Wait until it has been updated."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        async for entry in runtime.watch(DEVICE, poll_ms=50):
            if entry.event.name == "done.invoke.update":
                return


async def test_a_device_that_is_as_it_should_be_is_left_alone(tmp_path: Path) -> None:
    field = Field()
    async with devices(tmp_path, field) as runtime:
        await field.looked_at(3)

        assert (1, []) == ((await runtime.state(DEVICE)).version, field.installs)


@pytest.mark.parametrize("cause", ["a wish", "a swap"])
async def test_whatever_made_it_differ_it_is_brought_back(tmp_path: Path, cause: str) -> None:
    field = Field()
    async with devices(tmp_path, field) as runtime:
        if cause == "a wish":
            await runtime.send(DEVICE, "firmware.wanted", {"firmware": "2.0"}, principal=OPERATOR)
        else:
            field.firmware = "0.9"
        await updated(runtime)

        wanted = (await runtime.state(DEVICE)).context["firmware"]
        assert (wanted, 1) == (field.firmware, len(field.installs))


async def test_a_device_that_is_offline_is_tried_again_until_it_is_there(tmp_path: Path) -> None:
    field = Field("0.9")
    field.is_offline = True
    async with devices(tmp_path, field) as runtime:
        await reached(runtime, DEVICE, ["unreachable"])
        assert 0 < (await runtime.state(DEVICE)).context["failures"]
        field.is_offline = False
        await updated(runtime)

        assert ("1.0", 0) == (field.firmware, (await runtime.state(DEVICE)).context["failures"])


async def test_a_device_that_does_not_say_what_it_runs_is_not_touched(tmp_path: Path) -> None:
    field = Field("0.9")
    field.is_silent = True
    async with devices(tmp_path, field) as runtime:
        await field.looked_at(2)
        assert 1 == (await runtime.state(DEVICE)).version
        field.is_silent = False
        await updated(runtime)

        assert "1.0" == field.firmware


async def test_a_retired_device_is_forgotten(tmp_path: Path) -> None:
    field = Field()
    async with devices(tmp_path, field) as runtime:
        await runtime.send(DEVICE, "device.retired", principal=OPERATOR)
        late = await runtime.send(DEVICE, "firmware.wanted", {"firmware": "2.0"}, principal=OPERATOR)

        assert ("retired",) == (await runtime.state(DEVICE)).configuration
        assert late.outcome in ("rejected", "ignored")
        assert [] == field.installs
