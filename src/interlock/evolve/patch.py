"""A patch: how a snapshot changes when its entity is carried to another revision.

Rule 1: it records results, never how they were computed, so it is applied without any chart.
Rule 2: only what changes is in it. `apply_patch(before, make_patch(before, after)) == after`.
"""

from __future__ import annotations

from typing import Any

from msgspec import convert
from msgspec.structs import replace

from interlock.model.encoding.codec import to_builtins
from interlock.model.event import Event
from interlock.model.snapshot import Invocation, Sight, Snapshot, Timer

_MAPPINGS = ("context", "history")
_LISTS: dict[str, Any] = {
    "configuration": tuple[str, ...],
    "timers": tuple[Timer, ...],
    "invokes": tuple[Invocation, ...],
    "deferred": tuple[Event, ...],
    "entered": tuple[str, ...],
}
_END = ("ended", "output")


def make_patch(before: Snapshot, after: Snapshot) -> dict[str, Any]:
    """Return the differences between two snapshots of one entity as plain JSON."""
    patch: dict[str, Any] = {"from": before.revision, "to": after.revision}
    for name in _MAPPINGS:
        old, new = getattr(before, name) or {}, getattr(after, name) or {}
        changed = {
            key: to_builtins(value) for key, value in new.items() if key not in old or not _same(old[key], value)
        }
        gone = [key for key in old if key not in new]
        if changed or gone:
            patch[name] = {"set": changed, "unset": gone}
    for name in _LISTS:
        if getattr(before, name) != getattr(after, name):
            patch[name] = to_builtins(getattr(after, name))
    if before.sight != after.sight:
        patch["sight"] = to_builtins(after.sight)
    patch |= {name: to_builtins(getattr(after, name)) for name in _END if getattr(before, name) != getattr(after, name)}
    return patch


def apply_patch(snapshot: Snapshot, patch: dict[str, Any]) -> Snapshot:
    """Return the next version of a snapshot by a patch. It notes that the entity was moved."""
    changes: dict[str, Any] = {name: convert(patch[name], kind) for name, kind in _LISTS.items() if name in patch}
    changes |= {name: patch[name] for name in _END if name in patch}
    for name in (each for each in _MAPPINGS if each in patch):
        kept = {key: value for key, value in (getattr(snapshot, name) or {}).items() if key not in patch[name]["unset"]}
        changes[name] = kept | patch[name]["set"]
    if "history" in changes:
        remembered = {key: tuple(value) for key, value in changes["history"].items()}
        changes["history"] = remembered or None
    if "sight" in patch:
        changes["sight"] = convert(patch["sight"], Sight | None)
    version = snapshot.version + 1
    return replace(snapshot, version=version, revision=patch["to"], moved=version, **changes)


def _same(old: Any, new: Any) -> bool:
    """Whether two JSON values are the same, also in type: 1 is not 1.0, nor true."""
    if type(old) is not type(new):
        return False
    if isinstance(old, dict):
        return old.keys() == new.keys() and all(_same(old[key], new[key]) for key in old)
    if isinstance(old, list | tuple):
        return len(old) == len(new) and all(map(_same, old, new))
    return bool(old == new)
