"""How old a place is: the schema or format that a store's files or tables have, and the newest that this release knows.

Rule: looking changes nothing. A place that is not there is not made, an old one not upgraded, a newer one only named.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from importlib.resources import files
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Struct

from interlock.errors import CorruptionError, InterlockError, UsageError

FORMAT_NEWEST = 1
"""The format of file stores."""

_MIGRATION = re.compile(r"(\d{4})_\w+\.sql")
_SELECT_SCHEMA = "SELECT coalesce(max(version), 0) FROM schema_version"


class Schema(Struct, frozen=True):
    """What a place has (0: nothing yet) and what this release would make of it."""

    store: str
    current: int
    newest: int
    layout: str | None = None


async def schema_of(url: str) -> Schema | None:
    """The schema of the store at an address; None for a store that keeps none. Raises as opening it would."""
    match url.partition(":")[0]:
        case "sqlite":
            return _sqlite(url)
        case "file":
            return _files(url)
        case "postgresql" | "postgres":
            return await _postgres(url)
        case _:
            return None


def newest(store: str) -> int:
    """The number of the last migration of a store."""
    found = (_MIGRATION.fullmatch(each.name) for each in (files("interlock.stores") / "migrations" / store).iterdir())
    return max(int(each[1]) for each in found if each is not None)


def _sqlite(url: str) -> Schema:
    from interlock.stores.sqlite.connection import open_reader, translate_error
    from interlock.stores.sqlite.files import CALLS
    from interlock.stores.sqlite.store import address

    path = address(url)[0].absolute()
    if not path.exists():
        return Schema("sqlite", 0, newest("sqlite"))
    try:
        connection = open_reader(path)
        with CALLS, closing(connection):
            ours = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'schema_version'").fetchone()[0]
            current = connection.execute(_SELECT_SCHEMA).fetchone()[0] if ours else 0
    except sqlite3.Error as error:
        raise translate_error(error, path) from error
    return Schema("sqlite", current, newest("sqlite"))


def _files(url: str) -> Schema:
    root = Path(unquote(urlsplit(url).path))
    try:
        found = msgspec.json.decode((root / "format.json").read_bytes(), type=dict[str, int | str])
        current, layout = found["format"], found.get("layout")
    except NotADirectoryError:
        return Schema("file", 0, FORMAT_NEWEST)
    except FileNotFoundError:
        _check_new(root)
        return Schema("file", 0, FORMAT_NEWEST)
    except PermissionError:
        raise UsageError(f"{root} may not be read", code="store.permission") from None
    except (msgspec.MsgspecError, KeyError) as error:
        raise _unreadable(root) from error
    if not isinstance(current, int):
        raise _unreadable(root)
    return Schema("file", current, FORMAT_NEWEST, None if layout is None else str(layout))


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
    return CorruptionError(f"{root}/format.json is not readable", code="store.format", hint="keep the file")


async def _postgres(url: str) -> Schema:
    from interlock.stores.postgres.address import parse_address
    from interlock.stores.postgres.opening import needing_driver

    with needing_driver():
        from interlock.stores.postgres.connection import connect
        from interlock.stores.postgres.maintenance import SELECT_PLACE, SELECT_SCHEMA

    place = parse_address(url)
    connection = await connect(place)
    try:
        _, has_versions = await connection.fetchrow(SELECT_PLACE, place.schema)
        current = await connection.fetchval(SELECT_SCHEMA) if has_versions else 0
    finally:
        await connection.close()
    return Schema("postgres", current, newest("postgres"))
