"""The root of a file store: how it is created, and what is refused."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from interlock.errors import CorruptionError, NotFoundError, UnavailableError, UsageError
from interlock.stores.files.filesystem import OperatingSystem
from interlock.stores.files.names import directory_name, shard_name
from interlock.stores.files.root import Format
from interlock.stores.files.store import FileStore, open_store
from tests.crash.life import step

ENTITY = "order/A-1"


@pytest.mark.parametrize(
    "content",
    ['{"format":2,"layout":"A"}', '{"format":1,"layout":"Z"}', '{"format":1,"layout":"A","shard_digits":7}', "{}x", ""],
)
def test_an_unknown_format_is_refused(tmp_path: Path, content: str) -> None:
    """A later format is not guessed."""
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "format.json").write_text(content)
    with pytest.raises(UsageError) as caught:
        FileStore(tmp_path / "store")

    assert "store.format" == caught.value.code


def test_a_missing_parent_directory_is_an_error(tmp_path: Path) -> None:
    """A store creates its own directory, and not its parents."""
    (tmp_path / "file").write_text("mine")
    for folder in (tmp_path / "none", tmp_path / "file"):
        with pytest.raises(NotFoundError) as caught:
            FileStore(folder / "store")
        assert ("store.folder", True) == (caught.value.code, str(folder) in caught.value.message)


async def test_a_root_that_lost_its_format_is_not_a_new_store(tmp_path: Path) -> None:
    """A part of a restored backup is missing: nothing is written, and the hint has the missing line."""
    root = tmp_path / "store"
    store = FileStore(root)
    await store.append(step(1, "a"))
    await store.close()
    line = (root / "format.json").read_text()
    (root / "format.json").unlink()
    there = sorted(root.rglob("*"))
    with pytest.raises(CorruptionError) as caught:
        FileStore(root)

    assert "store.format" == caught.value.code
    assert line.strip() in str(caught.value.hint)
    assert there == sorted(root.rglob("*"))

    (root / "format.json").write_text(line)
    store = FileStore(root)
    assert [1] == [each.version for each in await store.read(ENTITY)]
    await store.close()


LONG = f"order/{'Ä' * 90}"
"""An id whose directory name is cut."""


async def started(root: Path, *entities: str, tenant: str = "") -> None:
    """A closed store with these entities."""
    store = FileStore(root, tenant=tenant)
    for each in entities:
        await store.append(step(1, "a", entity=each))
    await store.close()


async def names_in(root: Path) -> tuple[str, ...]:
    """The names that are verified."""
    store = FileStore(root)
    try:
        return await store.entity_names()
    finally:
        await store.close()


@pytest.mark.parametrize("entity", [ENTITY, LONG])
async def test_the_hint_for_a_lost_format_has_the_tenant(tmp_path: Path, entity: str) -> None:
    """Directory names contain it, cut ones too: restored without it, no entity would be found."""
    root = tmp_path / "store"
    await started(root, entity, tenant='Acme "1"')
    line = (root / "format.json").read_text().strip()
    (root / "format.json").unlink()
    with pytest.raises(CorruptionError) as caught:
        FileStore(root)

    assert f"restore that file, one line: {line}" == caught.value.hint


async def test_the_hint_for_a_lost_format_lists_several_tenants(tmp_path: Path) -> None:
    """An operator restored the wrong line once, and must choose."""
    root = tmp_path / "store"
    await started(root, "order/1", tenant="acme")
    (root / "format.json").write_text('{"format":1,"layout":"A","shard_digits":2}')
    await started(root, "order/1")
    (root / "format.json").unlink()
    with pytest.raises(CorruptionError) as caught:
        FileStore(root)

    assert str(caught.value.hint).endswith('"", "acme"')


@pytest.mark.parametrize("entity", [ENTITY, LONG])
@pytest.mark.parametrize(("before", "after"), [("acme", ""), ("acme", "other"), ("", "acme")])
async def test_journals_of_another_tenant_are_named_as_strays(
    tmp_path: Path, entity: str, before: str, after: str
) -> None:
    """The format was restored wrongly: verification gets each directory, and none as an entity."""
    root = tmp_path / "store"
    await started(root, entity, tenant=before)
    line = (root / "format.json").read_text()
    (root / "format.json").write_bytes(Format(tenant=after).encode())
    found = await names_in(root)
    (root / "format.json").write_text(line)

    assert ((directory_name(entity, tenant=before),), (entity,)) == (found, await names_in(root))


async def test_a_journal_in_a_wrong_place_is_named_as_a_stray(tmp_path: Path) -> None:
    """In another shard, or under the name of a copy."""
    root = tmp_path / "store"
    await started(root, "order/1", "order/2")
    name = directory_name("order/1")
    right = root / "resources" / shard_name(name, 2) / name
    right.rename(root / "resources" / ("00" if right.parent.name != "00" else "01") / name)
    copied = root / "resources" / "00" / "order.2 (copy)"
    copied.mkdir()
    (copied / "events-00000000000000000001.log").write_bytes(b"{}")

    assert ("order.1", "order.2 (copy)", "order/1", "order/2") == await names_in(root)


class Closed(OperatingSystem):
    """A system that does not open directories of two names."""

    def __init__(self, code: int) -> None:
        super().__init__()
        self._code = code

    def open_directory(self, at: int, name: str) -> int:
        """Open it, unless it is one of those."""
        if name in ("acme.order.1", "lost+found"):
            raise OSError(self._code, os.strerror(self._code))
        return super().open_directory(at, name)


@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO, errno.EMFILE])
async def test_a_directory_that_cannot_be_opened_is_a_stray_by_its_name_and_other_errors_are_raised(
    tmp_path: Path, code: int
) -> None:
    """One with the name of another tenant's entity is a stray; one that only the administrator may open is not."""
    root = tmp_path / "store"
    await started(root, "order/1")
    for name in ("acme.order.1", "lost+found"):
        (root / "resources" / "00" / name).mkdir()
    store = FileStore(root, fs=Closed(code))
    try:
        if code == errno.EMFILE:
            with pytest.raises(UnavailableError, match="Too many open files"):
                await store.entity_names()
        else:
            assert ("acme.order.1", "order/1") == await store.entity_names()
    finally:
        await store.close()


@pytest.mark.parametrize("tenant", ["", "acme"])
async def test_foreign_files_among_entities_are_ignored(tmp_path: Path, tenant: str) -> None:
    """Files, links, directories without a journal, and one that another tenant created and never wrote."""
    root = tmp_path / "store"
    await started(root, "order/1", tenant=tenant)
    shard = root / "resources" / "00"
    for name in ("notes.2026.txt", ".DS_Store", "order.1~", "README"):
        (shard / name).write_text("mine")
    for name in ("lost+found", "other.order.9", "order.7.tmp-1", "old.years.kept"):
        (shard / name).mkdir()
    (shard / "old.years.kept" / "list.txt").write_text("mine")
    (shard / "link.order.1").symlink_to(next(root.glob("resources/*/*order.1")))

    assert ("order/1",) == await names_in(root)


async def test_a_root_of_the_removed_layout_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    """With its format, without it, or with a changed one: entries may be in its log and in no journal."""
    root = tmp_path / "store"
    (root / "wal").mkdir(parents=True)
    (root / "wal" / "1.log").write_bytes(b"{}")
    codes = []
    for text in (None, '{"format":1,"layout":"C","shard_digits":2}', '{"format":1,"layout":"A","shard_digits":2}'):
        if text is not None:
            (root / "format.json").write_text(text)
        before = sorted(root.rglob("*"))
        with pytest.raises(UsageError) as caught:
            FileStore(root)
        codes.append(caught.value.code)
        assert before == sorted(root.rglob("*"))

    assert ["store.layout"] * 3 == codes


async def test_a_root_of_the_removed_layout_is_opened_once_its_log_is_empty(tmp_path: Path) -> None:
    """As the release that wrote it leaves it when it is closed."""
    root = tmp_path / "store"
    await started(root, ENTITY)
    (root / "wal").mkdir()
    (root / "wal" / "00000000000000000002.log").touch()
    (root / "wal" / "checkpoint.json").write_text('{"below":2}')

    assert (ENTITY,) == await names_in(root)


@pytest.mark.parametrize("layout", ["A", "C"])
def test_a_url_with_a_layout_is_refused(tmp_path: Path, layout: str) -> None:
    """Before anything is created; the hint names a store with group commit."""
    with pytest.raises(UsageError) as caught:
        open_store(f"file://{tmp_path}/store?layout={layout}")

    assert ("store.layout", False) == (caught.value.code, (tmp_path / "store").exists())
    assert "sqlite:" in str(caught.value.hint)


@pytest.mark.parametrize("name", ["resources", "wal", "pending", "notes.txt"])
async def test_a_root_without_entities_can_be_created(tmp_path: Path, name: str) -> None:
    """A process died while it created the store, or a person has a file there."""
    root = tmp_path / "store"
    root.mkdir()
    (root / name).write_text("mine") if "." in name else (root / name).mkdir()
    store = FileStore(root)
    await store.append(step(1, "a"))
    await store.close()

    assert (root / "format.json").is_file()
