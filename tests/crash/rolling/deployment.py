"""A rolling deployment: processes on two revisions serve one store while they are restarted and killed.

Four worker processes start on the older revision. Two are restarted with the newer one, and the two pairs serve 64
clients for most of the run. At any moment a process is killed or restarted. At the end the other two are restarted with
the newer revision. A client sends a request to any process, and sends it again under the same key when that process is
gone. Then everything is read and checked (`findings`).

    python -m tests.crash.rolling.deployment --kills 200      on SQLite and PostgreSQL, under both upgrade policies
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from interlock.ports.delivery import CHART_MISSING_CODES
from tests.crash.kills.forked_workers import Worker, started
from tests.crash.rolling.charts import Edition, Policy
from tests.crash.rolling.findings import check
from tests.crash.rolling.process import serve
from tests.crash.storms import Counts, Sizes, clients, main, on_both_stores
from tests.support.eventually import PATIENCE_SECONDS

SLOTS = 4
ROLLED = 2
"""Processes that get the newer revision first."""

ANSWERS_BETWEEN = (20, 120)
"""Answers that are heard between two kills."""

PAUSE_SECONDS_MAX = 0.02
"""A kill follows the last of these answers after up to so long, so that it is not always at the start of a commit."""

CREATED_SHARE = 0.03
"""How many requests create an entity."""

RESTART_SHARE = 0.3
"""How often a kill is followed by an orderly restart of another process."""

RETRY_SECONDS = 0.02
REFUSALS_MAX = 25
"""Answers that no process knows the revision, before a client gives up a request; without a fault there is none."""


SIZES = Sizes(entities=48, postgres=48, clients=64, kills=12)


def run(sizes: Sizes) -> Counts:
    """Deploy on SQLite and PostgreSQL, with entities that move and with pinned ones."""
    counts = Counts()
    for policy in ("safe", "pinned"):
        counts.add(on_both_stores("rolling", sizes, partial(_deployed, sizes, policy)))
    return counts


def _deployed(sizes: Sizes, policy: Policy, url: str, entities: int) -> Counts:
    return deploy(url, replace(sizes, entities=entities), policy=policy)


def deploy(url: str, sizes: Sizes, *, policy: Policy = "safe", code_first: bool = True, fault: str = "") -> Counts:
    """Deploy the newer revision on one store, then check everything.

    Without `code_first`, the older processes lack the function that the newer chart names. `fault` is one of
    `process.FAULTS`.
    """
    deployment = _Deployment(url, sizes, policy, code_first, fault)
    asyncio.run(deployment.run())
    asyncio.run(check(url, policy, deployment.accepted, deployment.refused, deployment.counts))
    return deployment.counts


class _Process:
    """A running worker process, as the clients see it."""

    def __init__(self, worker: Worker, edition: Edition) -> None:
        self.edition = edition
        self._worker = worker
        self._pending: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._number = 0
        self.is_ready = False
        self.is_gone = asyncio.Event()

    async def connect(self) -> None:
        """Wait until the process answers, or has ended."""
        connection = socket.socket(fileno=os.dup(self._worker.pipe.fileno()))
        self._reader, self._writer = await asyncio.open_connection(sock=connection, limit=1 << 20)
        line = await self._reader.readline()
        self._listening = asyncio.create_task(self._listen())
        self.is_ready = bool(line)

    async def ask(self, **request: object) -> dict[str, Any]:
        """Return the answer to a request. Raises ConnectionError when the process ends before it."""
        self._number += 1
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._pending[self._number] = answer
        self._writer.write(json.dumps({"id": self._number, **request}).encode() + b"\n")
        return await answer

    async def _listen(self) -> None:
        with suppress(ConnectionError):
            while line := await self._reader.readline():
                if not line.endswith(b"\n"):
                    break  # killed in the middle of an answer
                answer = json.loads(line)
                self._pending.pop(answer["id"]).set_result(answer)
        self.is_ready = False
        self.is_gone.set()
        for each in self._pending.values():
            each.set_exception(ConnectionResetError("the process has ended"))

    async def kill(self) -> None:
        """Kill the process."""
        self.is_ready = False
        self._worker.process.kill()
        await self._end()

    async def close(self) -> None:
        """Let the process answer its question and end."""
        self.is_ready = False
        self._writer.write_eof()
        await self._end()

    async def _end(self) -> None:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self.is_gone.wait()
        finally:
            self._worker.process.kill()
            self._worker.process.join()
            self._writer.close()
            self._worker.pipe.close()
            self._worker.process.close()


class _Deployment:
    """One run: the processes, the clients, and what the clients were answered."""

    def __init__(self, url: str, sizes: Sizes, policy: Policy, code_first: bool, fault: str) -> None:
        self._url, self._sizes, self._policy, self._code_first, self._fault = url, sizes, policy, code_first, fault
        self._chance = random.Random(sizes.seed)
        self._processes: list[_Process] = []
        self._entities: list[str] = []
        self._answers = 0
        self._target = 0
        self._reached = asyncio.Event()
        self.accepted: dict[str, tuple[str, int]] = {}
        self.refused: set[str] = set()
        self.counts = Counts(wrong=Counter({"lost": 0, "locked": 0, "wrong revision": 0, "other": 0}))

    async def run(self) -> None:
        """Run the deployment."""
        self._processes = [await self._start("older") for _ in range(SLOTS)]
        try:
            for number in range(self._sizes.entities):
                await self._request(self._chance, f"parcel/{number}", None, f"create-{number}")
            async with clients(self._sizes, self._ask_for_something):
                await self._storm()
            for process in self._processes:
                await process.close()
        except BaseException:
            for process in self._processes:
                await process.kill()
            raise

    async def _start(self, edition: Edition) -> _Process:
        has_code = self._code_first or edition == "newer"
        process = _Process(started(serve, self._url, edition, self._policy, has_code, self._fault), edition)
        await process.connect()
        if not process.is_ready:
            self.counts.note("other", f"a process with the {edition} chart did not start")
        return process

    # The deployment

    async def _storm(self) -> None:
        kills = self._sizes.kills
        await self._strike(max(1, kills // 10))
        for slot in range(SLOTS - ROLLED, SLOTS):
            await self._restart(slot, "newer")
        await self._strike(max(1, kills * 8 // 10))
        for slot in range(SLOTS - ROLLED):
            await self._restart(slot, "newer")
        await self._strike(max(1, kills - self.counts.kills))

    async def _strike(self, kills: int) -> None:
        """Kill processes at random moments; restart some orderly."""
        for _ in range(kills):
            await self._hear(self._chance.randint(*ANSWERS_BETWEEN))
            await asyncio.sleep(self._chance.uniform(0, PAUSE_SECONDS_MAX))
            slot = self._chance.randrange(SLOTS)
            edition = self._processes[slot].edition
            await self._processes[slot].kill()
            self.counts.kills += 1
            self._processes[slot] = await self._start(edition)
            if self._chance.random() < RESTART_SHARE:
                other = self._chance.randrange(SLOTS)
                await self._restart(other, self._processes[other].edition)

    async def _restart(self, slot: int, edition: Edition) -> None:
        self.counts.facts["restarts"] += 1
        await self._processes[slot].close()
        self._processes[slot] = await self._start(edition)

    async def _hear(self, answers: int) -> None:
        """Wait until the clients have heard this many answers."""
        self._target = self._answers + answers
        self._reached.clear()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self._reached.wait()

    # The clients

    async def _ask_for_something(self, chance: random.Random, key: str) -> None:
        if chance.random() < CREATED_SHARE:
            await self._request(chance, f"parcel/{key}", None, key)
            return
        event = chance.choices(("noted", "taken", "weighed"), (6, 3, 1))[0]
        await self._request(chance, chance.choice(self._entities), event, key)

    async def _request(self, chance: random.Random, entity: str, event: str | None, key: str) -> None:
        """Send one request, to any process, until it is answered."""
        refusals = 0
        async with asyncio.timeout(PATIENCE_SECONDS):
            while refusals < REFUSALS_MAX:
                ready = [each for each in self._processes if each.is_ready]
                if not ready:
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                process = chance.choice(ready)
                try:
                    answer = await process.ask(entity=entity, event=event, key=key)
                except ConnectionError:
                    self.counts.facts["requests sent again"] += 1
                    continue
                self._count_answer()
                if self._is_final(answer, process, entity, key):
                    if event is None and answer.get("outcome") in ("applied", "duplicate"):
                        self._entities.append(entity)
                    return
                refusals += answer.get("error") in CHART_MISSING_CODES
                await asyncio.sleep(RETRY_SECONDS)

    def _count_answer(self) -> None:
        self._answers += 1
        self.counts.facts["answers"] += 1
        if self._answers >= self._target:
            self._reached.set()

    def _is_final(self, answer: dict[str, Any], process: _Process, entity: str, key: str) -> bool:
        """Record an answer; False if the request must be sent again."""
        code = answer.get("error")
        if code is None:
            if answer["outcome"] in ("applied", "duplicate"):
                self.accepted[key] = (entity, answer["version"])
                self.counts.facts[answer["outcome"]] += 1
            else:
                self.refused.add(key)
                self.counts.facts[f"{answer['outcome']} {answer['reason']}"] += 1
            return True
        if code == "event.unknown":  # an older process, and an entity that has not moved
            self.refused.add(key)
            self.counts.facts["event.unknown"] += 1
            return True
        if code in CHART_MISSING_CODES:
            self.counts.note("locked", f"{entity}: a process with the {process.edition} chart answered {code}")
            return False
        if answer["class"] in ("ConflictError", "UnavailableError"):
            self.counts.facts[f"again after {code}"] += 1
            return False
        self.counts.note("other", f"{entity}: {code}: {answer['message']}")
        return True


if __name__ == "__main__":
    main("rolling.deployment", run, replace(SIZES, kills=200))
