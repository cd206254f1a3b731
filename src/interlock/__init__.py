"""Durable statecharts for Python: one pure function, `step(chart, snapshot, event) -> Step(snapshot', effects)`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import version as _version

    from interlock.assemble import BoundChart, answer, failure, firing, load, loads
    from interlock.definition import builder as build
    from interlock.errors import (
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
        UsageError,
    )
    from interlock.kernel.explain import Candidate
    from interlock.model.chart import Chart
    from interlock.model.codec import decode_event, decode_snapshot, encode
    from interlock.model.document import Document
    from interlock.model.effect import Effect
    from interlock.model.event import Event
    from interlock.model.snapshot import Snapshot
    from interlock.model.step import Fault, Step

    __version__: str = _version("interlock")

_HOMES = {
    "BoundChart": "interlock.assemble",
    "Candidate": "interlock.kernel.explain",
    "Chart": "interlock.model.chart",
    "CorruptionError": "interlock.errors",
    "DefinitionError": "interlock.errors",
    "DeniedError": "interlock.errors",
    "Diagnostic": "interlock.errors",
    "Document": "interlock.model.document",
    "Effect": "interlock.model.effect",
    "Event": "interlock.model.event",
    "Fault": "interlock.model.step",
    "InterlockError": "interlock.errors",
    "InternalError": "interlock.errors",
    "MissingExtraError": "interlock.errors",
    "NotFoundError": "interlock.errors",
    "Place": "interlock.errors",
    "RejectedError": "interlock.errors",
    "Snapshot": "interlock.model.snapshot",
    "Step": "interlock.model.step",
    "UsageError": "interlock.errors",
    "decode_event": "interlock.model.codec",
    "decode_snapshot": "interlock.model.codec",
    "encode": "interlock.model.codec",
    "answer": "interlock.assemble",
    "failure": "interlock.assemble",
    "firing": "interlock.assemble",
    "load": "interlock.assemble",
    "loads": "interlock.assemble",
}

__all__ = (
    "BoundChart",
    "Candidate",
    "Chart",
    "CorruptionError",
    "DefinitionError",
    "DeniedError",
    "Diagnostic",
    "Document",
    "Effect",
    "Event",
    "Fault",
    "InterlockError",
    "InternalError",
    "MissingExtraError",
    "NotFoundError",
    "Place",
    "RejectedError",
    "Snapshot",
    "Step",
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
