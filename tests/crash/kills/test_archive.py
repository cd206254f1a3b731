"""`interlock archive`, killed with SIGKILL: no journal is lost, and the same command finishes the work."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import interlock
from interlock.errors import NotFoundError
from interlock.stores.registry import open_store as open_store_url
from tests.support.cli import Caller

COUNT = 5
CHART = """\
interlock: 1
kind: job
revision: 1.0.0
states:
  open: {on: {end: over}, expect: {within: forever}}
  over: {type: final}
"""
ARCHIVE = ("archive", "sqlite:///jobs.db", "--kind", "job", "--state", "over", "--older", "0ms", "--to", "file:shelf")


def test_a_killed_archive_loses_nothing_and_can_be_resumed(call: Caller, folder: Path) -> None:
    (folder / "job.yaml").write_text(CHART, encoding="utf-8")
    with interlock.open(f"sqlite:///{folder}/jobs.db", charts=[interlock.loads(CHART)]).blocking() as jobs:
        for number in range(COUNT):
            jobs.create(f"job/{number}")
            jobs.send(f"job/{number}", "end")
    before = asyncio.run(_journals(f"sqlite:///{folder}/jobs.db"))
    month = folder
    for lines in (1, 2):
        _killed(folder, after=lines)
        here = asyncio.run(_journals(f"sqlite:///{folder}/jobs.db"))
        (month,) = (folder / "shelf").iterdir()  # made by the first run
        away = asyncio.run(_journals(f"file://{month}"))

        assert {} == {entity: lines for entity, lines in before.items() if lines not in (here[entity], away[entity])}
    ended = call(*ARCHIVE, "--chart", "job.yaml")

    assert 0 == ended.code
    assert before == asyncio.run(_journals(f"file://{month}"))
    assert set() == {entity for entity, lines in asyncio.run(_journals(f"sqlite:///{folder}/jobs.db")).items() if lines}
    assert 0 == call("verify", f"file://{month}", "--chart", "job.yaml").code


def _killed(folder: Path, *, after: int) -> None:
    """Start to archive, and kill the process after it has printed this number of entities."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "interlock", *ARCHIVE, "--chart", "job.yaml"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        for _ in range(after):
            assert b"archived to" in process.stdout.readline()
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


async def _journals(url: str) -> dict[str, list[bytes]]:
    """Return the stored lines of every job; none for a job that is missing or released."""
    store = await open_store_url(url)
    found: dict[str, list[bytes]] = {}
    for number in range(COUNT):
        entity = f"job/{number}"
        try:
            found[entity] = [each.line for each in await store.read(entity)]
        except NotFoundError:
            found[entity] = []
    await store.close()
    return found
