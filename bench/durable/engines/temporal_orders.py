"""Temporal, its development server on a SQLite file: a workflow per order, an event is an Update.

The caller is answered once the update is in the history. The workflow runs the same table as the other peers; effects
are not run. Not like for like: it is a networked server, made for other loads, in its development edition.
"""

from __future__ import annotations

import asyncio
import os
import time
from importlib.metadata import version
from typing import Any

from temporalio import workflow
from temporalio.client import Client, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.service import RPCError
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

with workflow.unsafe.imports_passed_through():
    from bench.durable.order import Line, Place, step

ATTEMPTS = 6
KEYS_MAX = 64
POLLERS = 20


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


class Orders:
    """A client and a worker in this process."""

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
        restrictions = SandboxRestrictions.default.with_passthrough_modules("bench")
        self._worker = Worker(
            self._client,
            task_queue=self._queue,
            workflows=[Order],
            workflow_runner=SandboxedWorkflowRunner(restrictions=restrictions),
            max_cached_workflows=5_000,
            max_concurrent_workflow_tasks=200,
            max_concurrent_workflow_task_polls=POLLERS,
            nonsticky_to_sticky_poll_ratio=0.5,
        )
        self._running = asyncio.create_task(self._worker.run())

    async def stop(self) -> None:
        """Stop working; what was started ends with the server."""
        await self._worker.shutdown()
        assert self._running is not None
        await self._running

    async def create(self, order: str) -> None:
        """Create an order."""
        self._handles[order] = await self._client.start_workflow(
            "Order", args=["created"], id=order, task_queue=self._queue
        )

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


LINES = {"update": Line(name="Temporal development server", version=version("temporalio"), make=Orders)}
