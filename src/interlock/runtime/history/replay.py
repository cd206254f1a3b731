"""Replay: fold entries through the step, effects discarded. How a snapshot is made from a journal.

Rule 1: a replayed entry must lead where it says it led; anything else is a divergence, and is corruption where the
very chart that wrote the entry says so. One that is only compatible with it may rightly lead elsewhere: the entry is
then not for this process to judge.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from interlock.errors import CorruptionError, UnavailableError
from interlock.kernel.step import Kernel
from interlock.model.journal.entry import CREATE, Entry
from interlock.model.snapshot import Parent, Snapshot
from interlock.model.step import Step
from interlock.runtime.chart_registry import ChartRegistry


def replay(charts: ChartRegistry, entity: str, snapshot: Snapshot | None, entries: Iterable[Entry]) -> Snapshot | None:
    """The snapshot after these entries, each by the revision that wrote it, or one compatible with that.

    Raises CorruptionError at a divergence, UnavailableError at one from another revision than the entry's.
    """
    kind = entity.partition("/")[0]
    for entry in entries:
        kernel = charts.revision(kind, entry.revision)
        snapshot = repeat_step(kernel, entity, snapshot, entry).snapshot
        if snapshot.version != entry.version or snapshot.configuration != entry.after:
            if kernel.chart.revision != entry.revision:
                raise unproven(entity, entry, kernel)
            found = f"version {snapshot.version} in {', '.join(snapshot.configuration)}"
            written = f"version {entry.version} in {', '.join(entry.after)}"
            message = f"replaying `{entity}` diverges: the journal says {written}, the chart gives {found}"
            raise CorruptionError(message, code="journal.divergence")
    return snapshot


def unproven(entity: str, entry: Entry, kernel: Kernel) -> UnavailableError:
    """A chart that is compatible with the one that wrote an entry gives something else."""
    message = (
        f"version {entry.version} of `{entity}` was written by revision {entry.revision}, whose chart is not here; "
        f"{kernel.chart.revision}, which is compatible with it, gives something else"
    )
    return UnavailableError(message, code="revision.unknown", hint="load the chart of that revision, too")


def repeat_step(kernel: Kernel, entity: str, snapshot: Snapshot | None, entry: Entry) -> Step:
    """The step of an entry, done once more on the snapshot before it. Raises CorruptionError when there is none."""
    event = entry.event
    if event.name == CREATE:
        data = event.data if isinstance(event.data, dict) else {}
        parent = None if data.get("parent") is None else msgspec.convert(data["parent"], Parent)
        return kernel.start(data.get("context"), entity=entity, time_ms=event.time_ms, parent=parent)
    if snapshot is None:
        raise CorruptionError(f"the journal of `{entity}` does not begin with its creation", code="journal.beginning")
    return kernel.step(snapshot, event)
