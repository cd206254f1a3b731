"""kill -9 of the worker, and of the server, in the middle of sagas: everything settles, and nothing is done twice.

The ledger is what a service outside would see. A call may be repeated under its key, which such a service recognizes;
a second key for the same booking would be a second booking.

`INTERLOCK_TEMPORAL_KILLS` sets the number of kills.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import IO

import pytest

import interlock
from interlock.errors import UnavailableError
from interlock.runtime.history.verify import verify_entity
from interlock.runtime.runtime import Runtime
from tests.servers.temporal import killed_worker
from tests.servers.temporal.killed_worker import HANDLERS, tours
from tests.support.eventually import eventually
from tests.support.temporal_server import TemporalServer, private_server

KILLS = int(os.environ.get("INTERLOCK_TEMPORAL_KILLS", "2"))
SAGAS = 3
"""Sagas that are running at each kill."""

pytestmark = [pytest.mark.xdist_group("temporal"), pytest.mark.slow]


class Worker:
    """A worker in another process."""

    def __init__(self, url: str, ledger: Path) -> None:
        self._url, self._ledger = url, ledger
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it, and wait until it polls."""
        command = [sys.executable, "-m", killed_worker.__name__, self._url, str(self._ledger)]
        root = Path(__file__).parents[3]
        self._process = subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True)
        output: IO[str] | None = self._process.stdout
        assert output is not None
        assert output.readline() == "ready\n"

    def kill(self) -> None:
        """End it with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None


async def _insist(call: object) -> None:
    """Make a call again, with the same key, until it is answered: what every caller of a server must do."""
    assert callable(call)
    while True:
        try:
            (await call()).expect()
        except UnavailableError:
            await asyncio.sleep(0.1)
        else:
            return


async def _ordered(runtime: Runtime, entity: str) -> None:
    await _insist(lambda: runtime.create(entity, {}, key="c"))
    await _insist(lambda: runtime.send(entity, "ordered", key="o"))


async def _is_settled(runtime: Runtime, entity: str) -> bool:
    try:
        return "refused" in (await runtime.state(entity)).configuration
    except UnavailableError:
        return False


async def _killed(server: TemporalServer, ledger: Path, victim: str) -> None:
    url, chance = server.url(wait="5s"), random.Random(7)
    worker = Worker(url, ledger)
    try:
        worker.start()
        async with interlock.open(url, charts=[tours(None)], work=False) as runtime:
            for number in range(KILLS):
                tours_now = [f"tour/{victim}-{number}-{each}" for each in range(SAGAS)]
                before = _lines(ledger)
                orders = [asyncio.ensure_future(_ordered(runtime, each)) for each in tours_now]
                moment = chance.randint(0, 3 * SAGAS)
                await eventually(lambda: len(_lines(ledger)) >= len(before) + moment, "the moment of the kill")  # noqa: B023 - it is awaited in this round
                if victim == "worker":
                    worker.kill()
                    worker.start()
                else:
                    server.kill()
                    server.start()
                await asyncio.gather(*orders)
                for tour in tours_now:
                    await eventually(lambda: _is_settled(runtime, tour), f"{tour} is settled")  # noqa: B023 - it is awaited in this round
            for number in range(KILLS):
                for each in range(SAGAS):
                    await _check(runtime, f"tour/{victim}-{number}-{each}", ledger)
    finally:
        worker.kill()


def _lines(ledger: Path) -> list[str]:
    return ledger.read_text(encoding="utf-8").splitlines() if ledger.exists() else []


async def _check(runtime: Runtime, entity: str, ledger: Path) -> None:
    keys = defaultdict(set)
    for line in _lines(ledger):
        name, who, key = line.split(" ")
        if who == entity:
            keys[name].add(key)
    entries = await runtime.journal(entity)
    proof = await verify_entity(runtime.store, runtime.revisions, entity)

    assert {name: len(found) for name, found in keys.items()} == dict.fromkeys(HANDLERS, 1)
    assert [each.version for each in entries] == list(range(1, 8))
    assert len({each.key for each in entries}) == 7
    assert proof.problem is None


async def test_sagas_settle_when_the_worker_is_killed(tmp_path: Path) -> None:
    """Each booking and each compensation has one key, each entry one version."""
    with private_server() as server:
        await _killed(server, tmp_path / "ledger", "worker")


async def test_sagas_settle_when_the_server_is_killed(tmp_path: Path) -> None:
    """The same, with a server that starts again from its file."""
    with private_server() as server:
        await _killed(server, tmp_path / "ledger", "server")
