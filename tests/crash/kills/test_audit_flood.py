"""kill -9 in a flood of refused events: every row is there, and at most the counts since the last summary are lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from interlock.model.audit import AuditRow
from interlock.model.limits import AUDIT_BURST
from interlock.stores.registry import open_store
from interlock.trust.audit_chain import verify_chain
from tests.support.postgres_server import store_or_skip

REPORTS = 50
"""Lines of the program before it is killed: some seconds, in which counts are written."""

LATE_MS_MAX = 20_000
"""How late counts may be written on a busy machine; on an idle one it is a second."""


def address(name: str, folder: Path) -> str:
    """Return the address of a store of this kind."""
    if name == "postgres":
        return store_or_skip()
    return {"sqlite": f"sqlite:///{folder}/store.db", "file": f"file://{folder}/store"}[name]


@pytest.mark.parametrize("name", ["file", "sqlite", "postgres"])
async def test_a_killed_process_loses_the_counts_since_the_last_summary(tmp_path: Path, name: str) -> None:
    url = address(name, tmp_path)
    command = [sys.executable, "-m", "tests.crash.kills.audit_flood", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:  # noqa: ASYNC220 - nothing else runs
        assert program.stdout is not None
        try:
            assert "quiet\n" == program.stdout.readline()
            reports = [tuple(map(int, program.stdout.readline().split())) for _ in range(REPORTS)]
        finally:
            program.kill()
    store = await open_store(url)
    assert store.audit is not None
    rows: list[AuditRow] = []
    while page := await store.audit.audit_after(len(rows)):
        rows += [each.decode() for each in page]
    report = await verify_chain(store.audit)
    await store.close()
    of_eve = [each for each in rows if each.actor == "eve"]
    counted = sum(each.count for each in of_eve)
    last_ms = max(each.time_ms for each in of_eve if each.is_summary)
    answered = max(answers for at_ms, answers in reports if at_ms <= last_ms)

    assert (len(rows), None) == (report.linked, report.broken)
    assert 1 == sum(each.count for each in rows if each.actor == "ada")
    assert AUDIT_BURST <= sum(1 for each in of_eve if not each.is_summary)
    assert counted >= answered > AUDIT_BURST
    assert reports[-1][0] - last_ms <= LATE_MS_MAX
