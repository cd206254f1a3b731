"""Durable statecharts for Python: one pure function, `step(chart, snapshot, event) -> Step(snapshot', effects)`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import version as _version

    from interlock.assemble import (
        BoundChart,
        answer,
        failure,
        firing,
        load,
        loads,
    )
    from interlock.definition import builder as build
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
    from interlock.model.document import Document
    from interlock.model.effect import Effect
    from interlock.model.entry import Entry, Receipt
    from interlock.model.event import Event
    from interlock.model.message import Message
    from interlock.model.snapshot import Snapshot
    from interlock.model.step import Fault, Step
    from interlock.opening import intake, open  # noqa: A004  # the name users read: interlock.open
    from interlock.ports.reconcile import Answer, Seen
    from interlock.ports.store import Page, Query, Row
    from interlock.render.depiction import Depiction
    from interlock.runtime.blocking import BlockingRuntime
    from interlock.runtime.intake import Delivery, Intake
    from interlock.runtime.send import Runtime
    from interlock.runtime.serving import Drained
    from interlock.runtime.verify import Problem, Proof
    from interlock.shm.atomic_chart import AtomicChart
    from interlock.shm.deque import Deque
    from interlock.shm.door import Permit, Phase
    from interlock.shm.drain import DrainMiddleware, drain_workers
    from interlock.shm.draining import DrainReport
    from interlock.shm.gate import Gate
    from interlock.shm.inbox import Inbox
    from interlock.shm.lifecycle import Lifecycle
    from interlock.shm.pool import TaskPool
    from interlock.shm.region import Region
    from interlock.shm.word import AtomicWord

    __version__: str = _version("interlock")

_HOMES = {
    "Answer": "interlock.ports.reconcile",
    "ArchivedError": "interlock.errors",
    "AtomicChart": "interlock.shm.atomic_chart",
    "AtomicWord": "interlock.shm.word",
    "Attempt": "interlock.effects.handlers",
    "BlockingRuntime": "interlock.runtime.blocking",
    "BoundChart": "interlock.assemble",
    "Candidate": "interlock.kernel.explain",
    "Chart": "interlock.model.chart",
    "ConflictError": "interlock.errors",
    "CorruptionError": "interlock.errors",
    "DefinitionError": "interlock.errors",
    "Delivery": "interlock.runtime.intake",
    "DeniedError": "interlock.errors",
    "Depiction": "interlock.render.depiction",
    "Deque": "interlock.shm.deque",
    "Diagnostic": "interlock.errors",
    "Document": "interlock.model.document",
    "DrainMiddleware": "interlock.shm.drain",
    "DrainReport": "interlock.shm.draining",
    "Drained": "interlock.runtime.serving",
    "Effect": "interlock.model.effect",
    "Entry": "interlock.model.entry",
    "Event": "interlock.model.event",
    "Fault": "interlock.model.step",
    "Gate": "interlock.shm.gate",
    "Inbox": "interlock.shm.inbox",
    "Intake": "interlock.runtime.intake",
    "InterlockError": "interlock.errors",
    "InternalError": "interlock.errors",
    "Lifecycle": "interlock.shm.lifecycle",
    "Message": "interlock.model.message",
    "MissingExtraError": "interlock.errors",
    "NotFoundError": "interlock.errors",
    "Page": "interlock.ports.store",
    "Permit": "interlock.shm.door",
    "Phase": "interlock.shm.door",
    "Place": "interlock.errors",
    "Problem": "interlock.runtime.verify",
    "Proof": "interlock.runtime.verify",
    "Query": "interlock.ports.store",
    "Receipt": "interlock.model.entry",
    "Region": "interlock.shm.region",
    "RejectedError": "interlock.errors",
    "Row": "interlock.ports.store",
    "Runtime": "interlock.runtime.send",
    "Seen": "interlock.ports.reconcile",
    "Snapshot": "interlock.model.snapshot",
    "Step": "interlock.model.step",
    "TaskPool": "interlock.shm.pool",
    "UnavailableError": "interlock.errors",
    "UsageError": "interlock.errors",
    "answer": "interlock.assemble",
    "decode_event": "interlock.model.codec",
    "decode_snapshot": "interlock.model.codec",
    "drain_workers": "interlock.shm.drain",
    "encode": "interlock.model.codec",
    "failure": "interlock.assemble",
    "firing": "interlock.assemble",
    "intake": "interlock.opening",
    "load": "interlock.assemble",
    "loads": "interlock.assemble",
    "open": "interlock.opening",
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
        value = import_module("interlock.definition.builder")
    elif name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'interlock' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
