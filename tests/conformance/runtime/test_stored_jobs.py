"""Interrupted bulk jobs resume, on every store."""

from pathlib import Path
from typing import Any

import pytest

from interlock.operate.jobs.job import BULK_ADVICE
from interlock.runtime.charts.registry import JOB_KIND
from tests.support.postgres_server import store_or_skip
from tests.unit.web.api.test_stored_jobs import ONCE, ShiftedClock, cancelled, start_bulk
from tests.unit.web.consoles import open_console


@pytest.mark.parametrize("store", ["sqlite", "file", "postgres"])
async def test_interrupted_bulk_reports_its_progress_and_resumes(tmp_path: Path, monkeypatch: Any, store: str) -> None:
    urls = {"sqlite": f"sqlite:///{tmp_path}/o.db", "file": f"file:{tmp_path}/orders"}
    url = urls[store] if store in urls else store_or_skip()
    async with open_console(url, clock=ShiftedClock()) as client:
        job, _ = await start_bulk(client, monkeypatch)
    async with open_console(url, clock=ShiftedClock()) as client:
        listed = (await client.json("jobs"))["jobs"]
        resumed = (await client.post(f"jobs/{job}/resume")).json()
        ended = await client.ended(job)
        taken = await cancelled(client)
        proof = await client.runtime.verify(f"{JOB_KIND}/{job}")

    assert [(job, "interrupted", 2, "season is over")] == [
        (each["id"], each["status"], each["seen"], each["reason"]) for each in listed
    ]
    assert listed[0]["advice"] == BULK_ADVICE
    assert ("running", None) == (resumed["status"], resumed["advice"])
    assert ("done", 5, {"applied": 5}) == (ended["status"], ended["seen"], ended["outcomes"])
    assert ({"unpaid": 5}, ONCE, True) == (ended["states"], taken, proof.replayed)
