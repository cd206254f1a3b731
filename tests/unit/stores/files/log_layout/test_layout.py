"""Layout C: one write-ahead log for all entities, one owner, and journals written from it later."""

import asyncio
import errno
import logging
import os
import sys
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier
from threading import enumerate as threads

import pytest

from interlock.errors import CorruptionError, NotFoundError, RejectedError, UnavailableError, UsageError
from interlock.ports.store import Appended, Conflict, Duplicate, EntityQuery, Loaded
from interlock.stores.files.journal.durable_io import EntityDirectory
from interlock.stores.files.journal.padding import BLANKS
from interlock.stores.files.log_layout import layout, writer
from interlock.stores.files.names import directory_name, shard_name
from interlock.stores.files.store import FileStore, open_store
from interlock.testing.store_suite.suite import Case, StoreSubject, store_cases
from tests.crash.batches import OTHER, opened_c
from tests.crash.life import ENTITY, step
from tests.crash.simulated import Directory, File, Simulated, World
from tests.support.eventually import PATIENCE_SECONDS

ENTRIES = 5


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[FileStore]:
    """An empty store of layout C."""
    found = FileStore(tmp_path / "store", layout="C", snapshot_every=3)
    yield found
    await found.close()


def journal(root: Path, entity: str = ENTITY) -> Path:
    """Where an entity's journal stands."""
    name = directory_name(entity)
    return root / "store" / "resources" / shard_name(name, 2) / name / "events.log"


async def filled(store: FileStore, count: int = ENTRIES, *, entity: str = ENTITY, ended: bool = False) -> None:
    """Appends so many entries, perhaps to the end of the life."""
    for version in range(1, count + 1):
        last = ended and version == count
        assert isinstance(await store.append(step(version, f"k{version}", entity=entity, ended=last)), Appended)


@pytest.mark.parametrize(
    "case", store_cases(durable=True, shared=False), ids=lambda case: getattr(case, "__name__", "")
)
async def test_the_store_suite_holds(case: Case, tmp_path: Path) -> None:
    """Every case for a store with one writing process."""
    await case(StoreSubject(open=partial(open_store, f"file://{tmp_path}/x?layout=C")))


async def test_a_root_keeps_its_layout(tmp_path: Path) -> None:
    """It opens by its own when none is asked for; asking for the other is refused, and so is one that is none."""
    for first, other in (("A", "C"), ("C", "A")):
        store = FileStore(tmp_path / first, layout=first)
        await filled(store, 1)
        await store.close()
        again = open_store(f"file://{tmp_path}/{first}")
        assert 1 == len(await again.read(ENTITY))
        await again.close()
        with pytest.raises(UsageError, match=f"has layout {first}, not {other}"):
            open_store(f"file://{tmp_path}/{first}?layout={other}")
    with pytest.raises(UsageError, match="no layout `X`"):
        FileStore(tmp_path / "X", layout="X")

    assert not (tmp_path / "X").exists()


async def test_journals_are_written_at_a_checkpoint(store: FileStore, tmp_path: Path) -> None:
    """Until then the log has the records; then the journal has the very same bytes, and the log is empty again."""
    await filled(store)
    before, was_there = await store.read(ENTITY), journal(tmp_path).exists()
    await store.close()
    logs = sorted((tmp_path / "store" / "wal").glob("*.log"))
    written = journal(tmp_path).read_bytes().rstrip(BLANKS) + b"\n"

    assert (False, b"".join(each.line for each in before)) == (was_there, written)
    assert [0] == [path.stat().st_size for path in logs]


async def test_another_process_reads_and_is_told_who_writes(store: FileStore, tmp_path: Path) -> None:
    """It sees what the log has; its append names the owner, and succeeds once that is gone."""
    await filled(store)
    await filled(store, 2, entity=OTHER, ended=True)
    code = f"""
import asyncio
from interlock.errors import UnavailableError
from interlock.ports.store import EntityQuery
from interlock.stores.files.store import FileStore
from tests.crash.life import ENTITY, step

async def main():
    store = FileStore({str(tmp_path / "store")!r})
    records, loaded = await store.read(ENTITY), await store.load(ENTITY)
    rows = (await store.find(EntityQuery(kind="order"))).rows
    print(len(records), loaded.version, [row.version for row in rows], await store.kinds(), await store.load("order/0"))
    print(await store.load(ENTITY, key="k2"))
    try:
        await store.append(step(6, "k6"))
    except UnavailableError as error:
        print(error.code, error)
    input()
    print(await store.append(step(6, "k6")), await store.append(step(6, "k6")))
    await store.close()

asyncio.run(main())
"""
    pipe = asyncio.subprocess.PIPE
    other = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdin=pipe, stdout=pipe, cwd=Path(__file__).parents[5]
    )
    try:
        assert other.stdout is not None
        said = [(await other.stdout.readline()).decode() for _ in range(3)]
        await store.close()
        rest = (await asyncio.wait_for(other.communicate(b"\n"), PATIENCE_SECONDS))[0].decode()
    finally:
        if other.returncode is None:
            other.kill()
            await other.wait()

    assert "5 5 [2, 5] ('order',) None\n" == said[0]
    assert "Duplicate(version=2)\n" == said[1]
    assert ("store.owned", True) == (said[2].split()[0], f"process {os.getpid()}" in said[2])
    assert ("Appended(version=6", True) == (rest[:18], "Duplicate(version=6)" in rest)


async def test_many_callers_share_flushes_and_lose_nothing(store: FileStore) -> None:
    """A hundred callers of ten entities at once: each entry is kept, once."""

    async def caller(name: int) -> None:
        entity = f"order/{name % 10}"
        for number in range(3):
            answer: object = Conflict(0)
            while isinstance(answer, Conflict):
                answer = await store.append(step(answer.version + 1, f"{name}-{number}", entity=entity))

    await asyncio.gather(*(caller(name) for name in range(100)))
    keys = [record.key for number in range(10) for record in await store.read(f"order/{number}")]

    assert (300, 300) == (len(keys), len(set(keys)))


async def test_a_full_queue_tells_callers_to_come_back(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits without a bound."""
    monkeypatch.setattr(writer, "QUEUE_MAX", 2)
    answers = await asyncio.gather(
        *(store.append(step(1, "a", entity=f"order/{number}")) for number in range(5)), return_exceptions=True
    )
    codes = [each.code for each in answers if isinstance(each, UnavailableError)]

    assert (5, {"store.busy"}, True) == (len(answers), set(codes), 0 < len(codes) < 5)


async def test_no_step_is_left_lying_while_the_writer_sleeps(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it comes before the thread falls asleep, in that moment, or when it wakes up to write journals."""
    monkeypatch.setattr(writer, "IDLE_SECONDS", 0.0)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await filled(store, 60)

    assert 60 == len(await store.read(ENTITY))


async def test_an_entity_is_released_and_adopted(store: FileStore, tmp_path: Path) -> None:
    """Records that are still in the log are in their journal first."""
    await filled(store, ended=True)
    records = await store.read(ENTITY)
    archive = FileStore(tmp_path / "archive", layout="C")
    last = step(ENTRIES, f"k{ENTRIES}", ended=True)
    reached = [await archive.adopt(last, records) for _ in range(2)]
    gone = await store.release(ENTITY, version=ENTRIES, archive="file:///archive")
    with pytest.raises(NotFoundError):
        await store.read(ENTITY)
    copy, loaded = await archive.read(ENTITY), await store.load(ENTITY)
    answers = [await store.append(step(ENTRIES + 1, "k1")), await archive.append(step(ENTRIES + 1, "new"))]
    await archive.close()

    assert ([ENTRIES, ENTRIES], True, records) == (reached, gone, copy)
    assert isinstance(loaded, Loaded)
    assert [Duplicate(1), ENTRIES + 1] == [answers[0], answers[1].version]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # of processes with threads; that is what is tested
async def test_a_forked_child_does_not_own_the_log(store: FileStore) -> None:
    """The parent goes on writing; the child reads, and is told who writes."""
    await filled(store, 2)
    child = os.fork()
    if child == 0:
        try:
            store._journals.append(step(3, "child"))
        except UnavailableError as error:
            os._exit(0 if error.code == "store.owned" and len(store._journals.read(ENTITY)) == 2 else 2)
        os._exit(1)
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    answer = await store.append(step(3, "parent"))

    assert (0, 3) == (os.waitstatus_to_exitcode(status), answer.version)


def test_callers_in_several_threads_have_one_writer(tmp_path: Path) -> None:
    """Also when they come at once, as the first ones: a second writer would have nobody to end it."""
    count = 4
    for number in range(5):
        store = FileStore(tmp_path / str(number), layout="C")
        together = Barrier(count)
        before = set(threads())

        def first(name: int, store: FileStore = store, together: Barrier = together) -> type:
            together.wait(PATIENCE_SECONDS)
            return type(asyncio.run(store.append(step(1, "a", entity=f"order/{name}"))))

        with ThreadPoolExecutor(count) as pool:
            answers = list(pool.map(first, range(count)))
        asyncio.run(store.close())
        left = {each.name for each in set(threads()) - before}

        assert [Appended] * count == answers
        assert "interlock-files-writer" not in left


async def test_an_entry_that_cannot_be_kept_is_its_caller_s_alone(store: FileStore) -> None:
    """Others of the same batch are kept."""
    good, large, wrong = step(1, "a"), step(1, "b", entity=OTHER, filler="x" * 300_000), step(2, "c", entity="order/C")
    odd = type(wrong)(wrong.kind, wrong.entity, 0, wrong.entry, wrong.snapshot)
    answers = await asyncio.gather(*map(store.append, (good, large, odd)), return_exceptions=True)

    assert [Appended, RejectedError, UsageError] == [type(each) for each in answers]


# On the simulated file system


def failing(fs: Simulated, name: str, fault: int) -> None:
    """Makes the next call of this name fail."""

    def watch(called: str) -> None:
        if called == name and not fs.fail_at:
            fs.fail_at, fs.fault = fs.count, fault

    fs.watch = watch


def log_directory(world: World) -> tuple[int, dict[str, int]]:
    """The log's directory, and the names in it."""
    number = world.found("store", "wal")
    assert number is not None
    node = world.nodes[number]
    assert isinstance(node, Directory)
    return number, node.cache


def test_a_batch_whose_flush_fails_is_cut_off_and_the_log_given_up() -> None:
    """Nobody of the batch is acknowledged; a second flush is never tried; another process goes on."""
    world = World()
    fs = Simulated(world)
    journals = opened_c(fs)
    journals.append(step(1, "k1"))
    failing(fs, "fdatasync", errno.EIO)
    answers = journals.commit([step(2, "k2"), step(1, "b1", entity=OTHER)])
    again = journals.commit([step(2, "k2")])
    fs.die()
    other = opened_c(Simulated(world, process=2))

    assert ["fdatasync", "truncate"] == fs.calls[fs.fail_at - 1 :]
    assert ["store.flush"] * 2 == [getattr(each, "code", "") for each in answers]
    assert "store.poisoned" == getattr(again[0], "code", "")
    assert (["k1"], (), 2) == (
        [each.key for each in other.read(ENTITY)],
        other.read(OTHER),
        other.append(step(2, "k2")).version,
    )


@pytest.mark.parametrize("fault", [errno.ENOSPC, Simulated.SHORT])
def test_a_full_disk_leaves_the_log_good(fault: int) -> None:
    """The batch is cut off, and the same keys are taken once there is room."""
    world = World()
    fs = Simulated(world)
    journals = opened_c(fs)
    failing(fs, "write", fault)
    failed = journals.commit([step(1, "k1"), step(2, "k2")])
    kept = journals.commit([step(1, "k1"), step(2, "k2"), step(2, "k2"), step(9, "late")])

    assert ["store.full"] * 2 == [getattr(each, "code", "") for each in failed]
    assert ([Appended, Appended], [Duplicate(2), Conflict(2)]) == ([type(each) for each in kept[:2]], kept[2:])


def test_a_flipped_byte_in_the_durable_part_of_the_log_stops_the_store() -> None:
    """A later line testifies for it; the last line alone looks like a torn batch, and was the price of being last."""
    world = World()
    journals = opened_c(Simulated(world))
    for version in (1, 2):
        journals.commit([step(version, f"k{version}")])
    names = log_directory(world)[1]
    number = names[max(name for name in names if name.endswith(".log"))]
    node = world.nodes[number]
    assert isinstance(node, File)
    first = node.cache.index(b"\n") + 1
    silent = []
    for place in range(len(node.cache)):
        changed = world.copy()
        changed.locks = {}
        data = node.cache[:place] + bytes([node.cache[place] ^ 1]) + node.cache[place + 1 :]
        changed.nodes[number] = File(data, data, ())
        try:
            found = len(opened_c(Simulated(changed, process=2)).read(ENTITY))
        except CorruptionError:
            continue
        silent.append((place >= first, found))

    assert {(True, 1)} == set(silent)


def test_a_missing_segment_of_the_log_is_damage() -> None:
    """Its records were acknowledged, and are nowhere else."""
    world = World()
    journals = opened_c(Simulated(world))
    journals.commit([step(1, "k1")])
    world.locks = {}
    number, names = log_directory(world)
    left = {name: node for name, node in names.items() if not name.endswith(".log")}
    world.nodes[number] = Directory(left, left, ())

    with pytest.raises(CorruptionError, match="segments from 1 on are expected"):
        opened_c(Simulated(world, process=2))


def test_a_checkpoint_that_fails_is_logged_and_made_later(caplog: pytest.LogCaptureFixture) -> None:
    """What was kept is in the log; the callers notice nothing."""
    world = World()
    fs = Simulated(world)
    journals = opened_c(fs)
    journals.commit([step(1, "k1")])
    fs.fail_at, fs.fault = fs.count + 1, errno.ENOSPC
    with caplog.at_level(logging.WARNING):
        journals.settle(now=True)
    answer = journals.append(step(2, "k2"))
    journals.settle(now=True)
    records = journals.read(ENTITY)

    assert ["a checkpoint failed"] == [each.message for each in caplog.records]
    assert (2, ["k1", "k2"]) == (answer.version, [each.key for each in records])


def test_a_log_that_only_grows_takes_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """While no checkpoint succeeds it stays within a bound, and says so."""
    journals = opened_c(Simulated(World()))
    monkeypatch.setattr(layout, "WAL_GROWTH_MAX", 0)
    with pytest.raises(UnavailableError) as caught:
        journals.append(step(1, "k1"))

    assert "wal.full" == caught.value.code


def test_the_table_forgets_what_nobody_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it forgot is read from the journal again; what waits for a checkpoint stays."""
    monkeypatch.setattr(layout, "LIVES_MAX", 2)
    journals = opened_c(Simulated(World()))
    for version in (1, 2):
        for number in range(6):
            assert version == journals.append(step(version, f"k{version}", entity=f"order/{number}")).version
        journals.settle(now=True)
    journals.append(step(3, "k3", entity="order/0"))

    assert len(journals._lives) <= 4
    assert [3, 2, 2] == [len(journals.read(f"order/{number}")) for number in (0, 1, 5)]


def test_a_checkpoint_in_the_middle_of_a_list_hides_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entity that gets its directory after the directories were listed is known from the table."""
    journals = opened_c(Simulated(World()))
    journals.commit([step(1, "k1")])
    real = journals._root.addresses

    def addresses(prefix: str) -> Iterator[EntityDirectory]:
        yield from list(real(prefix))
        journals.settle(now=True)

    monkeypatch.setattr(journals._root, "addresses", addresses)

    assert [ENTITY] == [row.entity for row in journals.find(EntityQuery(kind="order")).rows]


async def test_lists_show_what_the_log_has(store: FileStore) -> None:
    """Before and after a checkpoint."""
    await filled(store, 3)
    await store.append(step(1, "a", entity="invoice/1", ended=True))
    before = [await store.find(EntityQuery(kind=kind)) for kind in ("order", "invoice")]
    kinds = await store.kinds()
    store._journals.settle(now=True)  # type: ignore[attr-defined]  # of layout C
    after = [await store.find(EntityQuery(kind=kind)) for kind in ("order", "invoice")]

    assert (("invoice", "order"), before) == (kinds, after)
    assert [(3, None), (1, "done")] == [(page.rows[0].version, page.rows[0].ended) for page in after]
