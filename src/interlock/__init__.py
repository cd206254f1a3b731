"""Durable statecharts for Python: one pure function, `step(chart, snapshot, event) -> Step(snapshot', effects)`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import version as _version

    from interlock.assemble.charts import (
        BoundChart,
        done_event,
        failed_event,
        load,
        loads,
        timer_event,
    )
    from interlock.assemble.runtimes import consume, open  # noqa: A004  # the name users read: interlock.open
    from interlock.definition.builder import namespace as build
    from interlock.effects.handlers import Attempt
    from interlock.errors import (
        ArchivedError,
        ConflictError,
        CorruptionError,
        DefinitionError,
        DeniedError,
        Diagnostic,
        InterlockError,
        InternalError,
        MissingExtraError,
        NotFoundError,
        Place,
        RejectedError,
        UnavailableError,
        UsageError,
    )
    from interlock.kernel.explain import Candidate
    from interlock.model.chart import Chart
    from interlock.model.codec import decode_event, decode_snapshot, encode
    from interlock.model.document.document import Document
    from interlock.model.effect import Effect
    from interlock.model.event import Event
    from interlock.model.journal.entry import Entry, Receipt
    from interlock.model.journal.message import Message
    from interlock.model.snapshot import Snapshot
    from interlock.model.step import Fault, Step
    from interlock.observe.notebook import show
    from interlock.ports.reconcile import ReconcileRequest, ReconcileResult
    from interlock.ports.store import EntityPage, EntityQuery, EntityRow
    from interlock.render.drawing import Drawing
    from interlock.runtime.blocking import BlockingRuntime
    from interlock.runtime.history.verify import Verification, VerificationProblem
    from interlock.runtime.intake import Consumer, Delivery
    from interlock.runtime.runtime import Runtime
    from interlock.runtime.shutdown import DrainReport
    from interlock.shm.lifecycle.asgi import DrainMiddleware, drain_workers
    from interlock.shm.lifecycle.chart import AtomicChart
    from interlock.shm.lifecycle.drain import CloseReport
    from interlock.shm.lifecycle.gate import Gate
    from interlock.shm.lifecycle.lifecycle import Lifecycle
    from interlock.shm.memory.permits import Permit, Phase
    from interlock.shm.memory.region import Region
    from interlock.shm.memory.words import AtomicWord
    from interlock.shm.pool.pool import TaskPool
    from interlock.shm.queue.deque import Deque
    from interlock.shm.queue.inbox import Inbox

    __version__: str = _version("interlock")

_HOMES = {
    "ReconcileResult": "interlock.ports.reconcile",
    "ArchivedError": "interlock.errors",
    "AtomicChart": "interlock.shm.lifecycle.chart",
    "AtomicWord": "interlock.shm.memory.words",
    "Attempt": "interlock.effects.handlers",
    "BlockingRuntime": "interlock.runtime.blocking",
    "BoundChart": "interlock.assemble.charts",
    "Candidate": "interlock.kernel.explain",
    "Chart": "interlock.model.chart",
    "ConflictError": "interlock.errors",
    "CorruptionError": "interlock.errors",
    "DefinitionError": "interlock.errors",
    "Delivery": "interlock.runtime.intake",
    "DeniedError": "interlock.errors",
    "Drawing": "interlock.render.drawing",
    "Deque": "interlock.shm.queue.deque",
    "Diagnostic": "interlock.errors",
    "Document": "interlock.model.document.document",
    "DrainMiddleware": "interlock.shm.lifecycle.asgi",
    "CloseReport": "interlock.shm.lifecycle.drain",
    "DrainReport": "interlock.runtime.shutdown",
    "Effect": "interlock.model.effect",
    "Entry": "interlock.model.journal.entry",
    "Event": "interlock.model.event",
    "Fault": "interlock.model.step",
    "Gate": "interlock.shm.lifecycle.gate",
    "Inbox": "interlock.shm.queue.inbox",
    "Consumer": "interlock.runtime.intake",
    "InterlockError": "interlock.errors",
    "InternalError": "interlock.errors",
    "Lifecycle": "interlock.shm.lifecycle.lifecycle",
    "Message": "interlock.model.journal.message",
    "MissingExtraError": "interlock.errors",
    "NotFoundError": "interlock.errors",
    "EntityPage": "interlock.ports.store",
    "Permit": "interlock.shm.memory.permits",
    "Phase": "interlock.shm.memory.permits",
    "Place": "interlock.errors",
    "VerificationProblem": "interlock.runtime.history.verify",
    "Verification": "interlock.runtime.history.verify",
    "EntityQuery": "interlock.ports.store",
    "Receipt": "interlock.model.journal.entry",
    "Region": "interlock.shm.memory.region",
    "RejectedError": "interlock.errors",
    "EntityRow": "interlock.ports.store",
    "Runtime": "interlock.runtime.runtime",
    "ReconcileRequest": "interlock.ports.reconcile",
    "Snapshot": "interlock.model.snapshot",
    "Step": "interlock.model.step",
    "TaskPool": "interlock.shm.pool.pool",
    "UnavailableError": "interlock.errors",
    "UsageError": "interlock.errors",
    "done_event": "interlock.assemble.charts",
    "decode_event": "interlock.model.codec",
    "decode_snapshot": "interlock.model.codec",
    "drain_workers": "interlock.shm.lifecycle.asgi",
    "encode": "interlock.model.codec",
    "failed_event": "interlock.assemble.charts",
    "timer_event": "interlock.assemble.charts",
    "consume": "interlock.assemble.runtimes",
    "load": "interlock.assemble.charts",
    "loads": "interlock.assemble.charts",
    "open": "interlock.assemble.runtimes",
    "show": "interlock.observe.notebook",
}

__all__ = (
    "ArchivedError",
    "AtomicChart",
    "AtomicWord",
    "Attempt",
    "BlockingRuntime",
    "BoundChart",
    "Candidate",
    "Chart",
    "CloseReport",
    "ConflictError",
    "Consumer",
    "CorruptionError",
    "DefinitionError",
    "Delivery",
    "DeniedError",
    "Deque",
    "Diagnostic",
    "Document",
    "DrainMiddleware",
    "DrainReport",
    "Drawing",
    "Effect",
    "EntityPage",
    "EntityQuery",
    "EntityRow",
    "Entry",
    "Event",
    "Fault",
    "Gate",
    "Inbox",
    "InterlockError",
    "InternalError",
    "Lifecycle",
    "Message",
    "MissingExtraError",
    "NotFoundError",
    "Permit",
    "Phase",
    "Place",
    "Receipt",
    "ReconcileRequest",
    "ReconcileResult",
    "Region",
    "RejectedError",
    "Runtime",
    "Snapshot",
    "Step",
    "TaskPool",
    "UnavailableError",
    "UsageError",
    "Verification",
    "VerificationProblem",
    "__version__",
    "build",
    "consume",
    "decode_event",
    "decode_snapshot",
    "done_event",
    "drain_workers",
    "encode",
    "failed_event",
    "load",
    "loads",
    "open",
    "show",
    "timer_event",
)


def __getattr__(name: str) -> Any:
    # Names are imported when first used, so that `import interlock` stays quick.
    from importlib import import_module

    if name == "__version__":
        value: Any = import_module("importlib.metadata").version("interlock")
    elif name == "build":
        value = import_module("interlock.definition.builder.namespace")
    elif name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'interlock' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
