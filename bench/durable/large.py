"""Three workloads on large stores: recovery of a long journal, the cost of a step among many entities, shadow replay.

    python -m bench.durable.large recovery-file FOLDER 2000 5 100000
    python -m bench.durable.large scale FOLDER 2000 5 1000 10000 100000 1000000
    python -m bench.durable.large shadow FOLDER 0 1 1000000

It prints a list of samples by measure, one element per size.

Rule 1: the stores are filled by their own code, record by record, but without a flush for each. The measurement then
uses an ordinary store, opened as users open it.
Rule 2: each sample opens the store again, so that nothing is in memory.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import shutil
import sqlite3
import sys
import time
from pathlib import Path

import msgspec

import interlock
from bench.durable.engines.interlock_stores import CHART, InlineFiles
from bench.durable.order import CLIENTS, EVENTS
from interlock.model.encoding.codec import encode, snapshot_digest
from interlock.ports.clock import SystemClock
from interlock.ports.store import (
    Append,
    Appended,
    AppendResult,
)
from interlock.runtime.charts.registry import ChartRegistry
from interlock.runtime.charts.revisions import Revisions
from interlock.runtime.history.replay import replay
from interlock.runtime.history.shadow import ShadowReplay
from interlock.runtime.runtime import Runtime
from interlock.stores.files.filesystem import OperatingSystem
from interlock.stores.files.store import FileStore
from interlock.stores.memory import MemoryStore
from interlock.stores.sqlite.batch_rows import Counts, write_counts, write_steps
from interlock.stores.sqlite.connection import begin, open_writer
from interlock.stores.sqlite.store import SqliteStore

LONG = "order/long"
BATCH = 5_000
SEED = 1


def _runtime(store: FileStore | SqliteStore | MemoryStore | Filling) -> Runtime:
    return Runtime(store, ChartRegistry([CHART.kernel]), SystemClock())


# Recovery


class Unflushed(OperatingSystem):
    """The operating system, asked for no flush: a store that is being filled needs none."""

    def fdatasync(self, file: int) -> None:
        """Nothing."""

    def fsync(self, file: int) -> None:
        """Nothing."""

    def sync_directory(self, directory: int) -> None:
        """Nothing."""


async def _drive(runtime: Runtime, entries: int) -> None:
    await runtime.create(LONG, key="create")
    for number in range(entries - 1):
        (await runtime.send(LONG, EVENTS[number % 5], key=f"k{number}")).expect()


async def recovery_file(folder: Path, entries: int, rounds: int) -> dict[str, list[float]]:
    """The file store: from `state.json` and what follows it, and from the journal alone."""
    root = folder / "files"
    filling = _runtime(InlineFiles(root, fs=Unflushed()))
    await _drive(filling, entries)
    await filling.close()

    async def loaded() -> float:
        return await _timed(root.as_uri(), entries)

    snapshot_ms = [await loaded() for _ in range(rounds)]
    for each in root.rglob("state.json"):
        each.unlink()
    journal_ms = [await loaded() for _ in range(rounds)]
    shutil.rmtree(root)
    return {"journal_ms": journal_ms, "snapshot_ms": snapshot_ms}


async def _timed(url: str, entries: int) -> float:
    async with interlock.open(url, charts=[CHART]) as runtime:
        gc.collect()
        start_s = time.perf_counter()
        snapshot = await runtime.state(LONG)
        took = 1e3 * (time.perf_counter() - start_s)
    if snapshot.version != entries:
        raise AssertionError(f"version {snapshot.version} was loaded, not {entries}")
    return took


class Filling(SqliteStore):
    """The SQLite store with its batches made by hand: steps are written one by one, committed by the thousand."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._own: sqlite3.Connection = open_writer(path)
        self._own.execute("PRAGMA synchronous = OFF")
        self._own.execute("PRAGMA wal_autocheckpoint = 20000")
        self._open = 0

    async def append(self, append: Append) -> AppendResult:
        """Write one step."""
        if self._open == 0:
            begin(self._own)
        self._open += 1
        counts: Counts = {}
        (answer,), _ = write_steps(self._own, "", [append], counts)
        write_counts(self._own, "", counts)
        if self._open == BATCH:
            self._commit()
        assert isinstance(answer, Appended)
        return answer

    def write(self, batch: list[Append]) -> None:
        """Write many steps in one transaction."""
        counts: Counts = {}
        begin(self._own)
        write_steps(self._own, "", batch, counts)
        write_counts(self._own, "", counts)
        self._own.execute("COMMIT")

    def _commit(self) -> None:
        if self._open:
            self._own.execute("COMMIT")
            self._open = 0

    async def close(self) -> None:
        """Commit what is open, and close."""
        self._commit()
        self._own.close()
        await super().close()


async def recovery_sqlite(folder: Path, entries: int, rounds: int) -> dict[str, list[float]]:
    """The SQLite store: from its row, and by reading, verifying and replaying the journal from its first record."""
    path = folder / "long.db"
    filling = _runtime(Filling(path))
    await _drive(filling, entries)
    await filling.close()
    url = f"sqlite:///{path}"
    snapshot_ms = [await _timed(url, entries) for _ in range(rounds)]
    journal_ms = []
    charts = ChartRegistry([CHART.kernel])
    for _ in range(rounds):
        store = SqliteStore(path)
        gc.collect()
        start_s = time.perf_counter()
        revisions = Revisions(charts, store, SystemClock())
        snapshot, after = None, 0
        while records := await store.read(LONG, after=after):
            snapshot = await replay(revisions, LONG, snapshot, (each.entry for each in records))
            after = records[-1].version
        journal_ms.append(1e3 * (time.perf_counter() - start_s))
        await store.close()
        if snapshot is None or snapshot.version != entries:
            raise AssertionError("the journal was not read to its end")
    delete_store(path)
    return {"journal_ms": journal_ms, "snapshot_ms": snapshot_ms}


# Scale


async def scale(folder: Path, steps: int, rounds: int, sizes: list[int]) -> list[dict[str, list[float]]]:
    """CPU per step with group commit, of the newest entities and of any, in stores of several sizes asked in turn."""
    found: list[dict[str, list[float]]] = [{"recent_us": [], "anywhere_us": []} for _ in sizes]
    paths = [folder / f"{size}.db" for size in sizes]
    megabytes = [await _filled(path, size) for path, size in zip(paths, sizes, strict=True)]
    chance = random.Random(SEED)
    count = steps // len(EVENTS)
    for number in range(rounds + 1):
        for path, size, samples in zip(paths, sizes, found, strict=True):
            recent = range(max(0, size - count), size)
            anywhere = chance.sample(range(size), min(count, size))
            for name, chosen in (("recent_us", list(recent)), ("anywhere_us", anywhere)):
                took = await _stepped(path, chosen, f"{name}{number}")
                if number > 0:  # the first round warms the files
                    samples[name].append(took)
    for path in paths:
        delete_store(path)
    return [{"megabytes": [each], **samples} for each, samples in zip(megabytes, found, strict=True)]


def _entity(number: int) -> str:
    return f"order/{number:08d}"


async def _filled(path: Path, size: int) -> float:
    """A store of so many entities, and its size in megabytes."""
    kept: list[Append] = []
    memory = _runtime(_Noting(kept))
    await memory.create(_entity(0), key="create")
    (first,) = kept
    store = Filling(path)
    for start in range(0, size, BATCH):
        store.write([_renamed(first, number) for number in range(start, min(size, start + BATCH))])
    await store.close()
    return _megabytes(path)


def _megabytes(path: Path) -> float:
    return path.stat().st_size / 1e6


class _Noting(MemoryStore):
    """Notes what is appended."""

    def __init__(self, kept: list[Append]) -> None:
        super().__init__()
        self._kept = kept

    async def append(self, append: Append) -> AppendResult:
        """Note, and keep."""
        self._kept.append(append)
        return await super().append(append)


def _renamed(append: Append, number: int) -> Append:
    """The same step of another entity; its entry has the hash of that entity's snapshot."""
    entity = _entity(number)
    snapshot = msgspec.structs.replace(append.snapshot, entity=entity)
    entry = msgspec.structs.replace(append.entry, digest=snapshot_digest(encode(snapshot)))
    return msgspec.structs.replace(append, entity=entity, snapshot=snapshot, entry=entry)


async def _stepped(path: Path, chosen: list[int], name: str) -> float:
    """Microseconds of CPU per step."""
    async with interlock.open(f"sqlite:///{path}", charts=[CHART]) as runtime:
        numbers = iter(chosen)

        async def client() -> None:
            for number in numbers:
                for event in EVENTS:
                    (await runtime.send(_entity(number), event, key=f"{name}:{number}:{event}")).expect()

        gc.collect()
        start_s = time.process_time()
        await asyncio.gather(*[client() for _ in range(CLIENTS)])
        return 1e6 * (time.process_time() - start_s) / (len(chosen) * len(EVENTS))


# Shadow replay

ORDER = Path(__file__).resolve().parents[1] / "charts" / "order.interlock.yaml"
ORDER_EVENTS = (("SUBMIT", None), ("PAY", {"amount": 100}), ("PICK", None), ("PACK", None), ("SHIP", None))
REFACTORED = (
    ("kind: order", "kind: order\nrenamed: {review: in_review}\nunhandled: reject"),
    ("target: review,", "target: in_review,"),
    ("  review:", "  in_review:"),
    ("context.count + 1", "1 + context.count"),
)
"""Another spelling of the same behaviour."""

DIVERGING = (('context.items > 0"\n        actions', 'context.items > 3"\n        actions'),)
"""A guard that refuses the first event of every order."""


async def shadow(folder: Path, entries: int) -> dict[str, list[float]]:
    """Entries per second of a shadow replay of short journals, with a refactored chart and with a diverging one."""
    text = ORDER.read_text(encoding="utf-8")
    old = interlock.loads(text)
    path, count = folder / "shadow.db", entries // (1 + len(ORDER_EVENTS))
    await filled_journals(path, old, count)
    found: dict[str, list[float]] = {}
    for name, edits in (("same", REFACTORED), ("different", DIVERGING)):
        changed = text
        for before, after in edits:
            changed = changed.replace(before, after)
        store, new = SqliteStore(path), interlock.loads(changed)
        clock = SystemClock()
        revisions = Revisions(ChartRegistry([old.kernel]), store, clock)
        replayed = ShadowReplay(store, new.kernel, revisions, now_ms=clock.now_ms())
        gc.collect()
        start_s, start_cpu_s = time.perf_counter(), time.process_time()
        async for _ in replayed.run():
            pass
        took_s, cpu_s = time.perf_counter() - start_s, time.process_time() - start_cpu_s
        await store.close()
        report = replayed.tally.report()
        if (report.evidence.entities, len(report.groups)) != (count, 0 if name == "same" else 1) or report.gaps:
            raise AssertionError(f"{report.evidence.entities} entities, {len(report.groups)} groups, {report.gaps}")
        found |= {f"{name}_rate": [report.evidence.entries / took_s]}
        found |= {f"{name}_cpu_us": [1e6 * cpu_s / report.evidence.entries]}
    delete_store(path)
    return found


async def filled_journals(path: Path, chart: interlock.BoundChart, count: int) -> None:
    """A store of so many orders that were shipped: one recorded journal, under many names."""
    kept: list[Append] = []
    runtime = Runtime(_Noting(kept), ChartRegistry([chart.kernel]), SystemClock())
    await runtime.create(_entity(0), key="create")
    for event, data in ORDER_EVENTS:
        (await runtime.send(_entity(0), event, data, key=event)).expect()
    store = Filling(path)
    for each in kept:
        for start in range(0, count, BATCH):
            store.write([_renamed(each, number) for number in range(start, min(count, start + BATCH))])
    await store.close()


def delete_store(path: Path) -> None:
    """Delete a database with its journal files."""
    for each in path.parent.glob(f"{path.name}*"):
        each.unlink()


def main() -> None:
    """Do one workload, and print what it found."""
    what, folder, *numbers = sys.argv[1:]
    steps, rounds, *sizes = (int(each) for each in numbers)
    if what == "scale":
        found = asyncio.run(scale(Path(folder), steps, rounds, sizes))
    elif what == "shadow":
        found = [asyncio.run(shadow(Path(folder), size)) for size in sizes]
    else:
        recovery = {"recovery-file": recovery_file, "recovery-sqlite": recovery_sqlite}[what]
        found = [asyncio.run(recovery(Path(folder), size, rounds)) for size in sizes]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
