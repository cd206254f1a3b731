"""kill -9 while an operator retries or drops work: no act without its audit row."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from interlock.ports.work import WorkQuery
from interlock.stores.registry import open_store as open_store_url
from interlock.trust.audit_chain import verify_chain
from tests.crash.kills import operator_acts
from tests.support.audit import audit_rows
from tests.support.postgres_server import store_or_skip

SCRIPT = Path(operator_acts.__file__)
ROOT = SCRIPT.parents[3]
EVENTS = {"drop": "_work.dropped", "retry": "_work.retried", "requeue": "_work.retried"}
HOUR_MS = 3_600_000


def killed(address: str, act: str) -> int:
    """Return how many operators were killed before one finished."""
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    command = [sys.executable, str(SCRIPT), address, act]
    ended = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": paths}, check=True)
    kills, code = map(int, ended.stdout.split())
    assert 0 == code, ended.stderr
    return kills


async def left(address: str, act: str) -> list[tuple[bool, bool]]:
    """Return, for each operator in turn, whether the act was done and whether it is recorded."""
    store = await open_store_url(address)
    try:
        assert store.work is not None
        rows = {each.entity: each for each in (await store.work.list_work(WorkQuery(limit=500))).rows}
        assert store.audit is not None
        assert (await verify_chain(store.audit)).broken is None
        found = await audit_rows(store)
        recorded = {each.entity: each.event for each in found}
        assert {"ada"} == {each.actor for each in found}
    finally:
        await store.close()
    seen = []
    for number in range(operator_acts.KILLS_MAX):
        entity = f"parcel/{number}"
        row = rows.get(entity)
        if act == "drop":
            done = row is None
        elif act == "retry":
            done = row is not None and row.dead_ms is None
        else:
            done = row is not None and row.error is not None and (row.next_ms or 0) < _waits(rows) - HOUR_MS // 2
        seen.append((done, recorded.get(entity) == EVENTS[act]))
    return seen


def _waits(rows: object) -> int:
    assert isinstance(rows, dict)
    return max(each.next_ms or 0 for each in rows.values())


@pytest.mark.slow
@pytest.mark.parametrize("act", ["drop", "retry", "requeue"])
@pytest.mark.parametrize("kind", ["sqlite", "postgres", "file"])
async def test_no_act_of_an_operator_goes_unrecorded(tmp_path: Path, kind: str, act: str) -> None:
    addresses = {"sqlite": f"sqlite:///{tmp_path}/store.db", "file": f"file://{tmp_path}/store"}
    address = store_or_skip() if kind == "postgres" else addresses[kind]
    kills = killed(address, act)
    seen = (await left(address, act))[: kills + 1]

    assert kills >= 3
    assert (True, True) == seen[-1]
    assert (False, False) == seen[0]
    assert (True, False) not in seen
    if kind != "file":
        assert (False, True) not in seen
