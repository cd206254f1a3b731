"""Entities of the file store whose ids are too long for a directory name, with a missing or damaged snapshot."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from interlock.ports.store import EntityQuery
from interlock.stores.files.filesystem import OperatingSystem
from interlock.stores.files.names import directory_name, shard_name
from interlock.stores.files.store import FileStore
from tests.crash.life import step

LONG = f"order/{'Ä' * 90}"
"""An id whose directory name is cut."""


def place_of(root: Path, entity: str, *, tenant: str = "") -> Path:
    """The directory of an entity."""
    name = directory_name(entity, tenant=tenant)
    return root / "resources" / shard_name(name, 2) / name


@pytest.mark.parametrize("tenant", ["", "acme"])
@pytest.mark.parametrize("damage", [b"garbage", b"", None])
async def test_a_damaged_entity_whose_name_was_cut_is_left_out_of_lists_by_its_folder(
    tmp_path: Path, tenant: str, damage: bytes | None
) -> None:
    """Its id is unknown, and it must not vanish: not from its kind, nor from prefixes that its id may have."""
    store = FileStore(tmp_path / "store", tenant=tenant)
    for entity, version in ((LONG, 1), (LONG, 2), ("door/1", 1)):
        await store.append(step(version, f"k{version}", entity=entity))
    await store.close()
    place = place_of(tmp_path / "store", LONG, tenant=tenant)
    kept, name = place / "state.json", place.name
    kept.unlink() if damage is None else kept.write_bytes(damage)
    other = FileStore(tmp_path / "store")
    asked = [
        ("order", None),
        ("order", "ÄÄ"),
        ("order", "Ä" * 90 + "x"),
        ("order", "B"),
        ("door", None),
        ("orders", None),
    ]
    pages = [await other.find(EntityQuery(kind=kind, prefix=prefix)) for kind, prefix in asked]
    kinds, names = await other.kinds(), await other.entity_names()
    await other.close()

    assert [(name,)] * 3 + [()] * 3 == [page.unreadable for page in pages]
    assert ["door/1"] == [row.entity for page in pages for row in page.rows]
    assert (("door", "order"), {"door/1", name}) == (kinds, set(names))


async def test_an_unwritten_directory_with_a_cut_name_is_not_an_entity(tmp_path: Path) -> None:
    """Its creator died before its first byte: nothing was acknowledged, and nothing is damaged."""
    store = FileStore(tmp_path / "store")
    for number, files in enumerate([(), ("events.log",), ("events.log", "state.json.tmp-dead")]):
        place = place_of(tmp_path / "store", f"{LONG}{number}")
        place.mkdir()
        for each in files:
            (place / each).touch()
    page, kinds, names = await store.find(EntityQuery(kind="order")), await store.kinds(), await store.entity_names()
    await store.close()

    assert ((), (), (), ()) == (page.rows, page.unreadable, kinds, names)


class Beginning(OperatingSystem):
    """A system on which another process creates an entity: once its lock is free, its first snapshot exists."""

    def __init__(self, place: Path) -> None:
        super().__init__()
        self._place = place
        (place / "state.json").rename(place / "aside")

    def lock(self, file: int, ms_max: int) -> None:
        """Lock, once the other process is done."""
        super().lock(file, ms_max)
        if os.fstat(file).st_ino == self._place.stat().st_ino and (self._place / "aside").exists():
            (self._place / "aside").rename(self._place / "state.json")


async def test_an_entity_with_a_cut_name_that_is_being_created_is_listed(tmp_path: Path) -> None:
    """Damage is never decided without the lock: its holder writes the journal first, then the snapshot."""
    store = FileStore(tmp_path / "store")
    await store.append(step(1, "k1", entity=LONG))
    await store.close()
    other = FileStore(tmp_path / "store", fs=Beginning(place_of(tmp_path / "store", LONG)))
    page = await other.find(EntityQuery(kind="order"))
    await other.close()

    assert ([LONG], ()) == ([row.entity for row in page.rows], page.unreadable)
