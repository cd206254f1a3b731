"""Opens the archives that retention copies journals to: a folder, with a file store for each month and tenant."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, urlencode, urlsplit

from interlock.errors import NotFoundError, UsageError
from interlock.ports.store import Store
from interlock.stores.files.names import tenant_folder
from interlock.stores.registry import open_store


class Archives:
    """The archives of one tenant, opened when they are first used. The owner closes them."""

    def __init__(self, tenant: str) -> None:
        self._tenant = tenant
        self._opened: dict[str, Store] = {}

    async def open(self, address: str, folder: str) -> tuple[Store, str]:
        """Return the store in a folder of an archive, such as `2026-08`, and its address; create the folder.

        Raises UsageError for an address that is not a folder, NotFoundError if the folder around it does not exist.
        """
        home = archive_folder(address)
        create_folder(home)
        if self._tenant:
            home /= tenant_folder(self._tenant)
            create_folder(home)
        found = (home / folder).absolute().as_uri()
        if found not in self._opened:
            self._opened[found] = await open_store(f"{found}?{urlencode({'tenant': self._tenant})}")
        return self._opened[found], found

    async def close(self) -> None:
        """Close all of them."""
        while self._opened:
            await self._opened.popitem()[1].close()


def archive_folder(address: str) -> Path:
    """Return the folder of an archive. Raises UsageError for an address that is not one."""
    parts = urlsplit(address)
    if parts.scheme != "file" or parts.netloc not in {"", "localhost"} or not parts.path or parts.query:
        hint = "write file:///var/archive/orders"
        raise UsageError(f"`{address}` is not a folder URL", code="archive.target", hint=hint)
    return Path(unquote(parts.path))


def create_folder(folder: Path) -> None:
    """Create a folder of the archive. Its name is flushed to disk before any journal is released."""
    if not folder.parent.is_dir():
        raise NotFoundError(f"the folder {folder.parent} does not exist", code="archive.folder", hint="create it first")
    folder.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
