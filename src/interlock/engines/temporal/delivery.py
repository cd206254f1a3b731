"""Delivery from inside a workflow: to its own entity by a call, to others by an activity, and the children it starts.

Rule 1: a child is started by the workflow of its parent, as a child workflow that continues when the parent ends. The
store of the parent knows which children it has started.
Rule 2: which chart a child starts on is decided by an activity: a history must not depend on the charts of a later
worker. How deep invokes are nested is known at the start, because a workflow cannot read its ancestors.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from datetime import timedelta
from typing import Any, Protocol

import msgspec
from temporalio import workflow
from temporalio.common import RetryPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from interlock.effects.outbox import Received
from interlock.engines.temporal.entity_store import EntityStore
from interlock.engines.temporal.search import attributes
from interlock.engines.temporal.wire import (
    CHILD,
    DELIVER,
    EXAMINE,
    TASK_MAX,
    WORKFLOW,
    CarriedDefinition,
    ChildCall,
    ChildPlan,
    Delivered,
    Delivery,
    EntityView,
    Settings,
    Start,
    StartedChild,
    raised,
)
from interlock.errors import RejectedError
from interlock.model.entity_id import kind_of
from interlock.model.event import Event
from interlock.model.journal.attempts import PastAttempt
from interlock.model.journal.cause import NO_CAUSES, Cause
from interlock.model.journal.entry import Receipt
from interlock.model.journal.work import EPOCH, WorkId
from interlock.model.snapshot import Parent
from interlock.ports.definitions import Definition
from interlock.ports.delivery import Child, TimersFired
from interlock.runtime.charts.registry import check_child_depth
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
        self,
        entity: str,
        event: Event,
        *,
        key: str,
        finishes: WorkId | None = None,
        fence: int | None = None,
        cause: Cause | None = None,
        attempts: tuple[PastAttempt, ...] = (),
    ) -> Receipt:
        """Send an event of the runtime to this entity, or to another one, whose workflow does not get the cause."""
        if entity == self._own.entity:
            return await self._local.deliver(
                entity, event, key=key, finishes=finishes, fence=fence, cause=cause, attempts=attempts
            )
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

    async def opened(self, value: Any) -> Any:
        """Return the input as it is: charts with personal data do not run on an engine."""
        return value

    def fire_timers(
        self, entity: str, *, causes: Mapping[WorkId, Cause] = NO_CAUSES
    ) -> Coroutine[Any, Any, TimersFired]:
        """Fire every timer that is due."""
        return self._local.fire_timers(entity, causes=causes)

    # Children

    async def start_child(self, parent: str, work_id: WorkId, payload: Any, *, restarts: int) -> Child:
        """Return the child of an invoke, started if it does not run yet."""
        own = self._own
        check_child_depth(own.start.depth + 1)
        invoke = _invoke(parent, work_id, payload)
        seed = _seed(invoke, restarts)
        if seed not in own.store.children:
            own.store.children[seed] = await self._start(seed, invoke, payload, restarts)
        child, timeout_ms = own.store.children[seed], payload.get("timeout_ms")
        is_late = timeout_ms is not None and child.created_ms + timeout_ms <= own.clock.now_ms()
        return Child(child.entity, child.created_ms, is_late and await self._has_ended(child.entity))

    async def find_child(self, parent: str, work_id: WorkId, payload: Any, *, restarts: int) -> Child | None:
        """Return the child that an invoke started; None when it was not started yet."""
        found = self._own.store.children.get(_seed(_invoke(parent, work_id, payload), restarts))
        return None if found is None else Child(found.entity, found.created_ms, ended=False)

    async def _start(self, seed: str, invoke: Parent, payload: Any, restarts: int) -> StartedChild:
        """Start the workflow of a child.

        Raises what its chart says to the input, and RejectedError when another entity has its id.
        """
        own, now_ms = self._own, self._own.clock.now_ms()
        plan: ChildPlan = await workflow.execute_activity(
            CHILD,
            ChildCall(invoke, own.store.snapshot.revision, payload, restarts, now_ms),
            result_type=ChildPlan,
            start_to_close_timeout=_DELIVERY_MAX,
            retry_policy=_RETRIES,
        )
        if plan.error is not None:
            raise raised(plan.error)
        entity, depth = plan.entity, own.start.depth + 1
        kind = kind_of(entity)
        start = Start(
            entity,
            plan.revision,
            plan.definition,
            own.settings,
            plan.event,
            "_child",
            depth=depth,
            functions=plan.functions,
        )
        try:
            await workflow.start_child_workflow(
                WORKFLOW,
                start,
                id=entity,
                task_queue=f"{own.settings.queue}-{kind.partition('.')[0]}",
                task_timeout=TASK_MAX,
                parent_close_policy=workflow.ParentClosePolicy.ABANDON,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                search_attributes=attributes(kind, plan.revision, plan.states, plan.tags, lists=own.settings.lists),
            )
        except WorkflowAlreadyStartedError as error:  # by an earlier history that was ended before it knew
            found = await self._examine(entity)
            if found is None or found.snapshot.parent != invoke:
                message = f"`{entity}` already exists and is not a child of this invoke"
                raise RejectedError(message, code="child.taken") from error
            now_ms = found.created_ms
        return StartedChild(seed, entity, now_ms)

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

    @staticmethod
    def parent_of(data: Any) -> Parent | None:
        """Return the parent in the data of a creation."""
        found = data.get("parent")
        return None if found is None else msgspec.convert(found, Parent)


def _invoke(parent: str, work_id: WorkId, payload: Any) -> Parent:
    return Parent(parent, payload["id"], work_id.key(parent, epoch=payload.get(EPOCH, 0)))


def _seed(invoke: Parent, restarts: int) -> str:
    return f"{invoke.key}~{restarts}"


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
