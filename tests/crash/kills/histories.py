"""Real processes send to one entity at the same time, and some order of the calls must explain their answers.

Each process sends with new keys, with keys that others send too, with its own keys again, with and without `expected=`,
and reads. It records when each call started and ended, by the monotonic clock of the machine. The history is then
checked for linearizability (Wing and Gong): some order of the calls must give exactly these answers, and in it no call
comes before one that had ended when it started.

The checker visits each tuple of positions, one per process, once. That is enough, because the state of the entity at a
position follows from the answers so far: an applied send names its version, so the version is the number of them.

`renaming:` is a store that compares and then renames, atomically and unconditionally: the negative control.
"""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from interlock.assemble.runtimes import open as opening
from interlock.errors import ConflictError, UnavailableError
from interlock.model.journal.record import JournalRecord
from interlock.model.snapshot import Snapshot
from interlock.ports.clock import SystemClock
from interlock.ports.store import (
    Append,
    Appended,
    AppendResult,
    Conflict,
    Duplicate,
    EntityPage,
    EntityQuery,
    Loaded,
    Store,
)
from interlock.runtime.charts.registry import ChartRegistry
from interlock.runtime.runtime import Runtime
from interlock.testing.store_suite.samples import kernel
from tests.crash.kills.forked_workers import ANSWER_SECONDS_MAX, Worker, worker_processes
from tests.crash.kills.store_writer import parcels, settled

PROCESSES = 4
RENAMING = "renaming:"
SHARED_KEYS = 12


class Call(NamedTuple):
    """One call of a process. `expected` is None where none was given; `key` is None for a read.

    `answer` is applied, duplicate, conflict, nothing (too many conflicts: not stored) or read. `again`: an earlier try
    of the same call ended without an answer, so the key may be its own.
    """

    started: int
    ended: int
    key: str | None
    expected: int | None
    answer: str
    version: int = 0
    again: bool = False


@dataclass
class Checked:
    """The result of some histories."""

    histories: int = 0
    calls: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    bad: list[str] = field(default_factory=list)


# The checker


def linearizable(processes: Sequence[Sequence[Call]], *, version: int = 1) -> bool:
    """Whether some order of the calls explains all answers, for an entity that had this version at the start."""
    places = _places(processes)
    if places is None:
        return False
    start = ((0,) * len(processes), version)
    seen, waiting = {start[0]}, [start]
    while waiting:
        positions, now = waiting.pop()
        coming = [calls[at] if at < len(calls) else None for calls, at in zip(processes, positions, strict=True)]
        first_end = min((call.ended for call in coming if call is not None), default=None)
        if first_end is None:
            return True
        for number, call in enumerate(coming):
            if call is None or call.started > first_end:
                continue
            after = _after(call, now, places)
            further = (*positions[:number], positions[number] + 1, *positions[number + 1 :])
            if after is not None and further not in seen:
                seen.add(further)
                waiting.append((further, after))
    return False


def _places(processes: Sequence[Sequence[Call]]) -> dict[str, int] | None:
    """Return the version of each stored key; None if a key was stored twice, which no order explains."""
    calls = [call for each in processes for call in each if call.key is not None]
    places: dict[str, int] = {}
    for call in calls:
        if call.answer == "applied":
            assert call.key is not None
            if call.key in places:
                return None
            places[call.key] = call.version
    for call in calls:
        if call.answer == "duplicate" and call.again:
            assert call.key is not None
            places.setdefault(call.key, call.version)
    return places


def _after(call: Call, now: int, places: dict[str, int]) -> int | None:
    """Return the version after a call, or None if the entity at this version cannot give that answer."""
    if call.key is None:
        return now if call.version == now else None
    place = places.get(call.key)
    is_known = place is not None and place <= now
    is_kept = not is_known and call.expected in {None, now} and call.version == now + 1
    match call.answer:
        case "applied":
            return now + 1 if is_kept else None
        case "duplicate":
            if is_known:
                return now if call.version == place else None
            return now + 1 if call.again and is_kept else None
        case "conflict":
            return now if not is_known and call.expected is not None and call.expected != now else None
        case _:
            return now


# The processes


class RenamingStore(Store):
    """Read, compare, write another file, rename: atomic, and yet both of two writers succeed."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder

    async def append(self, append: Append) -> AppendResult:
        """Store one step, if no other process does so at the same time."""
        version, _, keys = self._read(append.entity)
        if append.entry.key in keys:
            return Duplicate(keys[append.entry.key])
        if version != append.expected:
            return Conflict(version)
        keys[append.entry.key] = append.entry.version
        data = msgspec.json.encode((append.entry.version, append.snapshot, keys))
        handle, temporary = tempfile.mkstemp(dir=self._folder)
        os.write(handle, data)
        os.fsync(handle)
        os.close(handle)
        os.rename(temporary, self._path(append.entity))  # noqa: PTH104  # pathlib's is taken for blocking code
        return Appended(append.entry.version, "")

    async def load(self, entity: str, *, key: str | None = None) -> Loaded | Duplicate | None:
        """Return the entity."""
        version, snapshot, keys = self._read(entity)
        if key in keys:
            return Duplicate(keys[key])
        return None if snapshot is None else Loaded(version, 0, snapshot)

    async def read(self, entity: str, *, after: int = 0, limit: int = 0) -> tuple[JournalRecord, ...]:
        """It keeps no journal."""
        return ()

    async def find(self, query: EntityQuery) -> EntityPage:
        """It keeps no lists."""
        return EntityPage(())

    async def kinds(self) -> tuple[str, ...]:
        """It keeps no lists."""
        return ()

    async def close(self) -> None:
        """Do nothing."""

    def _read(self, entity: str) -> tuple[int, Snapshot | None, dict[str, int]]:
        try:
            data = self._path(entity).read_bytes()
        except FileNotFoundError:
            return 0, None, {}
        return msgspec.json.decode(data, type=tuple[int, Snapshot, dict[str, int]])

    def _path(self, entity: str) -> Path:
        return self._folder / entity.replace("/", ".")


def run_participant(pipe: Connection, number: int, url: str) -> None:
    """Run a process: for each (entity, seed, calls) received, create the entity, wait for `go`, and make the calls."""
    asyncio.run(_taking_part(pipe, number, url))


async def _taking_part(pipe: Connection, number: int, url: str) -> None:
    if url.startswith(RENAMING):
        store = RenamingStore(Path(url.removeprefix(RENAMING)))
        await _serving(pipe, number, Runtime(store, ChartRegistry([kernel()]), SystemClock()))
        return
    async with opening(settled(url), charts=[parcels()]) as runtime:
        await _serving(pipe, number, runtime)


async def _serving(pipe: Connection, number: int, runtime: Runtime) -> None:
    while True:  # until it is killed
        entity, seed, calls = pipe.recv()
        await runtime.create(entity, key="born")
        pipe.send("ready")
        pipe.recv()
        pipe.send(await _called(runtime, entity, number, random.Random(f"{seed}/{number}"), calls))


async def _called(runtime: Runtime, entity: str, number: int, chance: random.Random, count: int) -> list[Call]:
    calls: list[Call] = []
    known = 1
    for index in range(count):
        draw = chance.random()
        if draw < 0.12:
            calls.append(await _read(runtime, entity))
        else:
            own = f"{number}.{index}"
            key = f"shared.{chance.randrange(SHARED_KEYS)}" if draw < 0.35 else own
            if draw > 0.9:
                key = f"{number}.{chance.randrange(index + 1)}"
            expected = known - chance.randrange(2) if 0.35 < draw < 0.6 else None
            calls.append(await _send(runtime, entity, key, expected))
        known = max(known, calls[-1].version)
    return calls


async def _read(runtime: Runtime, entity: str) -> Call:
    started_ns = time.monotonic_ns()
    snapshot = await runtime.state(entity)
    return Call(started_ns, time.monotonic_ns(), None, None, "read", snapshot.version)


async def _send(runtime: Runtime, entity: str, key: str, expected: int | None) -> Call:
    started_ns = time.monotonic_ns()
    again = False
    while True:
        try:
            receipt = await runtime.send(entity, "noted", key=key, expected=expected)
        except ConflictError as error:
            answer = "conflict" if error.code == "conflict.expected" else "nothing"
            return Call(started_ns, time.monotonic_ns(), key, expected, answer, again=again)
        except UnavailableError as error:
            if error.code == "store.went_back":  # nothing was written; only a faulty store does that here
                return Call(started_ns, time.monotonic_ns(), key, expected, "nothing", again=again)
            again = True
        else:
            return Call(started_ns, time.monotonic_ns(), key, expected, receipt.outcome, receipt.version, again)


# The run


def checked(url: str, *, histories: int, calls: int, seed: int = 0, stop_at_first: bool = False) -> Checked:
    """Record and check histories; in each, four processes make this number of calls to a new entity."""
    result = Checked()
    with worker_processes(PROCESSES, run_participant, url) as workers:
        for number in range(histories):
            history = _history(workers, f"parcel/h{seed}-{number}", f"{seed}/{number}", calls // PROCESSES)
            result.histories += 1
            result.calls += sum(map(len, history))
            result.answers += Counter(call.answer for each in history for call in each)
            if not linearizable(history):
                result.bad.append(f"other: history {number} of seed {seed} has no order that explains it")
                if stop_at_first:
                    break
    return result


def _history(workers: list[Worker], entity: str, seed: str, calls: int) -> list[list[Call]]:
    for each in workers:
        each.pipe.send((entity, seed, calls))
    for each in workers:
        _answer(each)
    for each in workers:
        each.pipe.send("go")
    return [_answer(each) for each in workers]


def _answer(worker: Worker) -> Any:
    if not worker.pipe.poll(ANSWER_SECONDS_MAX):
        raise TimeoutError(f"a process gave no answer in {ANSWER_SECONDS_MAX} seconds")
    return worker.pipe.recv()
