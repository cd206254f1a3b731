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
    from interlock.model.snapshot import Snapshot
    from interlock.model.step import Fault, Step
    from interlock.opening import open  # noqa: A004  # the name users read: interlock.open
    from interlock.ports.store import Page, Query, Row
    from interlock.runtime.blocking import BlockingRuntime
    from interlock.runtime.send import Runtime
    from interlock.runtime.verify import Problem, Proof

    __version__: str = _version("interlock")

_HOMES = {
    "Attempt": "interlock.effects.handlers",
    "BlockingRuntime": "interlock.runtime.blocking",
    "BoundChart": "interlock.assemble",
    "Candidate": "interlock.kernel.explain",
    "Chart": "interlock.model.chart",
    "ConflictError": "interlock.errors",
    "CorruptionError": "interlock.errors",
    "DefinitionError": "interlock.errors",
    "DeniedError": "interlock.errors",
    "Diagnostic": "interlock.errors",
    "Document": "interlock.model.document",
    "Effect": "interlock.model.effect",
    "Entry": "interlock.model.entry",
    "Event": "interlock.model.event",
    "Fault": "interlock.model.step",
    "InterlockError": "interlock.errors",
    "InternalError": "interlock.errors",
    "MissingExtraError": "interlock.errors",
    "NotFoundError": "interlock.errors",
    "Page": "interlock.ports.store",
    "Place": "interlock.errors",
    "Problem": "interlock.runtime.verify",
    "Proof": "interlock.runtime.verify",
    "Query": "interlock.ports.store",
    "Receipt": "interlock.model.entry",
    "RejectedError": "interlock.errors",
    "Row": "interlock.ports.store",
    "Runtime": "interlock.runtime.send",
    "Snapshot": "interlock.model.snapshot",
    "Step": "interlock.model.step",
    "UnavailableError": "interlock.errors",
    "UsageError": "interlock.errors",
    "decode_event": "interlock.model.codec",
    "decode_snapshot": "interlock.model.codec",
    "encode": "interlock.model.codec",
    "answer": "interlock.assemble",
    "failure": "interlock.assemble",
    "firing": "interlock.assemble",
    "load": "interlock.assemble",
    "loads": "interlock.assemble",
    "open": "interlock.opening",
}

__all__ = (
    "Attempt",
    "BlockingRuntime",
    "BoundChart",
    "Candidate",
    "Chart",
    "ConflictError",
    "CorruptionError",
    "DefinitionError",
    "DeniedError",
    "Diagnostic",
    "Document",
    "Effect",
    "Entry",
    "Event",
    "Fault",
    "InterlockError",
    "InternalError",
    "MissingExtraError",
    "NotFoundError",
    "Page",
    "Place",
    "Problem",
    "Proof",
    "Query",
    "Receipt",
    "RejectedError",
    "Row",
    "Runtime",
    "Snapshot",
    "Step",
    "UnavailableError",
    "UsageError",
    "__version__",
    "answer",
    "build",
    "decode_event",
    "decode_snapshot",
    "encode",
    "failure",
    "firing",
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
