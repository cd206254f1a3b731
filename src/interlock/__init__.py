"""Durable statecharts for Python: one pure function, `step(chart, snapshot, event) -> Step(snapshot', effects)`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import version as _version

    from interlock.assemble.charts import (
        BoundChart,
        answer,
        failure,
        firing,
        load,
        loads,
    )
    from interlock.assemble.runtimes import intake, open  # noqa: A004  # the name users read: interlock.open
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
    from interlock.ports.reconcile import Answer, Seen
    from interlock.ports.store import Page, Query, Row
    from interlock.render.drawing import Depiction
    from interlock.runtime.blocking import BlockingRuntime
    from interlock.runtime.history.verify import Problem, Proof
    from interlock.runtime.intake import Delivery, Intake
    from interlock.runtime.runtime import Runtime
    from interlock.runtime.shutdown import Drained
    from interlock.shm.lifecycle.asgi import DrainMiddleware, drain_workers
    from interlock.shm.lifecycle.chart import AtomicChart
    from interlock.shm.lifecycle.drain import DrainReport
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
    "Answer": "interlock.ports.reconcile",
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
    "Depiction": "interlock.render.drawing",
    "Deque": "interlock.shm.queue.deque",
    "Diagnostic": "interlock.errors",
    "Document": "interlock.model.document.document",
    "DrainMiddleware": "interlock.shm.lifecycle.asgi",
    "DrainReport": "interlock.shm.lifecycle.drain",
    "Drained": "interlock.runtime.shutdown",
    "Effect": "interlock.model.effect",
    "Entry": "interlock.model.journal.entry",
    "Event": "interlock.model.event",
    "Fault": "interlock.model.step",
    "Gate": "interlock.shm.lifecycle.gate",
    "Inbox": "interlock.shm.queue.inbox",
    "Intake": "interlock.runtime.intake",
    "InterlockError": "interlock.errors",
    "InternalError": "interlock.errors",
    "Lifecycle": "interlock.shm.lifecycle.lifecycle",
    "Message": "interlock.model.journal.message",
    "MissingExtraError": "interlock.errors",
    "NotFoundError": "interlock.errors",
    "Page": "interlock.ports.store",
    "Permit": "interlock.shm.memory.permits",
    "Phase": "interlock.shm.memory.permits",
    "Place": "interlock.errors",
    "Problem": "interlock.runtime.history.verify",
    "Proof": "interlock.runtime.history.verify",
    "Query": "interlock.ports.store",
    "Receipt": "interlock.model.journal.entry",
    "Region": "interlock.shm.memory.region",
    "RejectedError": "interlock.errors",
    "Row": "interlock.ports.store",
    "Runtime": "interlock.runtime.runtime",
    "Seen": "interlock.ports.reconcile",
    "Snapshot": "interlock.model.snapshot",
    "Step": "interlock.model.step",
    "TaskPool": "interlock.shm.pool.pool",
    "UnavailableError": "interlock.errors",
    "UsageError": "interlock.errors",
    "answer": "interlock.assemble.charts",
    "decode_event": "interlock.model.codec",
    "decode_snapshot": "interlock.model.codec",
    "drain_workers": "interlock.shm.lifecycle.asgi",
    "encode": "interlock.model.codec",
    "failure": "interlock.assemble.charts",
    "firing": "interlock.assemble.charts",
    "intake": "interlock.assemble.runtimes",
    "load": "interlock.assemble.charts",
    "loads": "interlock.assemble.charts",
    "open": "interlock.assemble.runtimes",
}

__all__ = (
    "Answer",
    "ArchivedError",
    "AtomicChart",
    "AtomicWord",
    "Attempt",
    "BlockingRuntime",
    "BoundChart",
    "Candidate",
    "Chart",
    "ConflictError",
    "CorruptionError",
    "DefinitionError",
    "Delivery",
    "DeniedError",
    "Depiction",
    "Deque",
    "Diagnostic",
    "Document",
    "DrainMiddleware",
    "DrainReport",
    "Drained",
    "Effect",
    "Entry",
    "Event",
    "Fault",
    "Gate",
    "Inbox",
    "Intake",
    "InterlockError",
    "InternalError",
    "Lifecycle",
    "Message",
    "MissingExtraError",
    "NotFoundError",
    "Page",
    "Permit",
    "Phase",
    "Place",
    "Problem",
    "Proof",
    "Query",
    "Receipt",
    "Region",
    "RejectedError",
    "Row",
    "Runtime",
    "Seen",
    "Snapshot",
    "Step",
    "TaskPool",
    "UnavailableError",
    "UsageError",
    "__version__",
    "answer",
    "build",
    "decode_event",
    "decode_snapshot",
    "drain_workers",
    "encode",
    "failure",
    "firing",
    "intake",
    "load",
    "loads",
    "open",
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
