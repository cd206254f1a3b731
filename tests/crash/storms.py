"""Storms over a store in use: processes work on it and are killed again and again, and clients send meanwhile.

A storm fills a store and starts clients. A process works on the store; it is killed at random moments and started
again, and the last one runs to its end. Then everything is read and checked. What the process does, what a client asks
for and what must hold afterwards is a `Plan`: `tests.crash.migration`, `tests.crash.retention`. The rolling deployment
(`tests.crash.rolling`) has its own processes, which serve the clients, and uses the rest.

Every storm counts what it did and what is wrong, and has faults that it must find: a storm that finds nothing must be
able to find something.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, fields
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter
from typing import Literal, Protocol

from interlock.errors import ConflictError, UnavailableError
from interlock.model.journal.entry import Receipt
from interlock.runtime.runtime import Runtime
from tests.crash.kills.forked_workers import Worker, started
from tests.support.eventually import PATIENCE_SECONDS
from tests.support.postgres_server import NoServerError, new_schema

RUNNING_MAX = 64
"""Calls that run at the same time while a store is filled and checked."""

PROBLEMS_MAX = 5
"""Findings of one kind whose text is kept; all are counted."""

SILENT_SECONDS_MAX = 100 * PATIENCE_SECONDS
"""How long a process may work before it counts as hanging; for the long runs of a million entities."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much a store is put through. `postgres` is the number of entities there; 0: not run."""

    entities: int = 300
    postgres: int = 100
    clients: int = 16
    kills: int = 6
    seed: int = 1


@dataclass(slots=True)
class Counts:
    """The result: what was `done`, which must be something of each; what is `wrong`, by kind; `problems` has the first
    of each kind, and `facts` says what else happened.
    """

    done: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    kills: int = 0
    facts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong, and something happened."""
        return self.kills > 0 and all(self.done.values()) and not self.wrong.total()

    def note(self, kind: str, text: str) -> None:
        """Count something that is wrong."""
        self.wrong[kind] += 1
        if self.wrong[kind] <= PROBLEMS_MAX:
            self.problems.append(f"{kind}: {text}")

    def add(self, other: Counts) -> None:
        """Add the counts of another run."""
        self.kills += other.kills
        for ours, theirs in ((self.done, other.done), (self.wrong, other.wrong), (self.facts, other.facts)):
            ours.update(theirs)  # unlike +=, it keeps what is zero
        self.problems += other.problems
        self.skipped += other.skipped

    def show(self, name: str) -> None:
        """Print what happened and what is wrong; the last line has the counts."""
        lines = [f"SKIPPED {each}" for each in self.skipped]
        lines += self.problems
        lines.append(", ".join(f"{count:,} {fact}" for fact, count in sorted(self.facts.items())))
        sys.stdout.write("\n".join((*lines, self.line(name))) + "\n")

    def line(self, name: str) -> str:
        """The counts in one line."""
        counts = [*self.done.items(), ("kills", self.kills), *self.wrong.items()]
        return f"{name}: {', '.join(f'{count} {what}' for what, count in counts)}"


class Plan(Protocol):
    """What happens in one storm, and what must hold after it."""

    counts: Counts
    work_count: int
    """How many entities there are to process."""

    has_last_pass: bool
    """Whether a last process runs when the clients have stopped, for what they left to it."""

    @property
    def work(self) -> Callable[[Connection, str, str], None]:
        """What the process runs that is killed: with its pipe, the address of the store, and a fault. It sends `... N`
        when it has processed N entities, and `done N` before it ends.
        """

    def opened(self, url: str, stage: Stage) -> AbstractAsyncContextManager[Runtime]:
        """Open the store for one of the stages."""

    async def fill(self, runtime: Runtime) -> None:
        """Write what the process will work on."""

    async def request(self, runtime: Runtime, chance: random.Random, key: str) -> None:
        """Make one request of a client, until it is answered."""

    async def check(self, runtime: Runtime) -> None:
        """Read everything, and count what is wrong."""


Stage = Literal["fill", "clients", "check"]


def storm(plan: Plan, url: str, sizes: Sizes, *, fault: str = "") -> Counts:
    """Run a storm on one store, and check everything. Without a fault, nothing may be wrong."""

    async def run() -> None:
        async with _timed(plan, url, "fill") as runtime:
            await plan.fill(runtime)
        async with _timed(plan, url, "clients") as runtime:
            async with clients(sizes, lambda chance, key: plan.request(runtime, chance, key)):
                await _kill_again_and_again(plan, url, sizes, fault)
            if plan.has_last_pass:
                await _to_the_end(plan, url, fault)
        async with _timed(plan, url, "check") as runtime:
            await plan.check(runtime)

    asyncio.run(run())
    return plan.counts


@asynccontextmanager
async def _timed(plan: Plan, url: str, stage: Stage) -> AsyncIterator[Runtime]:
    started_s = perf_counter()
    async with plan.opened(url, stage) as runtime:
        yield runtime
    plan.counts.facts[f"seconds: {stage}"] += int(perf_counter() - started_s)


@asynccontextmanager
async def clients(sizes: Sizes, request: Callable[[random.Random, str], Awaitable[None]]) -> AsyncIterator[None]:
    """Make requests, each client one after the other, until the block ends. What a client raises ends the block.

    Every request has its own key.
    """
    is_over = False

    async def client(number: int) -> None:
        chance, count = random.Random(f"{sizes.seed}-{number}"), 0
        while not is_over:
            count += 1
            await request(chance, f"c{number}.{count}")
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        for number in range(sizes.clients):
            group.create_task(client(number))
        try:
            yield
        finally:
            is_over = True


async def sent_again(call: Callable[[], Awaitable[Receipt]], facts: Counter[str]) -> Receipt:
    """Repeat a call, as a client does, until the store and the other senders let it through."""
    while True:
        try:
            return await call()
        except (ConflictError, UnavailableError):
            facts["sent again"] += 1


async def side_by_side(calls: Iterable[Awaitable[object]]) -> None:
    """Make many calls, some at the same time."""
    left = iter(calls)

    async def some() -> None:
        for each in left:
            await each

    await asyncio.gather(*(some() for _ in range(RUNNING_MAX)))


# The process that is killed


async def _kill_again_and_again(plan: Plan, url: str, sizes: Sizes, fault: str) -> None:
    chance = random.Random(sizes.seed)
    share = max(1, plan.work_count // (sizes.kills + 1))
    for number in range(sizes.kills):
        worker = started(plan.work, url, fault)
        try:
            await _hear(plan, worker, chance.randint(1, share) if number else 1)
        finally:
            list(worker.killed())
        plan.counts.kills += 1
    await _to_the_end(plan, url, fault)


async def _to_the_end(plan: Plan, url: str, fault: str) -> None:
    worker = started(plan.work, url, fault)
    try:
        await _hear(plan, worker, None)
    finally:
        list(worker.ended())


async def _hear(plan: Plan, worker: Worker, count: int | None) -> None:
    """Wait until the process has processed so many, or all."""
    async with asyncio.timeout(SILENT_SECONDS_MAX):
        while True:
            try:
                line = await asyncio.to_thread(worker.pipe.recv_bytes)
            except EOFError:
                plan.counts.note("unfinished", "a process ended unexpectedly, without its result")
                return
            word, _, number = line.partition(b" ")
            if word == b"done" or (count is not None and int(number) >= count):
                return


# From the command line


def on_both_stores(name: str, sizes: Sizes, run: Callable[[str, int], Counts]) -> Counts:
    """Run on SQLite, and on PostgreSQL where there is a server; `run` takes the address and the number of entities."""
    with tempfile.TemporaryDirectory(prefix=f"interlock-{name}-") as folder:
        counts = run(f"sqlite:///{Path(folder) / name}.db", sizes.entities)
    if sizes.postgres:
        try:
            url = new_schema()
        except NoServerError as error:
            counts.skipped.append(f"{name}, postgres: {error}")
        else:
            counts.add(run(url, sizes.postgres))
    return counts


def main(name: str, run: Callable[[Sizes], Counts], sizes: Sizes) -> None:
    """Run with the sizes of the command line, print the counts, and end with 1 if something is wrong."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.crash.{name}")
    for option in fields(sizes):
        parser.add_argument(f"--{option.name}", type=int, default=getattr(sizes, option.name))
    counts = run(Sizes(**vars(parser.parse_args())))
    counts.show(name)
    raise SystemExit(0 if counts.is_clean else 1)
