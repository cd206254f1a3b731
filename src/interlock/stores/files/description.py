"""Describes what is at the address of a file store without opening it: format and tenant. It changes nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from interlock.errors import CorruptionError, InterlockError, UsageError
from interlock.model.encoding.codec import UNDECODABLE
from interlock.stores.files.filesystem import OperatingSystem
from interlock.stores.files.names import FORMAT_BYTES_MAX, FORMAT_FILE, FORMAT_NEWEST
from interlock.stores.registry import Schema


async def describe(url: str) -> Schema:
    """Return the format of the folder, 0 when there is none. Raises as opening it would."""
    root = Path(unquote(urlsplit(url).path))
    try:
        found = msgspec.json.decode(_read_format(root), type=dict[str, Any])
        current, layout = found["format"], found.get("layout")
    except NotADirectoryError:
        return Schema("file", 0, FORMAT_NEWEST)
    except FileNotFoundError:
        _check_new(root)
        return Schema("file", 0, FORMAT_NEWEST)
    except PermissionError:
        raise UsageError(f"no permission to read {root}", code="store.permission") from None
    except (*UNDECODABLE, KeyError) as error:
        raise _unreadable(root) from error
    if not isinstance(current, int):
        raise _unreadable(root)
    return Schema("file", current, FORMAT_NEWEST, None if layout is None else str(layout))


def _read_format(root: Path) -> bytes:
    """Return the content of the format file. Raises OSError, also when it is not a regular file."""
    fs = OperatingSystem()
    directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        file = fs.open_file(directory, FORMAT_FILE)
        try:
            return fs.read(file, 0, FORMAT_BYTES_MAX)
        finally:
            fs.close(file)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(root / FORMAT_FILE)) from error
    finally:
        os.close(directory)


def _check_new(root: Path) -> None:
    """Raises CorruptionError for a folder that has lost its format, as opening it would."""
    from interlock.stores.files.names import RESOURCES
    from interlock.stores.files.root import REMOVED_LAYOUT_DIRECTORY, lost_format, removed_layout

    for name in (REMOVED_LAYOUT_DIRECTORY, RESOURCES):
        folder = root / name
        if folder.is_dir() and any(folder.iterdir()):
            if name == REMOVED_LAYOUT_DIRECTORY:
                raise removed_layout(str(root))
            raise lost_format(str(root), names=(each.name for each in root.glob(f"{RESOURCES}/*/*")))


def _unreadable(root: Path) -> InterlockError:
    return CorruptionError(f"{root}/format.json is not readable", code="store.format", hint="keep the file as evidence")


def tenant_of(url: str) -> str:
    """Return the tenant of the folder, as its format says; "" when that cannot be read: opening it says why."""
    root = Path(unquote(urlsplit(url).path))
    try:
        found = msgspec.json.decode(_read_format(root), type=dict[str, int | str])
    except (OSError, *UNDECODABLE):
        return ""
    return str(found.get("tenant", ""))


async def list_tenants(url: str, limit: int) -> tuple[str, ...]:  # noqa: ARG001 - a folder has one
    """Return the only tenant of the folder, whether it has entities or not."""
    return (tenant_of(url),)
