"""The file store on a real directory: what it returns, stores and refuses."""

import asyncio
import errno
import json
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from interlock.errors import CorruptionError, RejectedError, UnavailableError, UsageError
from interlock.ports.store import Appended, Conflict, Duplicate, EntityQuery, Loaded, Store
from interlock.stores.files.filesystem import OperatingSystem
from interlock.stores.files.names import directory_name, shard_name
from interlock.stores.files.store import FileStore, open_store
from tests.crash.life import step

ENTITY = "order/A-1"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[FileStore]:
    """An empty store."""
    found = FileStore(tmp_path / "store", snapshot_every=3)
    yield found
    await found.close()


def directory(root: Path, entity: str = ENTITY) -> Path:
    """The directory of an entity."""
    name = directory_name(entity)
    return root / "store" / "resources" / shard_name(name, 2) / name


async def filled(store: FileStore, count: int, *, entity: str = ENTITY) -> None:
    """Append so many entries."""
    for version in range(1, count + 1):
        assert isinstance(await store.append(step(version, f"k{version}", entity=entity)), Appended)


def test_a_file_store_records_refusals(store: FileStore) -> None:
    """It has the methods of both ports."""
    found: Store = store

    assert found.audit is not None


async def test_an_entry_is_appended_once(store: FileStore) -> None:
    """A new key is appended, the same key is a duplicate, an old version is a conflict."""
    first = await store.append(step(1, "a"))
    again = await store.append(step(1, "a"))
    late = await store.append(step(1, "b"))
    ahead = await store.append(step(5, "c"))

    assert isinstance(first, Appended)
    assert (Duplicate(1), Conflict(1), Conflict(1)) == (again, late, ahead)


async def test_an_append_to_an_unknown_entity_creates_nothing(store: FileStore, tmp_path: Path) -> None:
    """Only the first entry creates a directory."""
    answer = await store.append(step(2, "a"))

    assert (Conflict(0), False) == (answer, directory(tmp_path).exists())


async def test_reading_an_unknown_entity_creates_nothing(store: FileStore) -> None:
    """Nothing is loaded or read."""
    assert (None, ()) == (await store.load("order/none"), await store.read("order/none"))


async def test_everything_survives_a_restart(tmp_path: Path) -> None:
    """Entries, keys and the last snapshot."""
    store = FileStore(tmp_path / "store", snapshot_every=3)
    await filled(store, 5)
    await store.close()
    again = FileStore(tmp_path / "store")
    loaded = await again.load(ENTITY)
    known = await again.load(ENTITY, key="k2")
    duplicate = await again.append(step(6, "k4"))
    records = await again.read(ENTITY)
    await again.close()

    assert isinstance(loaded, Loaded)
    assert loaded.snapshot is not None
    assert (5, 5, 5, ()) == (loaded.version, loaded.time_ms, loaded.snapshot.version, loaded.records)
    assert (Duplicate(2), Duplicate(4)) == (known, duplicate)
    assert [f"k{version}" for version in range(1, 6)] == [record.key for record in records]


async def test_a_snapshot_and_the_records_after_it_are_loaded(store: FileStore, tmp_path: Path) -> None:
    """Between two snapshots the later entries are given as records, and `state.json` is one JSON object."""
    await filled(store, 5)
    other = FileStore(tmp_path / "store")
    loaded = await other.load(ENTITY)
    await other.close()
    state = json.loads((directory(tmp_path) / "state.json").read_text())

    assert isinstance(loaded, Loaded)
    assert loaded.snapshot is not None
    assert (5, 3, [4, 5]) == (loaded.version, loaded.snapshot.version, [each.version for each in loaded.records])
    assert (3, "order", ["s0"]) == (state["version"], state["kind"], state["configuration"])


async def test_a_journal_is_read_page_by_page(store: FileStore) -> None:
    """Pages follow each other without a gap, from any version on, and end."""
    await filled(store, 8)
    pages = [await store.read(ENTITY, after=after, limit=3) for after in (0, 3, 6, 8, 2)]

    assert [[1, 2, 3], [4, 5, 6], [7, 8], [], [3, 4, 5]] == [[each.version for each in page] for page in pages]


async def test_the_end_of_an_entity_is_stored_as_a_snapshot(store: FileStore, tmp_path: Path) -> None:
    """Every process lists it as ended."""
    await store.append(step(1, "a", ended=True))
    other = FileStore(tmp_path / "store")
    rows = (await other.find(EntityQuery(kind="order"))).rows
    await other.close()

    assert ["done"] == [row.ended for row in rows]


async def test_entities_are_listed_by_state_prefix_and_age(store: FileStore) -> None:
    """The longest in their state come first, page by page; damaged or foreign directories do not stop a list."""
    for number in range(1, 6):
        await filled(store, number, entity=f"order/A-{number}")
    await filled(store, 1, entity="invoice/1")
    first = await store.find(EntityQuery(kind="order", limit=3))
    rest = await store.find(EntityQuery(kind="order", limit=3, after=first.after))
    in_state = await store.find(EntityQuery(kind="order", state="s1"))
    prefixed = await store.find(EntityQuery(kind="order", prefix="A-3"))
    young = await store.find(EntityQuery(kind="order", entered_before_ms=3))
    none = [
        await store.find(query)
        for query in (
            EntityQuery(kind="order", tag="t"),
            EntityQuery(kind="order", revision="r2"),
            EntityQuery(kind="none"),
        )
    ]

    assert ["order/A-1", "order/A-2", "order/A-3"] == [row.entity for row in first.rows]
    assert (["order/A-4", "order/A-5"], None) == ([row.entity for row in rest.rows], rest.after)
    assert ["order/A-1", "order/A-4"] == [row.entity for row in in_state.rows]
    assert ["order/A-3"] == [row.entity for row in prefixed.rows]
    assert ["order/A-1", "order/A-2"] == [row.entity for row in young.rows]
    assert [()] * 3 == [page.rows for page in none]


async def test_a_cancelled_entity_is_in_no_state(tmp_path: Path) -> None:
    """Also for another process, and when a late result arrives afterwards."""
    store = FileStore(tmp_path / "store")
    await filled(store, 2)
    await filled(store, 2, entity="order/B")
    for version in (3, 4):
        late = step(version, f"k{version}")
        await store.append(replace(late, snapshot=replace(late.snapshot, ended="cancelled")))
    rows = [await store.find(query) for query in CANCELLED]
    await store.close()
    other = FileStore(tmp_path / "store")
    again = [await other.find(query) for query in CANCELLED]
    await other.close()

    assert [[], [ENTITY], ["order/B", ENTITY]] == [[row.entity for row in page.rows] for page in rows]
    assert (rows, 3) == (again, rows[1].rows[0].entered_ms)


CANCELLED = [
    EntityQuery(kind="order", state="s1"),
    EntityQuery(kind="order", state=":cancelled"),
    EntityQuery(kind="order"),
]


async def test_another_process_lists_the_same(store: FileStore, tmp_path: Path) -> None:
    """A process that appended nothing lists from snapshots and journals."""
    for number in range(1, 6):
        await filled(store, number, entity=f"order/A-{number}")
    other = FileStore(tmp_path / "store")
    pages = [await each.find(EntityQuery(kind="order")) for each in (store, other, other)]
    await filled(store, 1, entity="order/A-6")
    grown = await other.find(EntityQuery(kind="order"))
    await other.close()

    assert pages[0] == pages[1] == pages[2]
    assert 6 == len(grown.rows)


async def test_an_id_too_long_for_a_name_is_listed(store: FileStore, tmp_path: Path) -> None:
    """Its first snapshot is stored immediately, because the name does not contain the id."""
    entity = f"order/{'Ä' * 90}"
    await filled(store, 2, entity=entity)
    other = FileStore(tmp_path / "store")
    rows = (await other.find(EntityQuery(kind="order"))).rows
    await other.close()

    assert [(entity, 2)] == [(row.entity, row.version) for row in rows]


async def test_a_damaged_journal_stops_its_own_entity_only(store: FileStore, tmp_path: Path) -> None:
    """The error names the place; lists leave the entity out; others are unaffected."""
    await filled(store, 4)
    await filled(store, 1, entity="order/B-2")
    path = directory(tmp_path) / "events.log"
    path.write_bytes(path.read_bytes().replace(b'"k2"', b'"kX"'))
    other = FileStore(tmp_path / "store")
    with pytest.raises(CorruptionError, match="after version 1: ") as caught:
        await other.read(ENTITY)
    (directory(tmp_path) / "state.json").unlink()
    page = await other.find(EntityQuery(kind="order"))
    await other.close()

    assert ("journal.corrupt", ["order/B-2"]) == (caught.value.code, [row.entity for row in page.rows])
    assert (ENTITY,) == page.unreadable
    assert re.search(r" \(resources/[0-9a-f]{2}/order\.%41-1/events\.log, offset \d+\)$", caught.value.message)


class Refusing(OperatingSystem):
    """A system that cannot open the journal of one entity."""

    def __init__(self, inode: int, code: int) -> None:
        super().__init__()
        self._inode, self._code = inode, code

    def open_file(self, at: int, name: str) -> int:
        """Open it, unless it is that journal."""
        file = super().open_file(at, name)
        if os.fstat(file).st_ino == self._inode:
            os.close(file)
            raise OSError(self._code, os.strerror(self._code))
        return file


async def test_an_unreadable_file_is_left_out_of_lists_and_a_failing_system_is_an_error(
    tmp_path: Path,
) -> None:
    """A bad sector concerns one entity; without free descriptors every list would be wrong."""
    store = FileStore(tmp_path / "store")
    await filled(store, 2)
    await filled(store, 1, entity="order/B-2")
    await store.close()
    inode = (directory(tmp_path) / "events.log").stat().st_ino
    bad = FileStore(tmp_path / "store", fs=Refusing(inode, errno.EIO))
    page, kinds, names = await bad.find(EntityQuery(kind="order")), await bad.kinds(), await bad.entity_names()
    await bad.close()
    full = FileStore(tmp_path / "store", fs=Refusing(inode, errno.EMFILE))
    with pytest.raises(UnavailableError, match="Too many open files"):
        await full.find(EntityQuery(kind="order"))
    await full.close()

    assert (["order/B-2"], (ENTITY,)) == ([row.entity for row in page.rows], page.unreadable)
    assert (("order",), (ENTITY, "order/B-2")) == (kinds, names)


async def test_records_before_the_damage_are_read(store: FileStore, tmp_path: Path) -> None:
    """Their chain proves them, also when the journal no longer contains its snapshot."""
    await filled(store, 5)
    path = directory(tmp_path) / "events.log"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]))
    other = FileStore(tmp_path / "store")
    records = await other.read(ENTITY, limit=2)
    with pytest.raises(CorruptionError, match="after version 2: "):
        await other.read(ENTITY)
    with pytest.raises(CorruptionError, match="after version 2: "):
        await other.load(ENTITY)
    await other.close()

    assert lines[:2] == [each.line for each in records]


async def test_a_torn_tail_is_ignored_and_then_cut(store: FileStore, tmp_path: Path) -> None:
    """The unfinished line of a dead writer was never acknowledged."""
    await filled(store, 2)
    path = directory(tmp_path) / "events.log"
    with path.open("ab") as file:
        file.write(b'{"v":3,"k":"dead"')
    before = await store.read(ENTITY)
    answer = await store.append(step(3, "k3"))
    after = await store.read(ENTITY)

    assert (2, True, ["k1", "k2", "k3"]) == (len(before), isinstance(answer, Appended), [each.key for each in after])


async def test_temporary_files_of_a_dead_process_are_removed(store: FileStore, tmp_path: Path) -> None:
    """Under the lock no other writer is running."""
    await filled(store, 1)
    await store.close()
    (directory(tmp_path) / "state.json.tmp-dead").write_bytes(b"half")
    again = FileStore(tmp_path / "store")
    await again.append(step(2, "k2"))
    await again.close()

    assert ["events.log", "state.json"] == sorted(path.name for path in directory(tmp_path).iterdir())


async def test_files_are_for_the_owner_only(store: FileStore, tmp_path: Path) -> None:
    """Journals contain private data."""
    await filled(store, 3)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (directory(tmp_path), *directory(tmp_path).iterdir())}

    assert {directory(tmp_path).name: 0o700, "events.log": 0o600, "state.json": 0o600} == modes


async def test_a_link_in_the_place_of_an_entity_is_not_followed(store: FileStore, tmp_path: Path) -> None:
    """Nothing outside the store is read or written."""
    outside = tmp_path / "outside"
    outside.mkdir()
    directory(tmp_path).symlink_to(outside)
    with pytest.raises(UnavailableError):
        await store.append(step(1, "a"))
    with pytest.raises(UnavailableError):
        await store.load(ENTITY)

    assert [] == list(outside.iterdir())


async def test_many_callers_of_one_entity_lose_nothing(store: FileStore) -> None:
    """Sixteen callers at the same time: each entry is appended once."""

    async def caller(name: int) -> None:
        for number in range(5):
            answer: object = Conflict(0)
            while isinstance(answer, Conflict):
                answer = await store.append(step(answer.version + 1, f"{name}-{number}"))

    await asyncio.gather(*(caller(name) for name in range(16)))
    keys = [record.key for record in await store.read(ENTITY)]

    assert (80, 80) == (len(keys), len(set(keys)))


async def test_few_open_journals_serve_many_entities(tmp_path: Path) -> None:
    """The least recently used are closed, and read again later."""
    store = FileStore(tmp_path / "store", open_journals_max=2)
    for version in (1, 2):
        for number in range(6):
            await store.append(step(version, f"k{version}", entity=f"order/{number}"))
    opened = len(store._store.journals._journals)
    versions = [len(await store.read(f"order/{number}")) for number in range(6)]
    await store.close()

    assert (2, [2] * 6) == (opened, versions)


async def test_a_closed_store_refuses(tmp_path: Path) -> None:
    """Appends in progress finish first; later calls raise; closing twice is fine."""
    store = FileStore(tmp_path / "store")
    under_way = asyncio.create_task(store.append(step(1, "a")))
    await asyncio.sleep(0)
    await store.close()
    await store.close()
    with pytest.raises(UnavailableError) as caught:
        await store.load(ENTITY)

    assert (True, "store.closed") == (isinstance(await under_way, Appended), caught.value.code)


async def test_the_error_for_a_held_lock_names_its_holder(tmp_path: Path) -> None:
    """Once the time limit is over."""
    store = FileStore(tmp_path / "store", lock_ms_max=20)
    await store.append(step(1, "a"))
    fs = OperatingSystem()
    at = os.open(directory(tmp_path).parent, os.O_RDONLY)
    held = fs.open_directory(at, directory(tmp_path).name)
    fs.lock(held, 0)
    with pytest.raises(UnavailableError, match=f"process {os.getpid()}") as caught:
        await store.append(step(2, "b"))
    fs.close(held)
    os.close(at)
    answer = await store.append(step(2, "b"))
    await store.close()

    assert ("store.locked", True) == (caught.value.code, isinstance(answer, Appended))


async def test_a_wrong_entry_number_is_the_caller_s_mistake(store: FileStore) -> None:
    """An entry must be the one after the version it was computed on; nothing is written."""
    wrong = step(2, "a")
    with pytest.raises(UsageError):
        await store.append(type(wrong)(wrong.kind, wrong.entity, 0, wrong.entry, wrong.snapshot))

    assert await store.load(ENTITY) is None


async def test_an_oversize_entry_is_rejected(store: FileStore) -> None:
    """One record is one write; nothing of a larger one is written."""
    with pytest.raises(RejectedError) as caught:
        await store.append(step(1, "a", filler="x" * 300_000))

    assert ("entry.size", None) == (caught.value.code, await store.load(ENTITY))


@pytest.mark.parametrize("entity", ["", "order", "order/" + "x" * 300, "order/\ud800"])
async def test_invalid_ids_are_refused_before_anything_is_created(store: FileStore, entity: str) -> None:
    """The store checks ids itself."""
    with pytest.raises(UsageError):
        await store.load(entity)


def test_a_network_file_system_is_refused(tmp_path: Path) -> None:
    """Locks and flushes may not work there."""

    class Mounted(OperatingSystem):
        def network_type(self, directory: int) -> str | None:
            return "nfs4"

    with pytest.raises(UsageError, match="nfs4"):
        FileStore(tmp_path / "store", fs=Mounted())


def test_a_file_in_the_place_of_the_root_is_an_error(tmp_path: Path) -> None:
    """The file stays unchanged."""
    (tmp_path / "store").write_text("mine")
    with pytest.raises(UnavailableError):
        FileStore(tmp_path / "store")

    assert "mine" == (tmp_path / "store").read_text()


async def test_a_url_gives_a_directory(tmp_path: Path) -> None:
    """The path may contain escaped characters, and a link to the root is followed."""
    (tmp_path / "a b").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a b")
    for path in ("a%20b", "link"):
        store = open_store(f"file://{tmp_path}/{path}")
        await store.append(step(1, "a"))
        await store.close()

    assert (tmp_path / "a b" / "format.json").is_file()


@pytest.mark.parametrize("url", ["file://host/dir", "file:", "sqlite:///x", "file:///x?y=1"])
def test_other_urls_are_refused(url: str) -> None:
    """A host, a query or another scheme is a mistake."""
    with pytest.raises(UsageError) as caught:
        open_store(url)

    assert "store.url" == caught.value.code


async def test_a_store_of_a_tenant_is_opened_without_naming_the_tenant(tmp_path: Path) -> None:
    """Its format has the tenant: its hashes match, and lists show its entities."""
    url = f"file://{tmp_path}/store"
    store = open_store(f"{url}?tenant=Acme%20%26%20Co")
    await filled(store, 3)
    seen = []
    for is_over in (False, True):  # next to its writer, and after it
        if is_over:
            await store.close()
        again = open_store(url)
        rows = (await again.find(EntityQuery(kind="order"))).rows
        seen.append(([each.head for each in await again.read(ENTITY)], [each.entity for each in rows]))
        await again.close()
    plain = FileStore(tmp_path / "plain")
    await filled(plain, 3)
    others = [each.head for each in await plain.read(ENTITY)]
    await plain.close()

    assert [(3, [ENTITY])] * 2 == [(len(heads), names) for heads, names in seen]
    assert seen[0] == seen[1]
    assert not {*seen[0][0]} & {*others}


@pytest.mark.parametrize("first", ["", "umbrella"])
async def test_a_store_is_refused_to_another_tenant(tmp_path: Path, first: str) -> None:
    """Also a store without a tenant: two tenants never share one directory."""
    await FileStore(tmp_path / "store", tenant=first).close()
    with pytest.raises(UsageError) as caught:
        open_store(f"file://{tmp_path}/store?tenant=acme")

    assert ("store.tenant", True) == (caught.value.code, (first or "no tenant") in caught.value.message)


def test_a_tenant_that_is_too_long_is_refused(tmp_path: Path) -> None:
    """Before anything is created."""
    with pytest.raises(UsageError) as caught:
        FileStore(tmp_path / "store", tenant="x" * 201)

    assert ("store.tenant", False) == (caught.value.code, (tmp_path / "store").exists())


async def test_a_format_without_a_tenant_has_no_such_field(tmp_path: Path) -> None:
    """Earlier releases can read it."""
    await FileStore(tmp_path / "store").close()

    assert '{"format":1,"layout":"A","shard_digits":2}\n' == (tmp_path / "store" / "format.json").read_text()


async def test_a_keyed_chain_is_not_read_without_its_key(tmp_path: Path) -> None:
    """With a store key write access to the files is not enough to make the hashes."""
    store = FileStore(tmp_path / "store", store_key=b"secret")
    await filled(store, 3)
    await store.close()
    other = FileStore(tmp_path / "store")
    with pytest.raises(CorruptionError):
        await other.read(ENTITY)
    await other.close()
