"""Temporal, its development server on a SQLite file: a workflow per order, an event is an Update.

The caller is answered once the update is in the history. The workflow runs the same table as the other peers; effects
are not run. In the workload `effects` a workflow runs ten activities. It is not comparable: a networked server, made
for other loads, in its development edition.

"by hand" is what a programmer writes who wants what Interlock does on the same server: the effect of a payment is an
activity, and the state is a search attribute. It has no sandbox either.
"""

from __future__ import annotations

import asyncio
import os
import time
from datetime import timedelta
from importlib.metadata import version
from typing import Any

from temporalio import activity, workflow
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.client import Client, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.common import SearchAttributeKey
from temporalio.service import RPCError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

with workflow.unsafe.imports_passed_through():
    from bench.durable.order import EFFECTS_EACH, Line, Place, step

ATTEMPTS = 6
KEYS_MAX = 64
POLLERS = 20
STATE = SearchAttributeKey.for_keyword("BenchState")


@workflow.defn(name="Order")
class Order:
    """One order."""

    @workflow.init
    def __init__(self, state: str) -> None:
        self.state = state
        self.answers: dict[str, str] = {}

    @workflow.run
    async def run(self, state: str) -> None:
        """Wait until the history grows too long."""
        await workflow.wait_condition(lambda: workflow.info().is_continue_as_new_suggested())
        await workflow.wait_condition(workflow.all_handlers_finished)
        workflow.continue_as_new(self.state)

    @workflow.update(name="send")
    def send(self, event: str, key: str) -> str:
        """Send an event to the order."""
        if key not in self.answers:
            self.state, _ = step(self.state, event)
            if len(self.answers) >= KEYS_MAX:
                self.answers.pop(next(iter(self.answers)))
            self.answers[key] = self.state
        return self.answers[key]


@activity.defn(name="errand")
async def errand(number: int) -> None:
    """Do nothing."""


@workflow.defn(name="Errands")
class Errands:
    """Ten activities, one after the other."""

    @workflow.run
    async def run(self) -> int:
        """Run them."""
        for number in range(EFFECTS_EACH):
            await workflow.execute_activity("errand", number, start_to_close_timeout=timedelta(seconds=60))
        return EFFECTS_EACH


@workflow.defn(name="OrderByHand")
class OrderByHand:
    """One order, with the effect of its payment, listed by its state."""

    @workflow.init
    def __init__(self, state: str, answers: dict[str, str]) -> None:
        self.state = state
        self.answers = answers
        self.waiting: list[str] = []
        self.running = 0

    @workflow.run
    async def run(self, state: str, answers: dict[str, str]) -> None:
        """Run effects, until the history grows too long."""
        while True:
            await workflow.wait_condition(lambda: bool(self.waiting) or self._is_long())
            while self.waiting:
                self.running += 1
                asyncio.create_task(self._charge(self.waiting.pop(0)))  # noqa: RUF006 - the workflow's loop keeps it
            if self._is_long() and not self.running:
                await workflow.wait_condition(workflow.all_handlers_finished)
                workflow.continue_as_new(args=[self.state, self.answers])

    def _is_long(self) -> bool:
        return workflow.info().is_continue_as_new_suggested()

    async def _charge(self, key: str) -> None:
        try:
            await workflow.execute_activity("charge_card", key, start_to_close_timeout=timedelta(seconds=60))
        finally:
            self.running -= 1

    @workflow.update(name="send")
    def send(self, event: str, key: str) -> str:
        """Send an event to the order."""
        if key not in self.answers:
            self.state, effects = step(self.state, event)
            self.waiting += [f"{key}/{name}" for name in effects]
            self.answers[key] = self.state
            workflow.upsert_search_attributes([STATE.value_set(self.state)])
        return self.answers[key]

    @send.validator
    def check(self, event: str, key: str) -> None:
        """Refuse an event that the state does not accept."""
        if key not in self.answers:
            step(self.state, event)


@activity.defn(name="charge_card")
async def charge_card(key: str) -> None:
    """Do nothing."""


class Orders:
    """A client and a worker in this process."""

    workflow_type = "Order"

    def __init__(self, place: Place) -> None:
        if place.temporal is None:
            raise RuntimeError("no Temporal server")
        self._address = place.temporal
        self._client: Any = None
        self._worker: Any = None
        self._running: asyncio.Task[None] | None = None
        self._queue = f"bench-{os.getpid()}-{time.monotonic_ns()}"
        self._handles: dict[str, Any] = {}

    async def start(self) -> None:
        """Connect, and start a worker."""
        self._client = await Client.connect(self._address)
        await self._work()
        self._running = asyncio.create_task(self._worker.run())

    async def _work(self) -> None:
        restrictions = SandboxRestrictions.default.with_passthrough_modules("bench")
        self._worker = Worker(
            self._client,
            task_queue=self._queue,
            workflows=[Order, Errands],
            activities=[errand],
            workflow_runner=SandboxedWorkflowRunner(restrictions=restrictions),
            max_cached_workflows=5_000,
            max_concurrent_workflow_tasks=200,
            max_concurrent_workflow_task_polls=POLLERS,
            nonsticky_to_sticky_poll_ratio=0.5,
        )

    async def stop(self) -> None:
        """Stop working; what was started ends with the server."""
        await self._worker.shutdown()
        assert self._running is not None
        await self._running

    async def run(self, order: str) -> int:
        """Run a workflow of ten activities."""
        found: int = await self._client.execute_workflow("Errands", id=order, task_queue=self._queue, result_type=int)
        return found

    async def create(self, order: str) -> None:
        """Create an order."""
        self._handles[order] = await self._client.start_workflow(
            self.workflow_type, args=self.arguments(), id=order, task_queue=self._queue
        )

    def arguments(self) -> list[Any]:
        """Return the arguments of the workflow of a new order."""
        return ["created"]

    async def send(self, order: str, event: str, key: str) -> str:
        """Send an event to an order; under load, repeat it as the server asks. The id makes it one event."""
        for attempt in range(ATTEMPTS):
            try:
                found: str = await self._handles[order].execute_update(
                    "send", args=[event, key], id=key.replace(":", "-"), result_type=str
                )
            except (WorkflowUpdateRPCTimeoutOrCancelledError, RPCError):
                if attempt == ATTEMPTS - 1:
                    raise
                await asyncio.sleep(0.05 * 2**attempt)
            else:
                return found
        raise AssertionError("the last attempt returns or raises")


class OrdersByHand(Orders):
    """The same with the workflow by hand, and a worker with the settings of the SDK."""

    workflow_type = "OrderByHand"

    def arguments(self) -> list[Any]:
        """Return the arguments of the workflow of a new order."""
        return ["created", {}]

    async def _work(self) -> None:
        operator = self._client.operator_service
        known = await operator.list_search_attributes(ListSearchAttributesRequest(namespace="default"))
        if STATE.name not in known.custom_attributes:
            added = {STATE.name: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD}
            await operator.add_search_attributes(
                AddSearchAttributesRequest(namespace="default", search_attributes=added)
            )
        self._worker = Worker(
            self._client,
            task_queue=self._queue,
            workflows=[OrderByHand],
            activities=[charge_card],
            workflow_runner=UnsandboxedWorkflowRunner(),
            max_cached_workflows=5_000,
        )


LINES = {
    "by-hand": Line(
        name="Temporal, a workflow by hand of the same shape", version=version("temporalio"), make=OrdersByHand
    ),
    "update": Line(
        name="Temporal development server",
        version=version("temporalio"),
        make=Orders,
        runners={"effects": Orders},
    ),
}
