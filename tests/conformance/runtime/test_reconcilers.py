"""An open runtime runs its reconcilers, on every store."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import interlock
from interlock import ReconcileRequest, ReconcileResult
from tests.support.eventually import PATIENCE_SECONDS
from tests.support.postgres_server import store_or_skip
from tests.unit.runtime.reconcilers import orders


@pytest.mark.parametrize(
    "address",
    ["memory:", "sqlite:///{}/orders.db", "file://{}/orders", "postgresql:"],
    ids=["memory", "sqlite", "file", "postgresql"],
)
async def test_an_open_runtime_runs_its_reconcilers(address: str, tmp_path: Path) -> None:
    url = store_or_skip() if address == "postgresql:" else address.format(tmp_path)

    async def look(seen: ReconcileRequest) -> ReconcileResult:
        return ReconcileResult("charge.confirmed")

    async with interlock.open(url, charts=[orders(look, every="20ms")]) as runtime:
        await runtime.create("order/1")
        async with asyncio.timeout(PATIENCE_SECONDS):
            async for entry in runtime.watch("order/1", poll_ms=20):
                if entry.after == ("charged",):
                    break

        assert ("charged",) == (await runtime.state("order/1")).configuration
