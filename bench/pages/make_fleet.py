"""Fill a SQLite store with many orders, by its tables alone: to look at the console at any size.

    python bench/pages/make_fleet.py fleet.db --entities 10000000
    interlock serve sqlite:///fleet.db --chart bench/pages/order.yaml

Rule 1: what is written is what steps would have written: two entries each, linked, with lists and counters.
Rule 2: it is not a measurement; `--ask` times the questions that pages ask, on this machine, as it is.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

import interlock
from interlock.kernel.step import Kernel
from interlock.model.encoding.codec import encode
from interlock.model.event import Event
from interlock.model.journal.entry import CREATE, Entry
from interlock.model.journal.record import chain_start, encode_record
from interlock.ports.store import EntityQuery
from interlock.stores.sqlite.batch_rows import (
    INSERT_ENTITY,
    INSERT_JOURNAL,
    INSERT_KEY,
    INSERT_STATE,
    INSERT_TAG,
    UPSERT_COUNT,
)
from interlock.stores.sqlite.connection import open_writer
from interlock.stores.sqlite.store import SqliteStore

CHART = Path(__file__).with_name("order.yaml")
BATCH = 20_000
EVENTS = ("payment.confirmed", "order.cancelled", "order.held", None)
WEIGHTS = (0.55, 0.2, 0.05, 0.2)
YEAR_MS = 365 * 86_400_000


class Sample:
    """One life of an order, to be written under many names: its steps, its states, its tags."""

    def __init__(self, kernel: Kernel, event: str | None) -> None:
        self.steps = [
            (
                Event(CREATE, {"context": {"amount": 10}}, type="platform"),
                kernel.start({"amount": 10}, entity="order/x"),
            )
        ]
        if event is not None:
            given = Event(event, {})
            self.steps.append((given, kernel.step(self.steps[0][1].snapshot, given)))
        active = kernel.active(self.steps[-1][1].snapshot)
        self.states = [each.id for each in active]
        self.tags = sorted({tag for each in active for tag in each.tags})


def rows(sample: Sample, own: str, time_ms: int) -> dict[str, list[tuple[Any, ...]]]:
    """What the steps of a sample write under a name."""
    entity, name = f"order/{own}", ("", "order", own)
    found: dict[str, list[tuple[Any, ...]]] = {"journal": [], "keys": []}
    head, size = chain_start(entity), 0
    before: tuple[str, ...] = ()
    snapshot = sample.steps[-1][1].snapshot
    for number, (event, step) in enumerate(sample.steps, start=1):
        stamped = replace(event, time_ms=time_ms + number)
        snapshot = replace(step.snapshot, entity=entity)
        key = f"_{own}.{number}"
        entry = Entry(number, stamped, "applied", before, snapshot.configuration, snapshot.revision, key)
        record = encode_record(entry, durable=size, previous=head)
        head, size, before = record.head, size + len(record.line), snapshot.configuration
        found["journal"].append((*name, number, record.line, head, time_ms + number))
        found["keys"].append((*name, key, number, time_ms + number))
    last_ms = time_ms + len(sample.steps)
    active = dict.fromkeys(sample.states, last_ms)
    found["entity"] = [
        (
            len(sample.steps), snapshot.revision, encode(snapshot.configuration), snapshot.ended, encode(active),
            encode(sample.tags), encode(snapshot), head, size, last_ms, last_ms, time_ms + 1, *name,
        )
    ]  # fmt: skip
    found["states"] = [(*name, state, last_ms) for state in sample.states]
    found["tags"] = [("", "order", tag, own) for tag in sample.tags]
    return found


STATEMENTS = {
    "entity": INSERT_ENTITY,
    "journal": INSERT_JOURNAL,
    "keys": INSERT_KEY,
    "states": INSERT_STATE,
    "tags": INSERT_TAG,
}


def lives(count: int, samples: list[Sample]) -> Iterator[tuple[Sample, str, int]]:
    """Which sample each order is, its id, and its start: spread over a year, the same each time."""
    now_ms = time.time_ns() // 1_000_000
    for number in range(count):
        place = (number * 2_654_435_761) % 1_000_003 / 1_000_003  # spread evenly, without chance
        index, reached = 0, WEIGHTS[0]
        while place > reached:
            index += 1
            reached += WEIGHTS[index]
        yield samples[index], f"ord-{number:09d}", now_ms - YEAR_MS + YEAR_MS * number // count


def fill(path: Path, count: int) -> None:
    """Write so many orders."""
    kernel = interlock.load(CHART).kernel
    samples = [Sample(kernel, event) for event in EVENTS]
    connection = open_writer(path)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA cache_size = -400000")
    counts: dict[tuple[str, str], int] = {}
    batch: dict[str, list[tuple[Any, ...]]] = {name: [] for name in STATEMENTS}
    start_s = time.monotonic()
    for number, (sample, own, time_ms) in enumerate(lives(count, samples), start=1):
        for name, found in rows(sample, own, time_ms).items():
            batch[name] += found
        for state in sample.states:
            counts[kernel.chart.revision, state] = counts.get((kernel.chart.revision, state), 0) + 1
        if number % BATCH == 0 or number == count:
            _write(connection, batch)
            print(f"\r{number:,} of {count:,}, {number / (time.monotonic() - start_s):,.0f}/s", end="", file=sys.stderr)
    connection.execute("BEGIN")
    connection.executemany(UPSERT_COUNT, [("", "order", *place, found) for place, found in counts.items()])
    connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    print(file=sys.stderr)


def _write(connection: sqlite3.Connection, batch: dict[str, list[tuple[Any, ...]]]) -> None:
    connection.execute("BEGIN")
    for name, statement in STATEMENTS.items():
        connection.executemany(statement, batch[name])
        batch[name].clear()
    connection.execute("COMMIT")


async def ask(path: Path) -> None:
    """Time the questions of the pages, each a few times, the best of them."""
    store = SqliteStore(path)
    now_ms = time.time_ns() // 1_000_000
    page = await store.find(EntityQuery(kind="order", state="paid"))
    questions: dict[str, Callable[[], Awaitable[object]]] = {
        "populations": lambda: store.count_states("order"),
        "stuck, counted": lambda: store.count_overdue("order", "paid", before_ms=now_ms),
        "oldest in a state": lambda: store.find(EntityQuery(kind="order", state="paid")),
        "next page": lambda: store.find(EntityQuery(kind="order", state="paid", after=page.after)),
        "by prefix of the id": lambda: store.find(EntityQuery(kind="order", prefix="ord-00000012")),
        "by tag": lambda: store.find(EntityQuery(kind="order", tag="open")),
        "by revision, none": lambda: store.find(EntityQuery(kind="order", revision="none")),
        "one journal": lambda: store.read("order/ord-000000123"),
    }
    for name, question in questions.items():
        taken = []
        for _ in range(5):
            start_s = time.perf_counter()
            await question()
            taken.append(time.perf_counter() - start_s)
        print(f"{name:<24} {min(taken) * 1000:8.2f} ms")
    await store.close()


def main() -> None:
    """Fill a store, or ask it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", type=Path)
    parser.add_argument("--entities", type=int, default=10_000_000)
    parser.add_argument("--ask", action="store_true", help="only time the questions of the pages")
    parser.add_argument("--only-fill", action="store_true", help="and ask nothing")
    given = parser.parse_args()
    if not given.ask:
        fill(given.path, given.entities)
    if not given.only_fill:
        asyncio.run(ask(given.path))


if __name__ == "__main__":
    main()
