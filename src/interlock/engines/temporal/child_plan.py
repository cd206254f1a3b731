"""Which chart a child starts on, and its creation: decided once, by an activity, with the charts of a worker."""

from __future__ import annotations

from interlock.engines.temporal.delivery import carried_definition
from interlock.engines.temporal.functions import function_hashes
from interlock.engines.temporal.host import Host
from interlock.engines.temporal.wire import ChildCall, ChildPlan, error_facts
from interlock.errors import InterlockError
from interlock.model.encoding.codec import to_builtins
from interlock.model.entity_id import kind_of
from interlock.model.event import Event
from interlock.model.journal.entry import CREATE
from interlock.ports.clock import SystemClock
from interlock.ports.store import Store
from interlock.runtime.charts.registry import child_context, child_entity
from interlock.runtime.charts.revisions import Revisions


class ChildPlanner:
    """Plans the children of the entities of a worker."""

    def __init__(self, host: Host, store: Store) -> None:
        self._revisions = Revisions(host.charts, store, SystemClock())
        self._listed = host.listed

    async def plan(self, call: ChildCall) -> ChildPlan:
        """Return the creation of a child, or the error by which its chart refuses it."""
        try:
            return await self._plan(call)
        except InterlockError as error:
            return ChildPlan(error=error_facts(error))

    async def _plan(self, call: ChildCall) -> ChildPlan:
        revisions, invoke = self._revisions, call.parent
        parent = await revisions.for_reading(kind_of(invoke.entity), call.revision)
        kernel = await revisions.register(revisions.for_child(parent, call.payload["src"]))
        chart, time_ms = kernel.chart, call.time_ms
        entity = child_entity(chart.kind, invoke.invokeid, invoke.key, restarts=call.restarts)
        context = child_context(kernel, call.payload.get("input"))
        step = kernel.start(context, entity=entity, time_ms=time_ms, parent=invoke)
        states, tags = self._listed.active(kernel, step.snapshot)
        return ChildPlan(
            entity,
            chart.revision,
            carried_definition(await revisions.definition(chart.kind, chart.revision)),
            Event(CREATE, {"context": context, "parent": to_builtins(invoke)}, time_ms=time_ms, type="platform"),
            states,
            tags,
            function_hashes(kernel),
        )
