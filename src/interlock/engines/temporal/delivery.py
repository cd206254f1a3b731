"""Delivery from inside a workflow: to its own entity by a call, to others by an activity, and the children it starts.

Rule 1: a child is started by the workflow of its parent, as a child workflow that goes on when the parent ends. The
store of the parent knows which children it has started.
Rule 2: how deep invokes are nested is known at the start: a workflow cannot read its ancestors.
"""

from __future__ import annotations

from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, Protocol

import msgspec
from temporalio import workflow
from temporalio.common import RetryPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from interlock.effects.outbox import Received
from interlock.engines.temporal.entity_store import EntityStore
from interlock.engines.temporal.functions import function_hashes
from interlock.engines.temporal.search import attributes
from interlock.engines.temporal.wire import (
    DELIVER,
    EXAMINE,
    TASK_MAX,
    WORKFLOW,
    CarriedDefinition,
    Delivered,
    Delivery,
    EntityView,
    Settings,
    Start,
)
from interlock.errors import RejectedError
from interlock.kernel.step import Kernel
from interlock.model.codec import to_builtins
from interlock.model.event import Event
from interlock.model.journal.entry import CREATE, Receipt
from interlock.model.journal.work import EPOCH, WorkId
from interlock.model.snapshot import Parent
from interlock.ports.definitions import Definition
from interlock.ports.delivery import Child, TimersFired
from interlock.runtime.chart_registry import check_child_depth, child_context, child_entity
from interlock.runtime.request_checks import unknown_entity
from interlock.runtime.worker.delivery import DeliveryHost, EntityDelivery

_RETRIES = RetryPolicy(initial_interval=timedelta(milliseconds=200), maximum_interval=timedelta(seconds=30))
_DELIVERY_MAX = timedelta(seconds=60)
"""The longest time of one try to deliver an event: the activity waits for a worker of the receiver."""


class Owner(DeliveryHost, Protocol):
    """The entity of a workflow, as its deliveries use it. `is_dirty`: there may be work to start."""

    entity: str
    start: Start
    settings: Settings
    store: EntityStore
    is_dirty: bool


class WorkflowDelivery:
    """Delivers what the work of one entity results in."""

    def __init__(self, own: Owner) -> None:
        self._own = own
        self._local = EntityDelivery(own)

    async def has_chart(self, entity: str) -> bool:
        """Return True: without its chart the workflow of the entity would not run here."""
        return bool(entity)

    async def deliver(
        self, entity: str, event: Event, *, key: str, finishes: WorkId | None = None, fence: int | None = None
    ) -> Receipt:
        """Send an event of the runtime to this entity, or to another one."""
        if entity == self._own.entity:
            return await self._local.deliver(entity, event, key=key, finishes=finishes, fence=fence)
        received = await self.hand_over(self._own.entity, key, entity, event)
        return Receipt(entity, "denied" if received == "denied" else "applied", 0)

    async def hand_over(self, sender: str, key: str, target: str, event: Event) -> Received:
        """Send an event to the workflow of another entity. Raises NotFoundError when there is no such entity."""
        sent: Delivered = await workflow.execute_activity(
            DELIVER,
            Delivery(sender, key, target, event),
            result_type=Delivered,
            start_to_close_timeout=_DELIVERY_MAX,
            retry_policy=_RETRIES,
            summary=f"{event.name} to {target}"[:400],
        )
        if sent.outcome == "unknown":
            raise unknown_entity(target)
        return sent.outcome

    def fire_timers(self, entity: str) -> Coroutine[Any, Any, TimersFired]:
        """Fire every timer that is due."""
        return self._local.fire_timers(entity)

    # Children

    async def start_child(self, parent: str, work_id: WorkId, payload: Any, *, restarts: int) -> Child:
        """Return the child of an invoke, started if it does not run yet."""
        own = self._own
        check_child_depth(own.start.depth + 1)
        kernel = await own.revisions.register(await self._child_kernel(payload))
        entity, invoke = self._child_of(kernel, parent, work_id, payload, restarts)
        if entity not in own.store.children:
            own.store.children[entity] = await self._start(kernel, entity, invoke, payload)
            own.is_dirty = True
        created_ms, timeout_ms = own.store.children[entity], payload.get("timeout_ms")
        is_late = timeout_ms is not None and created_ms + timeout_ms <= own.clock.now_ms()
        return Child(entity, created_ms, is_late and await self._has_ended(entity))

    async def find_child(self, parent: str, work_id: WorkId, payload: Any, *, restarts: int) -> Child | None:
        """Return the child that an invoke started; None when it was not started yet."""
        kernel = await self._child_kernel(payload)
        entity, _ = self._child_of(kernel, parent, work_id, payload, restarts)
        created_ms = self._own.store.children.get(entity)
        return None if created_ms is None else Child(entity, created_ms, ended=False)

    async def _start(self, kernel: Kernel, entity: str, invoke: Parent, payload: Any) -> int:
        """Start the workflow of a child; return when the child was created.

        Raises RejectedError when its chart refuses the input, or another entity has its id.
        """
        own, chart, now_ms = self._own, kernel.chart, self._own.clock.now_ms()
        context = child_context(kernel, payload.get("input"))
        step = kernel.start(context, entity=entity, time_ms=now_ms, parent=invoke)
        event = Event(CREATE, {"context": context, "parent": to_builtins(invoke)}, time_ms=now_ms, type="platform")
        states, tags = own.entities.process.listed.active(kernel, step.snapshot)
        start = Start(
            entity,
            chart.revision,
            carried_definition(await own.revisions.definition(chart.kind, chart.revision)),
            own.settings,
            event,
            "_child",
            depth=own.start.depth + 1,
            functions=function_hashes(kernel),
        )
        queue = f"{own.settings.queue}-{chart.kind.partition('.')[0]}"
        try:
            await workflow.start_child_workflow(
                WORKFLOW,
                start,
                id=entity,
                task_queue=queue,
                task_timeout=TASK_MAX,
                parent_close_policy=workflow.ParentClosePolicy.ABANDON,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                search_attributes=attributes(chart.kind, chart.revision, states, tags, lists=own.settings.lists),
            )
        except WorkflowAlreadyStartedError as error:  # by an earlier history, which could not carry that over
            found = await self._examine(entity)
            if found is None or found.snapshot.parent != invoke:
                message = f"`{entity}` already exists and is not a child of this invoke"
                raise RejectedError(message, code="child.taken") from error
            return found.created_ms
        return now_ms

    async def _has_ended(self, entity: str) -> bool:
        found = await self._examine(entity)
        return found is not None and found.snapshot.ended is not None

    async def _examine(self, entity: str) -> EntityView | None:
        found: EntityView | None = await workflow.execute_activity(
            EXAMINE,
            entity,
            result_type=EntityView | None,  # type: ignore[arg-type]  # msgspec decodes unions
            start_to_close_timeout=_DELIVERY_MAX,
            retry_policy=_RETRIES,
        )
        return found

    async def _child_kernel(self, payload: Any) -> Kernel:
        own, snapshot = self._own, self._own.store.snapshot
        return own.revisions.for_child(
            await own.revisions.for_reading(snapshot.kind, snapshot.revision), payload["src"]
        )

    @staticmethod
    def _child_of(
        kernel: Kernel, parent: str, work_id: WorkId, payload: Any, restarts: int
    ) -> tuple[str, Parent]:
        key = work_id.key(parent, epoch=payload.get(EPOCH, 0))
        entity = child_entity(kernel.chart.kind, payload["id"], key, restarts=restarts)
        return entity, Parent(parent, payload["id"], key)

    @staticmethod
    def parent_of(data: Any) -> Parent | None:
        """Return the parent in the data of a creation."""
        found = data.get("parent")
        return None if found is None else msgspec.convert(found, Parent)


def carried_definition(definition: Definition | None) -> CarriedDefinition | None:
    """Return a definition as an entity carries it."""
    if definition is None:
        return None
    return CarriedDefinition(
        definition.kind,
        definition.revision,
        definition.body.decode(),
        definition.label,
        definition.names,
        definition.written_name or None,
    )


def definition_of(carried: CarriedDefinition) -> Definition:
    """Return a definition that an entity carries."""
    return Definition(
        kind=carried.kind,
        revision=carried.revision,
        body=carried.body.encode(),
        label=carried.label,
        names=carried.names,
        written_name=carried.written_name or "",
    )
