"""Projections on a PostgreSQL server: filled while many send, through killed runners; each entry takes effect once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

import interlock
from interlock.model.backoff import Backoff
from interlock.ports.reading.journal_feed import FeedEntry
from interlock.runtime.reading import projection
from tests.support.eventually import eventually
from tests.support.postgres_server import asked, store_or_skip

LAMP = """
interlock: 1
kind: lamp
context: {presses: {type: integer, default: 0}}
initial: dark
states: {dark: {}}
on: {press: {actions: [{assign: {presses: "= context.presses + 1"}}]}}
"""
TABLE = "CREATE TABLE public.lamp_versions (entity text PRIMARY KEY, version bigint NOT NULL, entries bigint NOT NULL)"
UPSERT = """
    INSERT INTO lamp_versions AS l VALUES ($1, $2, 1)
    ON CONFLICT (entity) DO UPDATE SET version = excluded.version, entries = l.entries + 1
    WHERE excluded.version = l.version + 1"""


async def count(connection: Any, entries: Sequence[FeedEntry]) -> None:
    """Count the entries of each entity; one that is missing or out of order stops the count."""
    for each in entries:
        await connection.execute(UPSERT, each.entity, each.entry.version)


async def test_a_projection_equals_the_store_after_many_runners_and_senders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runners are cancelled in the middle of batches, fail, and compete; senders continue meanwhile."""
    monkeypatch.setattr(projection, "RETRY", Backoff(1, 5))
    url = store_or_skip()
    chart = interlock.loads(LAMP)
    sent = {f"lamp/{number}": 0 for number in range(8)}
    async with interlock.open(url, charts=[chart], work=False) as lamps:
        asked(url, TABLE)
        is_done = asyncio.Event()

        async def send(entity: str) -> None:
            await lamps.create(entity)
            sent[entity] += 1
            for _ in range(30):
                await lamps.send(entity, "press")
                sent[entity] += 1

        async def run_and_kill() -> None:
            calls = 0

            def has_called(number: int) -> bool:
                return calls > number or is_done.is_set()

            while not is_done.is_set():
                async with interlock.open(url, charts=[chart], work=False) as other:

                    async def project(connection: Any, entries: Sequence[FeedEntry]) -> None:
                        nonlocal calls
                        calls += 1
                        await count(connection, entries)
                        if calls % 4 == 1:
                            raise ConnectionError("killed before the commit")

                    before = calls
                    other.projection("counts", batch=7)(project)
                    await eventually(partial(has_called, before + 2))

        runners = asyncio.ensure_future(asyncio.gather(run_and_kill(), run_and_kill()))
        await asyncio.gather(*map(send, sent))

        def is_filled() -> bool:
            rows = asked(url, "SELECT entity, version, entries FROM public.lamp_versions")
            return {row[0]: row[1:] for row in rows} == {entity: (number, number) for entity, number in sent.items()}

        await eventually(is_filled)
        is_done.set()
        await runners
        (status,) = await lamps.projections()
        assert (sum(sent.values()), None) == (status.entries, status.error)
