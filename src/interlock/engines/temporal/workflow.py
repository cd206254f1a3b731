"""The workflow: one type for every chart. It receives Updates, answers queries, and continues in a new history in time.

Rule 1: an Update that changes nothing is refused by its validator: the history does not grow.
Rule 2: a new history starts after `continue_after` Updates or when the server suggests it, once no work is running. An
entity that always has running work continues before the server's limits end it; its work runs again under its key.
Rule 3: everything that distinguishes a repeated Update from a new one is carried over: Temporal forgets Update ids.
"""

from __future__ import annotations

from typing import cast

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from interlock.engines.temporal.entity import WorkflowEntity, plain_event
from interlock.engines.temporal.host import HOST, Host
from interlock.engines.temporal.wire import (
    DEFINITION,
    LOOK,
    READ,
    RECEIVE,
    REFUSED,
    SEND,
    WORKFLOW,
    Answer,
    Call,
    CarriedDefinition,
    Delivered,
    Delivery,
    EntityView,
    Page,
    Start,
)
from interlock.model.limits import ENGINE_HISTORY_MAX


@workflow.defn(name=WORKFLOW)
class InterlockWorkflow:
    """An entity."""

    @workflow.init
    def __init__(self, start: Start) -> None:
        host = cast("Host", workflow.extern_functions()[HOST]())
        self._on_answer = host.on_answer
        self._entity = WorkflowEntity(host, start)
        self._start = start
        self._updates = 0

    @workflow.run
    async def run(self, start: Start) -> EntityView:
        """Run until the entity has ended, and return it as it is then."""
        del start  # __init__ has it
        entity = self._entity
        while True:
            if entity.is_dirty:
                entity.run_due_work()
            if entity.has_ended:
                break
            if self._must_continue():
                await workflow.wait_condition(workflow.all_handlers_finished)
                entity.stop()
                workflow.continue_as_new(self._next())
            await workflow.wait_condition(lambda: entity.is_dirty or self._must_continue())
        await workflow.wait_condition(workflow.all_handlers_finished)
        return entity.store.view(None)

    def _must_continue(self) -> bool:
        entity, after = self._entity, self._start.settings.continue_after
        if self._updates < after and not workflow.info().is_continue_as_new_suggested():
            return False
        if entity.is_idle and not entity.is_dirty:
            return True
        is_long = workflow.info().get_current_history_length() >= ENGINE_HISTORY_MAX
        return is_long or self._updates * 10 >= after * 18

    def _next(self) -> Start:
        start = self._start
        return Start(
            start.entity,
            start.revision,
            start.definition,
            start.settings,
            depth=start.depth,
            carried=self._entity.carried(),
            functions=start.functions,
        )

    @workflow.update(name=SEND)
    async def send(self, call: Call) -> Answer:
        """Step the entity by an event."""
        self._updates += 1
        answer = self._entity.send(call)
        if self._on_answer is not None:
            info = workflow.current_update_info()
            assert info is not None
            self._on_answer(info.id, answer)
        return answer

    @send.validator
    def validate(self, call: Call) -> None:
        """Refuse an event that changes nothing."""
        refusal = self._entity.validate(call)
        if refusal is not None:
            raise ApplicationError("the event changes nothing", refusal, type=REFUSED)

    @workflow.update(name=RECEIVE)
    async def receive(self, delivery: Delivery) -> Delivered:
        """Receive an event of another entity."""
        self._updates += 1
        entity, event, key = self._entity, delivery.event, delivery.key
        if plain_event(event):
            receipt = await entity.delivery.deliver(entity.entity, event, key=key)
            return Delivered("denied" if receipt.outcome == "denied" else "done")
        sent = key.removeprefix("_sent/")
        return Delivered(await entity.relay.receive(delivery.sender, sent, entity.entity, event))

    @workflow.query(name=LOOK)
    def look(self, key: str | None) -> EntityView:
        """Return the entity."""
        return self._entity.store.view(key)

    @workflow.query(name=READ)
    def read(self, after: int, limit: int) -> Page:
        """Return entries."""
        return self._entity.store.page(after, limit)

    @workflow.query(name=DEFINITION)
    def definition(self) -> CarriedDefinition | None:
        """Return the definition that the entity runs on."""
        return self._start.definition
