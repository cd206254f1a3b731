"""A store of another package that has journals and no work, installed as a plug-in for the scheme `journals:`."""

from __future__ import annotations

from pathlib import Path

import pytest

from interlock.model.journal.record import JournalRecord
from interlock.ports.store import PAGE_MAX, Append, AppendResult, Duplicate, EntityPage, EntityQuery, Loaded, Store
from interlock.stores.files.store import FileStore

ENTRY_POINTS = f"[interlock.stores]\njournals = {__name__}:open_store\n"


class JournalOnlyStore(Store):
    """The methods of `Store` and no others, on a file store."""

    def __init__(self, files: FileStore) -> None:
        self._files = files

    async def append(self, append: Append) -> AppendResult:
        """Append one entry."""
        return await self._files.append(append)

    async def load(self, entity: str, *, key: str | None = None) -> Loaded | Duplicate | None:
        """The entity, or the duplicate of a key."""
        return await self._files.load(entity, key=key)

    async def read(self, entity: str, *, after: int = 0, limit: int = PAGE_MAX) -> tuple[JournalRecord, ...]:
        """Records after a version."""
        return await self._files.read(entity, after=after, limit=limit)

    async def find(self, query: EntityQuery) -> EntityPage:
        """A page of entities."""
        return await self._files.find(query)

    async def kinds(self) -> tuple[str, ...]:
        """The kinds of all entities."""
        return await self._files.kinds()

    async def close(self) -> None:
        """Close the files."""
        await self._files.close()


def open_store(url: str) -> JournalOnlyStore:
    """The store at an address such as `journals:lamps`."""
    return JournalOnlyStore(FileStore(url.partition(":")[2]))


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the plug-in for one test, as a distribution with an entry point."""
    info = folder / "journal_only-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: journal-only\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(folder))
