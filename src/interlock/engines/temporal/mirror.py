"""The mirror: a store of ours that has a copy of every entry, for lists, counts, the console, and what Temporal drops.

Rule 1: entries are written one by one, in order, each conditional on the version before it. Writing them again changes
nothing, so the activity may be repeated.
Rule 2: the snapshots between are computed by replay, as a store recomputes a lost one. No work is written: it is the
workflow's.
"""

from __future__ import annotations

from interlock.engines.temporal.entity_store import verified
from interlock.engines.temporal.wire import MirrorCall
from interlock.errors import CorruptionError
from interlock.ports.clock import SystemClock
from interlock.ports.store import Append, Conflict, Loaded, Store
from interlock.runtime.charts.registry import ChartRegistry
from interlock.runtime.charts.revisions import Revisions
from interlock.runtime.history.replay import replay
from interlock.runtime.listed_states import ListedStates


async def write(mirror: Store, engine: Store, call: MirrorCall) -> None:
    """Write the entries that a mirror lacks. Raises CorruptionError when one before them is missing."""
    revisions = Revisions(ChartRegistry(()), engine, SystemClock(), is_direct=True)
    listed = ListedStates()
    first = call.snapshot.version - len(call.lines) + 1
    records = verified(call.lines, previous=call.previous, version=first)
    found = await mirror.load(call.entity)
    loaded = found if isinstance(found, Loaded) else None
    version = 0 if loaded is None else loaded.version
    if version < first - 1:
        raise CorruptionError(f"the mirror of `{call.entity}` lacks entry {version + 1}", code="engine.mirror")
    before = None
    if loaded is not None:
        before = await replay(revisions, call.entity, loaded.snapshot, (each.entry for each in loaded.records))
    for record in records:
        if record.version <= version:
            continue
        entry = record.entry
        after = await replay(revisions, call.entity, before, (entry,))
        assert after is not None
        kernel = await revisions.for_reading(after.kind, after.revision)
        states, tags = listed.active(kernel, after)
        others = listed.others(kernel, after)
        result = await mirror.append(
            Append(
                after.kind, call.entity, record.version - 1, entry, after, states, tags, before=before, others=others
            )
        )
        if isinstance(result, Conflict) and result.version < record.version:
            raise CorruptionError(
                f"the mirror of `{call.entity}` lost entry {result.version + 1}", code="engine.mirror"
            )
        before = after
