"""Files of a store that are moved, replaced or deleted while it is open: no further call is acknowledged."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from interlock.errors import InterlockError, UnavailableError
from interlock.ports.store import Duplicate
from interlock.stores.files.names import directory_name, shard_name
from interlock.stores.files.store import FileStore
from interlock.stores.sqlite.store import SqliteStore
from interlock.testing.store_suite.samples import SampleEntity
from interlock.testing.store_suite.subject import append_all
from tests.crash.life import step

ENTITY = "order/A-1"


async def _codes(*calls: Callable[[], Awaitable[object]]) -> list[str]:
    """The error code of each call; `ok` without an error."""
    codes = []
    for each in calls:
        try:
            await each()
            codes.append("ok")
        except InterlockError as error:
            codes.append(error.code)
    return codes


def _moved(path: Path) -> None:
    path.rename(path.with_name(path.name + ".away"))


def _copied(path: Path) -> None:
    """As a restored backup: the same bytes in another file."""
    copy = path.with_name(path.name + ".copy")
    shutil.copy(path, copy)
    copy.replace(path)


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
@pytest.mark.parametrize("change", [Path.unlink, _moved, _copied])
async def test_sqlite_acknowledges_nothing_when_a_file_is_not_there(
    tmp_path: Path, suffix: str, change: Callable[[Path], None]
) -> None:
    """The step is refused with a separate code; after that the store is poisoned, and a known key is no answer."""
    path = tmp_path / "x.db"
    store = SqliteStore(path)
    sample = SampleEntity("parcel/1")
    await append_all(store, sample.create(), sample.step(key="k1"))
    change(path.with_name(f"x.db{suffix}"))
    codes = await _codes(
        lambda: store.append(sample.step(key="k2")),
        lambda: store.append(sample.step(key="k3")),
        lambda: store.load("parcel/1", key="k1"),
    )
    await store.close()

    assert ["store.replaced", "store.poisoned", "store.poisoned"] == codes


@pytest.mark.parametrize("ask", ["load", "append"])
async def test_a_known_key_of_a_replaced_database_is_not_acknowledged(tmp_path: Path, ask: str) -> None:
    """Also when nothing was written since: by the reader, and by the writer."""
    path = tmp_path / "x.db"
    store = SqliteStore(path)
    first = SampleEntity("parcel/1").create()
    await append_all(store, first)
    assert Duplicate(1) == await store.load(first.entity, key=first.entry.key)
    _moved(path)

    async def again() -> object:
        return await (store.load(first.entity, key=first.entry.key) if ask == "load" else store.append(first))

    codes = await _codes(again, again)
    await store.close()

    assert ["store.replaced", "store.poisoned"] == codes


async def test_a_lone_caller_of_a_replaced_database_is_refused(tmp_path: Path) -> None:
    """One whose step is written in its own thread."""
    path = tmp_path / "x.db"
    store = SqliteStore(path)
    sample = SampleEntity("parcel/1")
    await append_all(store, sample.create(), *(sample.step(key=f"k{each}") for each in range(40)))
    store.database.queue.policy._quick_calls_needed = 0
    path.unlink()
    codes = await _codes(lambda: store.append(sample.step(key="x")), lambda: store.append(sample.step(key="y")))
    await store.close()

    assert ["store.replaced", "store.poisoned"] == codes


async def test_a_reader_is_opened_on_the_file_that_is_written(tmp_path: Path) -> None:
    """Not on another one that has its name by now."""
    path = tmp_path / "x.db"
    store = SqliteStore(path)
    other = SqliteStore(tmp_path / "y.db")
    await other.close()
    (tmp_path / "y.db").replace(path)
    codes = await _codes(store.kinds)
    await store.close()

    assert ["store.replaced"] == codes


def _journal(root: Path) -> Path:
    name = directory_name(ENTITY)
    return root / "resources" / shard_name(name, 2) / name / "events.log"


def _emptied(root: Path) -> None:
    shutil.rmtree(_journal(root).parent)


def _rewritten(root: Path) -> None:
    _copied(_journal(root))


@pytest.mark.parametrize("change", [shutil.rmtree, _moved, _emptied, _rewritten])
@pytest.mark.parametrize("is_lone", [True, False])
async def test_files_acknowledge_nothing_when_the_journal_is_missing(
    tmp_path: Path, change: Callable[[Path], None], is_lone: bool
) -> None:
    """The root, the folder of the entity, or its journal was moved, replaced or deleted."""
    root = tmp_path / "store"
    store = FileStore(root)
    for version in (1, 2):
        await store.append(step(version, f"k{version}"))
    store._pace._quick_calls_needed = 0 if is_lone else 100
    change(root)
    codes = await _codes(
        lambda: store.append(step(3, "k3")), lambda: store.append(step(3, "k3")), lambda: store.append(step(3, "k2"))
    )
    await store.close()

    assert ["store.replaced", "store.poisoned", "store.poisoned"] == codes


async def test_a_known_key_of_moved_files_is_not_acknowledged(tmp_path: Path) -> None:
    """By an open journal, and by a reader."""
    root = tmp_path / "store"
    store = FileStore(root)
    for version in (1, 2):  # the second entry proves that the first is durable
        await store.append(step(version, f"k{version}"))
    assert Duplicate(1) == await store.load(ENTITY, key="k1")
    reader = FileStore(root)
    _moved(root)
    codes = await _codes(
        partial(store.load, ENTITY, key="k1"),
        partial(store.append, step(1, "k1")),
        partial(reader.load, ENTITY, key="k1"),
    )
    await reader.close()
    await store.close()

    assert ["store.replaced"] == [each for each in codes if each != "store.poisoned"][:1]
    assert {*codes} <= {"store.replaced", "store.poisoned"}


async def test_a_store_goes_on_after_the_working_directory_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative path is resolved when the store is opened."""
    monkeypatch.chdir(tmp_path)
    store, database, sample = FileStore("a"), SqliteStore(Path("x.db")), SampleEntity("parcel/1")
    await append_all(database, sample.create())
    await store.append(step(1, "k1"))
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    answer = await store.append(step(2, "k2"))
    await append_all(database, sample.step(key="k"))
    await store.close()
    await database.close()

    assert 2 == answer.version


async def test_a_database_that_is_replaced_while_it_is_opened_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once is chance, and it is opened again; again and again it is refused."""
    from interlock.stores.sqlite import files

    real, changes = files.identity_at, iter(range(100))
    monkeypatch.setattr(files, "identity_at", lambda path: (real(path), next(changes)))
    with pytest.raises(UnavailableError) as caught:
        SqliteStore(tmp_path / "x.db")

    assert "store.replaced" == caught.value.code
