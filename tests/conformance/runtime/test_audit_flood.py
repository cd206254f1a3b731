"""In a flood of refused events, rows and counts together are all attempts, on every store."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

import interlock
from interlock.errors import UnavailableError
from interlock.model.audit import FLOOD
from interlock.runtime.runtime import Runtime
from tests.support.audit import audit_rows
from tests.support.postgres_server import store_or_skip
from tests.unit.trust.test_audit import ADA, CHART, EVE


def address(name: str, folder: Path) -> str:
    """Return the address of a store of this kind."""
    if name == "postgres":
        return store_or_skip()
    return {"memory": "memory:", "sqlite": f"sqlite:///{folder}/store.db", "file": f"file://{folder}/store"}[name]


@pytest.mark.parametrize("name", ["memory", "file", "sqlite", "postgres"])
async def test_in_a_flood_rows_and_counts_are_all_attempts(tmp_path: Path, name: str) -> None:
    """64 clients of one principal at full speed. A quiet principal has a separate row, and no sender waits for long."""
    url, chart = address(name, tmp_path), interlock.loads(CHART)
    attempts: Counter[str] = Counter()

    async def client(opened: Runtime, number: int) -> None:
        for turn in range(60):
            attempts["eve"] += 1
            entity = f"o/{turn % 3}"
            try:
                receipt = await opened.send(entity, "go" if turn % 2 else "own", {"x": number}, principal=EVE)
                attempts[receipt.outcome] += 1
            except UnavailableError as error:
                assert FLOOD == error.code  # noqa: PT017 - many more follow
                attempts["stopped"] += 1

    async with interlock.open(url, charts=[chart], work=False) as opened:
        await opened.create("o/1", principal=ADA)
        await opened.create("o/0", principal=ADA)
        await opened.create("o/2", principal=ADA)
        flood = asyncio.gather(*(client(opened, each) for each in range(64)))
        await opened.send("o/1", "own", principal=ADA)
        await flood
        await opened.audit.close()
        rows = await audit_rows(opened.store)
    of_eve = [each for each in rows if each.actor == "eve"]

    assert 64 * 60 == attempts["eve"] == attempts["denied"] + attempts["stopped"]
    assert attempts["eve"] == sum(each.count for each in of_eve)
    assert attempts["stopped"] == sum(each.count for each in of_eve if each.reason == FLOOD)
    assert ["permit"] == [each.reason for each in rows if each.actor == "ada"]
    assert {("a",)} == {each.state_from for each in rows if not each.is_summary}
