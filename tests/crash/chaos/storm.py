"""A storm: two workers that are killed repeatedly, a client that repeats itself, services that fail; then the verdict.

1. The client creates orders and machines and sends them events. Some answers are lost and the event is sent again;
   some events arrive twice, some much later. The broker, where there is one, is killed twice.
2. Workers run effects, each with its own clock. A worker is killed (SIGKILL) after a few reports, mostly while a
   handler runs, and replaced. Some are suspended (SIGSTOP) for longer than their lease; some get SIGTERM
   and must shut down cleanly.
3. After enough kills, the storm acts as the operator for entities that wait for one by their chart.
4. When no work is left, every event is sent once more and must be a duplicate; then everything is read and checked.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from interlock.assemble.runtimes import open as opening
from interlock.ports.store import EntityRow
from interlock.ports.work import WorkQuery
from interlock.runtime.runtime import Runtime
from tests.crash.chaos.checker import HELD, Verdict, judge_messages, judged, rows_of
from tests.crash.chaos.client import Client
from tests.crash.chaos.crew import Crew
from tests.crash.chaos.post import Post
from tests.crash.chaos.services import Line, serves
from tests.crash.chaos.world import SLOW_S, charts, write_definitions
from tests.crash.kills.forked_workers import ANSWER_SECONDS_MAX, started

WORDS_MAX = 24
"""Reports at most between two kills."""
MOMENT_S = 0.03
UNDER_WAY_MAX = 30
"""Active entities at most, so that kills hit running work."""
DISMISSED = 0.1
"""Kills per dismissed worker."""
PAUSED = 0.1
"""Kills per suspended worker."""
AWAY_KILLS = 2
"""Kills while the broker is down."""
SETTLE_SECONDS_MAX = 300.0
PEOPLE = {
    "charge_unresolved": ("lookup.repeated", "support"),
    "fulfilment_unsettled": ("fulfilment.settled", "support"),
    "refund_failed": ("refund.repeated", "support"),
    "boot_unsettled": ("removal.repeated", "operator"),
    "removal_unsettled": ("removal.repeated", "operator"),
    "network unsettled": ("network.settled", "operator"),
    "storage unsettled": ("storage.settled", "operator"),
}
"""The event that an operator sends to an entity in such a state, and the role."""


@dataclass
class Outcome:
    """The result of a storm."""

    verdict: Verdict = field(default_factory=Verdict)
    kills: int = 0
    inside: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    other: list[str] = field(default_factory=list)

    def found(self) -> list[str]:
        """Return all findings."""
        return [*self.verdict.found(), *self.other]


def storm(url: str, folder: Path, *, kills: int, seed: int, fault: str = "", post: Post | None = None) -> Outcome:
    """Run one storm on a store, with its definitions in a folder; with a `post`, every entry is published."""
    write_definitions(folder)
    services = started(serves, seed, SLOW_S)
    try:
        assert services.pipe.poll(ANSWER_SECONDS_MAX)
        port = int(services.pipe.recv_bytes())
        if post is not None:
            post.open()
        return asyncio.run(_stormed(url, folder, port, kills, random.Random(seed), fault, post))
    finally:
        services.killed()
        if post is not None:
            post.close()


async def _stormed(
    url: str, folder: Path, port: int, kills: int, chance: random.Random, fault: str, post: Post | None
) -> Outcome:
    outcome, line, bus = Outcome(), Line(port), None if post is None else post.bus
    crew = Crew(chance, url, port, str(folder), fault, bus)
    async with opening(url, charts=charts(line, folder), work=False, bus=bus) as runtime:
        client = Client(runtime, chance)
        try:
            await _raged(runtime, client, crew, kills, chance, outcome, post)
            await client.deliver_all()
            await _settled(runtime, line, crew, outcome)
        finally:
            outcome.other += await asyncio.to_thread(crew.end)
        if crew.fallen:
            outcome.other.append(f"{crew.fallen} workers ended by themselves")
        await client.repeat_all()
        outcome.other += client.found
        book = await line.book()
        outcome.counts.update(client.counts, paused=crew.pauses, dismissed=crew.dismissed)
        outcome.counts.update(book["counts"])
        outcome.verdict = await judged(runtime, client.kept, book)
        if post is not None:
            told = sum(len(each) for each in outcome.verdict.applied.values())
            judge_messages(outcome.verdict, await post.read(told + outcome.verdict.emits))
            outcome.counts["deaths of the broker"] = post.deaths
    return outcome


async def _raged(
    runtime: Runtime, client: Client, crew: Crew, kills: int, chance: random.Random, outcome: Outcome, post: Post | None
) -> None:
    """Create, send, kill, restart; the broker is killed twice."""
    under_way = 0
    while outcome.kills < kills and not crew.is_hopeless:
        crew.fill()
        if post is not None and outcome.kills in (kills // 3, 2 * kills // 3):
            post.kill()
        elif post is not None and (outcome.kills - AWAY_KILLS) in (kills // 3, 2 * kills // 3):
            await asyncio.to_thread(post.open)
        if outcome.kills % 4 == 0:
            under_way = await _count_under_way(runtime)
        for _ in range(min(3, UNDER_WAY_MAX - under_way)):
            await client.begin()
            under_way += 1
        await client.deliver()
        words, patience = chance.randrange(1, WORDS_MAX), time.monotonic() + 5
        while words > 0 and time.monotonic() < patience:
            words -= await asyncio.to_thread(crew.hear, 0.5)
        await asyncio.sleep(chance.random() * MOMENT_S)  # not only right after reports
        crew.fill()  # some may have crashed meanwhile
        if chance.random() < PAUSED:
            crew.pause()
        if chance.random() < DISMISSED:
            crew.dismiss()
            crew.fill()
        outcome.inside += crew.kill()
        outcome.kills += 1
    if post is not None:
        await asyncio.to_thread(post.open)


async def _count_under_way(runtime: Runtime) -> int:
    assert runtime.store.work is not None
    return len({each.entity for each in (await runtime.store.work.list_work(WorkQuery(lane="effect", limit=200))).rows})


async def _settled(runtime: Runtime, line: Line, crew: Crew, outcome: Outcome) -> None:
    """Let entities finish, and act as the operator. Bounded: entities that are left then are stuck."""
    patience = time.monotonic() + SETTLE_SECONDS_MAX
    while time.monotonic() < patience and not crew.is_hopeless:
        crew.fill()
        await asyncio.to_thread(crew.hear, 0.2)
        restless = [each for each in await rows_of(runtime) if not _rests(each)]
        for each in restless:
            await _attended(runtime, line, each, outcome)
        if not restless and not await _count_rows(runtime):
            return


async def _count_rows(runtime: Runtime) -> int:
    assert runtime.store.work is not None
    return len((await runtime.store.work.list_work(WorkQuery(limit=1))).rows)


def _rests(row: EntityRow) -> bool:
    return ", ".join(row.configuration) in HELD[_kind(row)]


def _kind(row: EntityRow) -> str:
    return row.entity.partition("/")[0]


async def _attended(runtime: Runtime, line: Line, row: EntityRow, outcome: Outcome) -> None:
    """Act as the operator for an entity that waits for one: undo operations, and send the event."""
    state = ", ".join(row.configuration)
    answer = PEOPLE.get(state) or PEOPLE.get(f"{_kind(row)} {state}")
    if answer is None:
        return
    event, role = answer
    snapshot = await runtime.state(row.entity)
    if state.endswith("unsettled"):
        for operation in _half_done(snapshot.context):
            await line.undo(operation, plainly=True)
    outcome.counts["called a person"] += 1
    key = f"person-{snapshot.version}"
    await runtime.send(row.entity, event, key=key, principal={"id": "joan", "roles": [role]})


def _half_done(context: dict[str, Any]) -> list[str]:
    """Return the keys of steps that a saga could not compensate; its context has them."""
    sagas = [value for name, value in context.items() if name.startswith("saga_")]
    return [each["key"] for saga in sagas for each in saga["done"].values() if each is not None]
