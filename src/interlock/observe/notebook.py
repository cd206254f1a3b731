"""What a notebook displays of an entity or a kind, read from a runtime.

Rule: the cost does not depend on how many entities there are (see `population`).
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, overload

from interlock.errors import NotFoundError, UsageError
from interlock.observe.population import population
from interlock.render.notebook import EntityView, KindView
from interlock.runtime.blocking import BlockingRuntime
from interlock.runtime.runtime import Runtime

ENTRIES_MAX = 200
"""Entries shown of one entity: as many as a person reads."""


@overload
def show(runtime: BlockingRuntime, name: str, *, entries: int = 10) -> EntityView | KindView: ...
@overload
def show(runtime: Runtime, name: str, *, entries: int = 10) -> Coroutine[Any, Any, EntityView | KindView]: ...
def show(
    runtime: Runtime | BlockingRuntime, name: str, *, entries: int = 10
) -> EntityView | KindView | Coroutine[Any, Any, EntityView | KindView]:
    """Return an entity (`kind/id`) with its last entries, or the population of a kind, as notebooks display it.

    The views have `text` for a terminal and an HTML form for Jupyter. Await the result when the runtime is a `Runtime`.

    Raises:
        NotFoundError: there is no such entity, or no chart of this kind is loaded.
        UsageError: `entries` is not a number from 0 to 200.
    """
    if isinstance(runtime, BlockingRuntime):
        return runtime.run(_view(runtime.runtime, name, entries))
    return _view(runtime, name, entries)


async def _view(runtime: Runtime, name: str, entries: int) -> EntityView | KindView:
    if type(entries) is not int or not 0 <= entries <= ENTRIES_MAX:
        message = f"entries must be a number from 0 to {ENTRIES_MAX}, got {entries!r:.40}"
        raise UsageError(message, code="show.entries")
    return await (_entity(runtime, name, entries) if "/" in name else _kind(runtime, name))


async def _entity(runtime: Runtime, entity: str, entries: int) -> EntityView:
    snapshot = await runtime.state(entity)
    after = max(0, snapshot.version - entries)
    try:
        last = await runtime.journal(entity, after=after, limit=entries) if entries else ()
    except NotFoundError:  # the journal is in an archive
        last = ()
    chart = await runtime.revisions.chart(snapshot.kind, snapshot.revision)
    return EntityView(chart=chart, snapshot=snapshot, entries=last)


async def _kind(runtime: Runtime, kind: str) -> KindView:
    found = await population(runtime, kind)
    states = tuple((each.id, each.entities) for each in found.states)
    chart = (await runtime.revisions.newest(kind)).chart
    return KindView(chart=chart, entities=found.entities or 0, states=states, more=not found.is_complete)
