"""When the keys of a key file were last used: `<key file>.used`, written by servers, read by `interlock keys`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from interlock.ports.replaced_file import replace_file


def used_file(path: Path) -> Path:
    """Return the file with the times of last use of the keys of a key file."""
    return path.with_name(f"{path.name}.used")


def read_used(path: Path) -> dict[str, int]:
    """Return when each key of a key file was last used; nothing if that is not known."""
    try:
        found = json.loads(used_file(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: used_ms for name, used_ms in found.items() if type(used_ms) is int}


def write_used(path: Path, used: Mapping[str, int]) -> None:
    """Write the later of these times and those in the file. Raises OSError if it cannot be written."""
    latest = read_used(path)
    for name, used_ms in used.items():
        latest[name] = max(used_ms, latest.get(name, 0))
    replace_file(used_file(path), json.dumps(latest, indent=1, sort_keys=True).encode() + b"\n", mode=0o600)
