"""kill -9 around the append of the event for an overdue entity: the next worker sends it, or finds it sent."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

import interlock
from interlock.model.limits import EXPECT_LEASE_MS
from interlock.ports.clock import SystemClock
from interlock.testing.clock import VirtualClock
from tests.crash.kills.overdue_worker import CHART
from tests.support.eventually import PATIENCE_SECONDS

ROOT = Path(__file__).parents[3]


async def killed(url: str, point: str) -> None:
    """Run a worker until it is at a point, and kill it."""
    command = (sys.executable, "-m", "tests.crash.kills.overdue_worker", url, point)
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=PIPE)
    try:
        assert process.stdout is not None
        assert b"stopped\n" == await process.stdout.readline()
    finally:
        process.kill()
        await process.wait()


@pytest.mark.parametrize(("point", "events"), [("before", 1), ("after", 2)])
async def test_a_killed_worker_leaves_the_event_to_the_next_one(tmp_path: Path, point: str, events: int) -> None:
    """The lease of the dead worker ends first: until then the next one sends nothing."""
    url, chart = f"sqlite:///{tmp_path}/orders.db", interlock.loads(CHART)
    async with asyncio.timeout(PATIENCE_SECONDS), interlock.open(url, charts=[chart], work=False) as sender:
        await sender.create("order/1")
        await killed(url, point)
        assert events == len(await sender.journal("order/1"))

        clock = VirtualClock(SystemClock().now_ms())
        async with interlock.open(url, charts=[interlock.loads(CHART)], clock=clock):
            await clock.advance(EXPECT_LEASE_MS // 3)
            waiting = len(await sender.journal("order/1"))
            await clock.advance(2 * EXPECT_LEASE_MS)
            entries = await sender.journal("order/1")

    assert events == waiting
    assert ["_create", "late"] == [each.event.name for each in entries]
