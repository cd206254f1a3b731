"""What all entities of one worker process share: its charts, and the definitions that entities brought with them.

Rule 1: the workflows of a process run in one thread, one after the other: nothing here is locked.
Rule 2: nothing here changes what a step gives. A definition is found by the hash of its content, and steps of a history
are repeated without asking the policy, which may be another one by then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from temporalio.worker import Interceptor, WorkflowInboundInterceptor, WorkflowInterceptorClassInput

from interlock.engines.temporal.wire import Answer
from interlock.kernel.step import Kernel
from interlock.ports.clock import SystemClock
from interlock.ports.definitions import Definition, Edition, StoredDefinition
from interlock.runtime.charts.registry import ChartRegistry
from interlock.runtime.charts.revisions import KnownRevisions
from interlock.runtime.charts.upgrades import UpgradeRules
from interlock.runtime.listed_states import ListedStates
from interlock.stores.definition_table import DefinitionTable
from interlock.trust.audit import AuditRecorder

HOST = "interlock.host"
"""The name under which a workflow finds the host of its process."""


class LocalDefinitions:
    """The definitions that this process knows: those of its own charts, and those that entities carry.

    Carried ones are found by name, and are never the newest of their kind: roles come from the charts of the process.
    """

    def __init__(self) -> None:
        self._own = DefinitionTable()
        self._carried = DefinitionTable()

    async def save_definition(self, definition: Definition, *, now_ms: int) -> Edition:
        """Save the definition of a chart of this process."""
        return self._own.save(definition, now_ms=now_ms)

    async def read_definitions(self, kind: str, name: str) -> tuple[StoredDefinition, ...]:
        """Return the revisions that a name means."""
        return self._own.read(kind, name) or self._carried.read(kind, name)

    async def list_definitions(self, kind: str | None = None) -> tuple[Edition, ...]:
        """Return the editions of the charts of this process."""
        return self._own.list_editions(kind)

    def carry(self, definition: Definition) -> None:
        """Remember the definition that an entity carries."""
        if not self._carried.read(definition.kind, definition.revision):
            self._carried.save(definition, now_ms=0)


class Host:
    """The charts of a worker process. `on_answer` is called with the id of each Update and its answer, in a replay."""

    def __init__(self, kernels: tuple[Kernel, ...], *, on_answer: Callable[[str, Answer], None] | None = None) -> None:
        self.on_answer = on_answer
        self.charts = ChartRegistry(kernels)
        self.clock = SystemClock()
        self.definitions = LocalDefinitions()
        self.known = KnownRevisions.none()
        self.listed = ListedStates()
        self.audit = AuditRecorder(None, self.clock)
        self.rules = UpgradeRules(ChartRegistry(()), "pinned")


class Hosting(Interceptor):
    """Gives workflows the host of their process."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def workflow_interceptor_class(
        self, input: WorkflowInterceptorClassInput
    ) -> type[WorkflowInboundInterceptor] | None:
        """Register the function by which a workflow asks for it."""
        functions: Any = input.unsafe_extern_functions
        functions[HOST] = lambda: self._host
        return None
