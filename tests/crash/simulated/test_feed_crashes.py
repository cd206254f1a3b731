"""The feed of the file store at every crash: the reader is killed, the power fails, or a call fails, at each call.

Checked after each: a reader that continues after the last cursor that was given out gets every acknowledged entry that
it has not seen, each once, those of one entity in their order.
"""

from __future__ import annotations

import errno
import random
from dataclasses import dataclass, field

import pytest

from interlock.errors import InterlockError, UnavailableError
from interlock.ports.store import Appended
from interlock.stores.files.blocking_store import BlockingFileStore
from interlock.stores.files.feed.file_feed import FileFeed
from interlock.stores.files.feed.order_log import OrderLog
from tests.crash.life import opened, step
from tests.crash.simulated.file_system import Killed, Simulated, World, crashes

ENTITIES = ("order/A", "order/B")
LATER = 10.0
"""Seconds after which every writer has looked for the feed, and hints are trusted."""


@dataclass
class Known:
    """What is acknowledged, and what the reader has stored: the last cursor, and the entries before it."""

    acknowledged: dict[str, int] = field(default_factory=dict)
    cursor: str | None = None
    seen: list[tuple[str, int]] = field(default_factory=list)


def write(store: BlockingFileStore, known: Known, entity: str) -> None:
    version = known.acknowledged.get(entity, 0) + 1
    answer = store.append(step(version, f"k{version}", entity=entity))
    assert isinstance(answer, Appended)
    known.acknowledged[entity] = version


def read(feed: FileFeed, known: Known) -> None:
    """Read to the end in small pages, as a consumer that stores its cursor after each."""
    for _ in range(100):
        page = feed.read(known.cursor, None, 2)
        known.cursor = page.after
        known.seen += [(each.entity, each.entry.version) for each in page.entries]
        if page.is_last:
            return
    raise AssertionError("the feed does not end")


def story(world: World, reader: Simulated, known: Known) -> None:
    """A writer without and with hints, and the reader between its entries."""
    writing = Simulated(world, process=2)
    writer = opened(writing)
    for entity in (*ENTITIES, ENTITIES[0]):
        write(writer, known, entity)
    feed = opened(reader).feed()
    read(feed, known)
    write(writer, known, ENTITIES[1])  # it has not looked for the feed yet
    read(feed, known)
    writing.now = reader.now = LATER
    write(writer, known, ENTITIES[0])
    read(feed, known)  # walks for the last time
    for entity in (*ENTITIES, ENTITIES[1]):
        write(writer, known, entity)
    read(feed, known)


def violations(world: World, known: Known) -> list[str]:
    """What is wrong for a reader in another process that continues."""
    fs = Simulated(world, process=3)
    fs.now = 2 * LATER
    later = Known(known.acknowledged, known.cursor, list(known.seen))
    try:
        read(opened(fs).feed(), later)
    except InterlockError as error:
        return [f"{error.code}: {error.message}"]
    wanted = sorted((entity, each) for entity, last in known.acknowledged.items() for each in range(1, last + 1))
    found = [] if sorted(later.seen) == wanted else [f"wanted {wanted}, seen {sorted(later.seen)}"]
    for entity in ENTITIES:
        versions = [version for name, version in later.seen if name == entity]
        found += [] if versions == sorted(versions) else [f"{entity}: {versions}"]
    return found


def run(*, kill_at: int = 0, fail_at: int = 0, fault: int = errno.EIO) -> tuple[World, Simulated, Known, bool]:
    """The story with a fault of the reader at one of its calls; whether it went to its end."""
    world, known = World(), Known()
    reader = Simulated(world)
    reader.kill_at, reader.fail_at, reader.fault = kill_at, fail_at, fault
    try:
        story(world, reader, known)
    except (Killed, UnavailableError):
        reader.die()
        return world, reader, known, False
    return world, reader, known, True


def states(world: World) -> list[World]:
    """The world after the death of all processes, and after each power cut."""
    world.locks = {}
    return [world.copy(), *crashes(world, random.Random(1))]


def killed_everywhere() -> tuple[int, list[str]]:
    count, found = 0, []
    for call in range(1, 10_000):
        world, reader, known, is_over = run(kill_at=call)
        for after in states(world):
            count += 1
            found += [f"call {call} ({reader.fired}): {each}" for each in violations(after, known)]
        if is_over:
            return count, found
    raise AssertionError("the story does not end")


def test_no_kill_or_power_cut_loses_an_entry_or_repeats_one() -> None:
    count, found = killed_everywhere()
    assert [] == found
    assert count > 300


@pytest.mark.parametrize("fault", [errno.EIO, errno.ENOSPC, Simulated.SHORT])
def test_no_failing_call_loses_an_entry_or_repeats_one(fault: int) -> None:
    count, found = 0, []
    for call in range(1, 10_000):
        world, reader, known, is_over = run(fail_at=call, fault=fault)
        for after in states(world):
            count += 1
            found += [f"call {call} ({reader.fired}): {each}" for each in violations(after, known)]
        if is_over and not reader.fired:
            break
    assert [] == found
    assert count > 100


def test_a_log_that_is_not_flushed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OrderLog, "_flush", lambda _: None)
    _, found = killed_everywhere()
    assert found


def test_an_entry_that_is_not_flushed_gets_no_position() -> None:
    """The writer dies between its write and its flush; the reader confirms the entry, or does not see it."""
    world, known = World(), Known()
    writing = Simulated(world, process=2)
    writer = opened(writing)
    write(writer, known, ENTITIES[0])
    before = len(writing.calls)
    write(writer, known, ENTITIES[0])
    flush = before + 1 + writing.calls[before:].index("fdatasync")

    world, known = World(), Known()
    writing = Simulated(world, process=2)
    writing.kill_at = flush
    writer = opened(writing)
    write(writer, known, ENTITIES[0])
    with pytest.raises(Killed):
        write(writer, known, ENTITIES[0])
    read(opened(Simulated(world)).feed(), known)
    assert [(ENTITIES[0], 1), (ENTITIES[0], 2)] == known.seen
    known.acknowledged[ENTITIES[0]] = 2
    for after in states(world):
        assert [] == violations(after, known)
