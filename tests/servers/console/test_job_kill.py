"""A bulk whose server is killed with SIGKILL keeps its progress and sends no event twice."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

import interlock
from interlock.model.journal.entry import Entry
from interlock.operate.jobs.job import BULK_ADVICE
from interlock.operate.jobs.store import OWNER_TIMEOUT_MS
from interlock.ports.clock import SystemClock
from tests.servers.console.dying_serve import DIES_AT
from tests.support.eventually import PATIENCE_SECONDS, eventually
from tests.unit.web.consoles import ORDER, open_console

pytestmark = pytest.mark.slow

ORDERS = 50
ROOT = Path(__file__).parents[3]
LOOKS_MAX = 4_000


class LaterClock(SystemClock):
    """The real clock, after the timeout of a job's owner."""

    def now_ms(self) -> int:
        """Return the shifted time."""
        return super().now_ms() + OWNER_TIMEOUT_MS


async def fill(url: str) -> None:
    """Create orders that can be cancelled."""
    async with interlock.open(url, charts=[interlock.loads(ORDER)], work=False) as runtime:
        for number in range(ORDERS):
            await runtime.create(f"order/A-{number:03}", {"amount": 10})


async def start_bulk(link: str) -> None:
    """Start a bulk on a server that may be killed before it responds."""
    address, _, secret = link.partition("/#login=")
    async with httpx.AsyncClient(
        base_url=f"{address}/api/v1/", headers={"Origin": address}, timeout=PATIENCE_SECONDS
    ) as client:
        client.headers["X-Interlock-CSRF"] = (await client.post("login", json={"secret": secret})).json()["csrf"]
        body = {"kind": "order", "event": "order.cancelled", "filter": {"state": "unpaid"}}
        rehearsal = (await client.post("bulk", json=body)).json()["id"]

        async def has_ended() -> bool:
            return (await client.get(f"jobs/{rehearsal}")).json()["ended_ms"] is not None

        await eventually(has_ended)
        run = {**body, "dry_run": False, "reason": "season is over", "per_second": 1_000, "rehearsal": rehearsal}
        with suppress(httpx.TransportError):
            await client.post("bulk", json=run)


async def resumed(store: str) -> tuple[Any, Any, list[tuple[Entry, ...]]]:
    """Return the job before and after the next server resumes it, and the journals of all orders."""
    async with open_console(store, clock=LaterClock()) as console:
        (found,) = (await console.json("jobs"))["jobs"]
        await console.post(f"jobs/{found['id']}/resume")
        ended = await console.ended(found["id"])
        return found, ended, [await console.runtime.journal(f"order/A-{number:03}") for number in range(ORDERS)]


@pytest.mark.parametrize("store", ["sqlite:///o.db", "file:orders"])
def test_killed_bulk_is_resumed_and_sends_to_each_entity_once(tmp_path: Path, monkeypatch: Any, store: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "order.yaml").write_text(ORDER, encoding="utf-8")
    asyncio.run(fill(store))
    command = [
        sys.executable,
        "-m",
        "tests.servers.console.dying_serve",
        "serve",
        store,
        "--chart",
        "order.yaml",
        "--port",
        "0",
    ]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            asyncio.run(start_bulk(process.stdout.readline().strip()))
            code = process.wait(timeout=PATIENCE_SECONDS)
        finally:
            process.kill()
    found, ended, journals = asyncio.run(resumed(store))

    assert -signal.SIGKILL == code
    assert ("interrupted", "season is over") == (found["status"], found["reason"])
    assert (DIES_AT, {"applied": DIES_AT}) == (found["seen"], found["outcomes"])
    assert found["advice"] == BULK_ADVICE
    assert ("done", ORDERS, {"applied": ORDERS}) == (ended["status"], ended["seen"], ended["outcomes"])
    assert [["_create", "order.cancelled"]] * ORDERS == [[each.event.name for each in some] for some in journals]
    keys = {f"_bulk/{found['id']}/order/A-{number:03}" for number in range(ORDERS)}
    assert keys == {some[1].key for some in journals}
