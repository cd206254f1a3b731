"""The root of a file store: how it is begun, and what is refused as no store of ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from interlock.errors import CorruptionError, NotFoundError, UsageError
from interlock.stores.files import FileStore
from tests.crash.life import step

ENTITY = "order/A-1"


@pytest.mark.parametrize(
    "content",
    ['{"format":2,"layout":"A"}', '{"format":1,"layout":"Z"}', '{"format":1,"layout":"A","shard_digits":7}', "{}x", ""],
)
def test_an_unknown_format_is_refused(tmp_path: Path, content: str) -> None:
    """A store of a later edition is not guessed at."""
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "format.json").write_text(content)
    with pytest.raises(UsageError) as caught:
        FileStore(tmp_path / "store")

    assert "store.format" == caught.value.code


def test_a_missing_parent_directory_is_an_error(tmp_path: Path) -> None:
    """A store makes its own directory, not the way to it."""
    (tmp_path / "file").write_text("mine")
    for folder in (tmp_path / "none", tmp_path / "file"):
        with pytest.raises(NotFoundError) as caught:
            FileStore(folder / "store")
        assert ("store.folder", f"there is no folder {folder}") == (caught.value.code, caught.value.message)


@pytest.mark.parametrize("layout", ["A", "C"])
async def test_a_root_that_lost_its_format_is_no_new_store(tmp_path: Path, layout: str) -> None:
    """A part of a restored backup is missing: nothing is written into what is there, and the missing line is told."""
    root = tmp_path / "store"
    store = FileStore(root, layout=layout)
    await store.append(step(1, "a"))
    await store.close()
    line = (root / "format.json").read_text()
    (root / "format.json").unlink()
    there = sorted(root.rglob("*"))
    with pytest.raises(CorruptionError) as caught:
        FileStore(root, layout=layout)

    assert "store.format" == caught.value.code
    assert line.strip() in str(caught.value.hint)
    assert there == sorted(root.rglob("*"))

    (root / "format.json").write_text(line)
    store = FileStore(root)
    assert [1] == [each.version for each in await store.read(ENTITY)]
    await store.close()


async def test_a_root_with_a_log_alone_is_no_new_store(tmp_path: Path) -> None:
    """Half a megabyte in `wal`, and nothing else of the store."""
    (tmp_path / "store" / "wal").mkdir(parents=True)
    (tmp_path / "store" / "wal" / "1.log").write_bytes(b"{}")
    with pytest.raises(CorruptionError, match="holds entities"):
        FileStore(tmp_path / "store")


@pytest.mark.parametrize("name", ["resources", "wal", "pending", "notes.txt"])
async def test_a_root_that_holds_no_entities_may_be_begun(tmp_path: Path, name: str) -> None:
    """A process died while it made the store, or a person keeps a file there."""
    root = tmp_path / "store"
    root.mkdir()
    (root / name).write_text("mine") if "." in name else (root / name).mkdir()
    store = FileStore(root)
    await store.append(step(1, "a"))
    await store.close()

    assert (root / "format.json").is_file()
