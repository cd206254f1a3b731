"""The children of an entity: which entities its invokes began, and where they are.

Rule: an id can be guessed, so an entity counts as a child only if it says itself who its parent is.
"""

from __future__ import annotations

from interlock.errors import NotFoundError, UnavailableError
from interlock.kernel.step import Kernel
from interlock.model.snapshot import Invocation, Snapshot
from interlock.runtime.chart_registry import child_entity
from interlock.web.api.views import ChildView
from interlock.web.http.endpoint import RequestContext

CHILDREN_MAX = 20
"""Children that a page looks up: each is one read, and an entity may have a few hundred."""


async def children(asked: RequestContext, kernel: Kernel, shown: Snapshot) -> tuple[ChildView, ...]:
    """The first children of an entity that one may see. One that was begun anew has another id, and is left out."""
    console, found = asked.console, []
    for each in [each for each in shown.invokes if each.child][:CHILDREN_MAX]:
        entity = _entity(asked, kernel, each)
        if entity is None or not console.may_see(asked.person, entity.partition("/")[0]):
            continue
        try:
            child = await console.runtime.state(entity)
        except (NotFoundError, UnavailableError):  # not begun yet, or by a chart that is not here
            continue
        if child.parent is not None and (child.parent.entity, child.parent.key) == (shown.entity, each.key):
            found.append(ChildView(entity, each.id, child.configuration, child.ended))
    return tuple(found)


def _entity(asked: RequestContext, kernel: Kernel, invoke: Invocation) -> str | None:
    """The id of the child that an invoke begins; None when only the entry that began it knows which chart it has."""
    state = next(each for each in kernel.chart.states if each.id == invoke.state)
    src = state.invokes[invoke.position].src
    if not isinstance(src, str):
        return None
    try:
        kind = asked.console.runtime.charts.for_child(kernel, src).chart.kind
    except NotFoundError:
        return None
    return child_entity(kind, invoke.id, invoke.key)
