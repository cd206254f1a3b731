"""The entry that moves an entity to another revision, and its replay.

Rule 1: the data of its event is a patch (`evolve.patch`) with the reason, so that replay applies results and needs
        neither the charts nor the code that computed them.
Rule 2: the effects of the move, such as timers, are taken from the entry.
Rule 3: a move starts at the revision that wrote the entry before it. Anything else is damage.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from interlock.errors import CorruptionError
from interlock.evolve.patch import apply_patch
from interlock.model.charts.chart import SEMANTICS
from interlock.model.event import Event
from interlock.model.journal.entry import MOVED, Entry
from interlock.model.snapshot import Snapshot
from interlock.model.step import Step

MoveReason = Literal["upgrade", "migrate", "refold", "undo", "import"]
"""Why an entity was moved: by the upgrade policy, by a migration, by a corrected chart, back, or into this store."""


def move_event(
    patch: dict[str, Any],
    *,
    why: MoveReason,
    time_ms: int,
    clock_ms: int | None = None,
    principal: dict[str, Any] | None = None,
    plan: str | None = None,
    dropped: tuple[str, ...] = (),
    undoes: int | None = None,
) -> Event:
    """Return the event of a move. `undoes` is the version of the move that it takes back."""
    data: dict[str, Any] = {**patch, "why": why, "semantics": SEMANTICS}
    if plan is not None:
        data["plan"] = plan
    if dropped:
        data["dropped"] = list(dropped)
    if undoes is not None:
        data["undoes"] = undoes
    return Event(MOVED, data, principal=principal, time_ms=time_ms, type="platform", clock_ms=clock_ms)


def move_key(name: str, version: int) -> str:
    """Return the key of the move of an entity from a version; `name` is that of the plan or of the new revision."""
    return f"_move/{name}/{version}"


def is_move(entry: Entry) -> bool:
    """Whether an entry moves its entity to another revision."""
    return entry.event.name == MOVED


def repeat_move(entity: str, snapshot: Snapshot | None, entry: Entry) -> Step:
    """Return the step of a move, by its entry. Raises CorruptionError if it cannot follow the snapshot."""
    data = entry.event.data
    if snapshot is None or not isinstance(data, dict):
        raise _damaged(entity, entry, "it has no snapshot before it, or no patch")
    if data.get("from") != snapshot.revision or data.get("to") != entry.revision:
        found = f"from {data.get('from')!s:.80} to {data.get('to')!s:.80}"
        raise _damaged(entity, entry, f"it moves {found}, expected {snapshot.revision} to {entry.revision}")
    try:
        after = apply_patch(snapshot, data)
    except (msgspec.ValidationError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(entity, entry, f"its patch is invalid: {error}") from error
    return Step(after, entry.effects, entry.outcome, entry.reason)


def as_moved(step: Step, revision: str) -> Step:
    """Return a step under this name of its revision, with its version noted as that of the last move."""
    snapshot = step.snapshot
    return replace(step, snapshot=replace(snapshot, revision=revision, moved=snapshot.version))


def _damaged(entity: str, entry: Entry, problem: str) -> CorruptionError:
    message = f"the move of `{entity}` at version {entry.version} cannot be replayed: {problem}"
    return CorruptionError(message, code="journal.move")
