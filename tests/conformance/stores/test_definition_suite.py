"""The definition suite on every store, stores that break one of its rules, and damage."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from interlock.ports.definitions import Definition, Edition, StoredDefinition
from interlock.stores import memory
from interlock.stores.files import store as files
from interlock.stores.sqlite import store as sqlite
from interlock.testing.store_suite.definitions import FIRST, OLD_NAME, SECOND
from interlock.testing.store_suite.suite import Case, StoreSubject, definition_cases
from tests.conformance.stores.test_store_suite import opened_postgres
from tests.support.postgres_server import store_or_skip

ALL = definition_cases(durable=True, shared=True)


def _named(case: Case) -> str:
    return getattr(case, "__name__", repr(case))


@pytest.mark.parametrize("case", definition_cases(durable=False, shared=False), ids=_named)
async def test_the_memory_store_keeps_definitions(case: Case) -> None:
    await case(StoreSubject(open=partial(memory.open_store, "memory:")))


@pytest.mark.parametrize("case", ALL, ids=_named)
async def test_the_sqlite_store_keeps_definitions(case: Case, tmp_path: Path) -> None:
    await case(StoreSubject(open=partial(sqlite.open_store, f"sqlite:///{tmp_path}/x.db")))


@pytest.mark.parametrize("case", ALL, ids=_named)
async def test_the_file_store_keeps_definitions(case: Case, tmp_path: Path) -> None:
    await case(StoreSubject(open=partial(files.open_store, f"file://{tmp_path}/x")))


@pytest.mark.parametrize("case", ALL, ids=_named)
async def test_the_postgres_store_keeps_definitions(case: Case) -> None:
    await case(StoreSubject(open=partial(opened_postgres, store_or_skip())))


async def test_a_store_without_definitions_fails_the_suite() -> None:
    class Narrow(memory.MemoryStore):
        definitions = None  # type: ignore[assignment]  # the point

    with pytest.raises(AssertionError, match="keeps no definitions"):
        await ALL[0](StoreSubject(open=Narrow))


class NumbersEverySave(memory.MemoryStore):
    """Gives a new number to an edition that was saved before."""

    async def save_definition(self, definition: Definition, *, now_ms: int) -> Edition:
        found = await super().save_definition(definition, now_ms=now_ms)
        return replace(found, sequence=found.sequence + 1)


class ForgetsNames(memory.MemoryStore):
    """Saves no other names."""

    async def save_definition(self, definition: Definition, *, now_ms: int) -> Edition:
        return await super().save_definition(replace(definition, names=()), now_ms=now_ms)


class ReadsTheFirst(memory.MemoryStore):
    """Returns the first of several revisions of a name."""

    async def read_definitions(self, kind: str, name: str) -> tuple[StoredDefinition, ...]:
        return (await super().read_definitions(kind, name))[:1]


class MixesKinds(memory.MemoryStore):
    """Numbers all kinds together, and returns any kind."""

    async def save_definition(self, definition: Definition, *, now_ms: int) -> Edition:
        return await super().save_definition(replace(definition, kind="parcel"), now_ms=now_ms)


class ChangesTheWrittenName(memory.MemoryStore):
    """Lets each edition have its own written name."""

    async def read_definitions(self, kind: str, name: str) -> tuple[StoredDefinition, ...]:
        found = await super().read_definitions(kind, name)
        return tuple(replace(each, edition=replace(each.edition, written_name=name)) for each in found)


class DropsTheFirst(memory.MemoryStore):
    """Lists the newest editions only."""

    async def list_definitions(self, kind: str | None = None) -> tuple[Edition, ...]:
        return (await super().list_definitions(kind))[-99:]


@pytest.mark.parametrize(
    "faulty", [NumbersEverySave, ForgetsNames, ReadsTheFirst, MixesKinds, ChangesTheWrittenName, DropsTheFirst]
)
async def test_the_suite_finds_the_fault(faulty: type[memory.MemoryStore]) -> None:
    found = []
    for case in definition_cases(durable=False, shared=False):
        try:
            await case(StoreSubject(open=faulty))
        except (AssertionError, ValueError):
            found.append(_named(case))

    assert [] != found


# Damage


def _definition(revision: str = FIRST, body: bytes = b'{"a":1}', names: tuple[str, ...] = ()) -> Definition:
    return Definition(kind="parcel", revision=revision, body=body, names=names, label="1.0.0")


def _damage_files(folder: Path) -> None:
    (file,) = (folder / "x" / "definitions" / "parcel").glob("*.json")
    file.write_bytes(file.read_bytes().replace(b'{"a":1}', b'{"a":2}'))


def _truncate_files(folder: Path) -> None:
    (file,) = (folder / "x" / "definitions" / "parcel").glob("*.json")
    file.write_bytes(file.read_bytes()[:5])


def _damage_rows(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "x.db")) as connection, connection:
        connection.execute("UPDATE definition_body SET body = ?", (b'{"a":2}',))


def _delete_rows(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "x.db")) as connection, connection:
        connection.execute("DELETE FROM definition_body")


@pytest.mark.parametrize(
    ("url", "damage"),
    [
        ("file://{}/x", _damage_files),
        ("file://{}/x", _truncate_files),
        ("sqlite:///{}/x.db", _damage_rows),
        ("sqlite:///{}/x.db", _delete_rows),
    ],
)
async def test_a_damaged_body_is_not_returned_and_saving_repairs_it(
    url: str, damage: Callable[[Path], None], tmp_path: Path
) -> None:
    opened: files.FileStore | sqlite.SqliteStore
    scheme = files if url.startswith("file") else sqlite
    opened = scheme.open_store(url.format(tmp_path))
    await opened.save_definition(_definition(), now_ms=1)
    damage(tmp_path)

    assert [None] == [each.body for each in await opened.read_definitions("parcel", FIRST)]
    assert [FIRST] == [each.revision for each in await opened.list_definitions("parcel")]
    await opened.save_definition(_definition(), now_ms=2)
    assert [b'{"a":1}'] == [each.body for each in await opened.read_definitions("parcel", FIRST)]
    await opened.close()


@pytest.mark.parametrize("scheme", ["files", "sqlite"])
async def test_an_intact_edition_stands_in_for_a_damaged_one(scheme: str, tmp_path: Path) -> None:
    opened: files.FileStore | sqlite.SqliteStore
    if scheme == "files":
        opened = files.open_store(f"file://{tmp_path}/x")
    else:
        opened = sqlite.open_store(f"sqlite:///{tmp_path}/x.db")
    await opened.save_definition(_definition(), now_ms=1)
    newer = await opened.save_definition(_definition(body=b"2"), now_ms=2)
    if scheme == "files":
        (tmp_path / "x" / "definitions" / "parcel" / f"{FIRST}.{newer.digest}.json").write_bytes(b"3\n{}\n")
    else:
        with closing(sqlite3.connect(tmp_path / "x.db")) as connection, connection:
            connection.execute("UPDATE definition_body SET body = ? WHERE digest = ?", (b"3", newer.digest))

    assert [b'{"a":1}'] == [each.body for each in await opened.read_definitions("parcel", FIRST)]
    await opened.close()


async def test_damaged_facts_of_a_file_leave_its_body_and_a_number_is_never_given_twice(tmp_path: Path) -> None:
    opened = files.open_store(f"file://{tmp_path}/x")
    await opened.save_definition(_definition(), now_ms=1)
    await opened.save_definition(_definition(SECOND), now_ms=1)
    folder = tmp_path / "x" / "definitions" / "parcel"
    (file,) = folder.glob(f"{SECOND}.*")
    file.write_bytes(file.read_bytes().replace(b'"sequence":2', b'"sequence":7'))

    (found,) = await opened.read_definitions("parcel", SECOND)
    assert (0, b'{"a":1}') == (found.edition.sequence, found.body)
    third = await opened.save_definition(_definition("b1.00000000000000000003"), now_ms=1)
    again = await opened.save_definition(_definition(SECOND), now_ms=1)
    assert (3, 4) == (third.sequence, again.sequence)
    await opened.close()


async def test_the_numbers_go_on_when_their_file_is_lost(tmp_path: Path) -> None:
    opened = files.open_store(f"file://{tmp_path}/x")
    await opened.save_definition(_definition(), now_ms=1)
    (tmp_path / "x" / "definitions" / "sequence.json").write_bytes(b"{")

    assert 2 == (await opened.save_definition(_definition(SECOND), now_ms=1)).sequence
    await opened.close()


async def test_what_a_dead_writer_left_is_removed(tmp_path: Path) -> None:
    opened = files.open_store(f"file://{tmp_path}/x")
    await opened.save_definition(_definition(), now_ms=1)
    folder = tmp_path / "x" / "definitions" / "parcel"
    (folder / f"{SECOND}.00.json.tmp-1").write_bytes(b"{")

    assert [FIRST] == [each.revision for each in await opened.list_definitions()]
    await opened.save_definition(_definition(SECOND), now_ms=1)
    assert [] == list(folder.glob("*.tmp-*"))
    await opened.close()


async def test_tenants_have_separate_definitions_with_one_body(tmp_path: Path) -> None:
    one = sqlite.open_store(f"sqlite:///{tmp_path}/x.db?tenant=one")
    two = sqlite.open_store(f"sqlite:///{tmp_path}/x.db?tenant=two")
    await one.save_definition(_definition(names=(OLD_NAME,)), now_ms=1)

    assert () == await two.list_definitions()
    await two.save_definition(_definition(SECOND), now_ms=1)
    assert [(SECOND, 1)] == [(each.revision, each.sequence) for each in await two.list_definitions()]
    assert () == await two.read_definitions("parcel", OLD_NAME)
    await one.close()
    await two.close()
    with closing(sqlite3.connect(tmp_path / "x.db")) as connection:
        assert [(1,)] == connection.execute("SELECT count(*) FROM definition_body").fetchall()
