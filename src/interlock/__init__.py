"""Durable statecharts for Python: one pure function, `step(chart, snapshot, event) -> Step(snapshot', effects)`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from interlock.lazy_names import lazy_names

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
    from interlock.assemble.mappings import load_mapping
    from interlock.assemble.runtimes import connect, consume, open  # noqa: A004  # the name users read: interlock.open
    from interlock.definition.builder import namespace as build
    from interlock.effects.handler_calls import Progress
    from interlock.effects.handlers import Attempt
    from interlock.effects.retry import HandlerDefaults
    from interlock.errors import (
        ArchivedError,
        CompactedError,
        ConflictError,
        CorruptionError,
        DefinitionError,
        DeniedError,
        Diagnostic,
        InterlockError,
        InternalError,
        MissingExtraError,
        NotFoundError,
        PrunedError,
        RejectedError,
        SourceLocation,
        UnavailableError,
        UsageError,
    )
    from interlock.evolve.refold import RefoldReport
    from interlock.evolve.shadow import ShadowReport
    from interlock.kernel.explain import Candidate
    from interlock.model.charts.chart import Chart
    from interlock.model.conditions import Range
    from interlock.model.document.document import Document
    from interlock.model.effect import Effect
    from interlock.model.encoding.codec import decode_event, decode_snapshot, encode
    from interlock.model.event import Event
    from interlock.model.journal.entry import Entry, Receipt
    from interlock.model.journal.message import Message
    from interlock.model.snapshot import Snapshot
    from interlock.model.step import Fault, Step
    from interlock.model.visible import VisibleSnapshot as VisibleSnapshot
    from interlock.observe.notebook import show
    from interlock.operate.migrations.migration import Migration
    from interlock.operate.migrations.record import pause_migration, resume_migration
    from interlock.operate.migrations.report import MigrationReport
    from interlock.operate.migrations.undo import MigrationUndo
    from interlock.ports.reading.field_indexes import IndexStatus
    from interlock.ports.reading.journal_feed import FeedEntry
    from interlock.ports.reading.projections import ProjectionStatus
    from interlock.ports.store import EntityPage, EntityQuery, EntityRow
    from interlock.render.drawing import Drawing
    from interlock.runtime.blocking import BlockingRuntime
    from interlock.runtime.charts.upgrades import UpgradePreview
    from interlock.runtime.consumer import Consumer, Delivery
    from interlock.runtime.history.verify import Verification, VerificationProblem
    from interlock.runtime.join.joined import AsyncJoined, Joined
    from interlock.runtime.reconcile.definition import ReconcileRequest, ReconcileResult
    from interlock.runtime.request_checks import CreateOptions, SendOptions
    from interlock.runtime.runtime import Runtime
    from interlock.runtime.shutdown import DrainReport
    from interlock.runtime.trials.shadow_run import ShadowRun
    from interlock.trust.visibility import VisibleEntry as VisibleEntry
    from interlock.trust.visibility import VisibleReceipt as VisibleReceipt

    __version__: str = _version("interlock")

_HOMES = {
    "ArchivedError": "interlock.errors",
    "AsyncJoined": "interlock.runtime.join.joined",
    "Attempt": "interlock.effects.handlers",
    "BlockingRuntime": "interlock.runtime.blocking",
    "BoundChart": "interlock.assemble.charts",
    "Candidate": "interlock.kernel.explain",
    "Chart": "interlock.model.charts.chart",
    "CompactedError": "interlock.errors",
    "ConflictError": "interlock.errors",
    "Consumer": "interlock.runtime.consumer",
    "CorruptionError": "interlock.errors",
    "CreateOptions": "interlock.runtime.request_checks",
    "DefinitionError": "interlock.errors",
    "Delivery": "interlock.runtime.consumer",
    "DeniedError": "interlock.errors",
    "Diagnostic": "interlock.errors",
    "Document": "interlock.model.document.document",
    "DrainReport": "interlock.runtime.shutdown",
    "Drawing": "interlock.render.drawing",
    "Effect": "interlock.model.effect",
    "EntityPage": "interlock.ports.store",
    "EntityQuery": "interlock.ports.store",
    "EntityRow": "interlock.ports.store",
    "Entry": "interlock.model.journal.entry",
    "Event": "interlock.model.event",
    "Fault": "interlock.model.step",
    "FeedEntry": "interlock.ports.reading.journal_feed",
    "HandlerDefaults": "interlock.effects.retry",
    "IndexStatus": "interlock.ports.reading.field_indexes",
    "InterlockError": "interlock.errors",
    "InternalError": "interlock.errors",
    "Joined": "interlock.runtime.join.joined",
    "Message": "interlock.model.journal.message",
    "Migration": "interlock.operate.migrations.migration",
    "MigrationReport": "interlock.operate.migrations.report",
    "MigrationUndo": "interlock.operate.migrations.undo",
    "MissingExtraError": "interlock.errors",
    "NotFoundError": "interlock.errors",
    "PrunedError": "interlock.errors",
    "Progress": "interlock.effects.handler_calls",
    "SourceLocation": "interlock.errors",
    "Receipt": "interlock.model.journal.entry",
    "ProjectionStatus": "interlock.ports.reading.projections",
    "Range": "interlock.model.conditions",
    "ReconcileRequest": "interlock.runtime.reconcile.definition",
    "ReconcileResult": "interlock.runtime.reconcile.definition",
    "RefoldReport": "interlock.evolve.refold",
    "RejectedError": "interlock.errors",
    "Runtime": "interlock.runtime.runtime",
    "SendOptions": "interlock.runtime.request_checks",
    "ShadowReport": "interlock.evolve.shadow",
    "ShadowRun": "interlock.runtime.trials.shadow_run",
    "Snapshot": "interlock.model.snapshot",
    "Step": "interlock.model.step",
    "UnavailableError": "interlock.errors",
    "UpgradePreview": "interlock.runtime.charts.upgrades",
    "UsageError": "interlock.errors",
    "Verification": "interlock.runtime.history.verify",
    "VerificationProblem": "interlock.runtime.history.verify",
    "VisibleEntry": "interlock.trust.visibility",
    "VisibleReceipt": "interlock.trust.visibility",
    "VisibleSnapshot": "interlock.model.visible",
    "build": "interlock.definition.builder.namespace:",
    "connect": "interlock.assemble.runtimes",
    "consume": "interlock.assemble.runtimes",
    "decode_event": "interlock.model.encoding.codec",
    "decode_snapshot": "interlock.model.encoding.codec",
    "done_event": "interlock.assemble.charts",
    "encode": "interlock.model.encoding.codec",
    "failed_event": "interlock.assemble.charts",
    "load": "interlock.assemble.charts",
    "load_mapping": "interlock.assemble.mappings",
    "loads": "interlock.assemble.charts",
    "open": "interlock.assemble.runtimes",
    "pause_migration": "interlock.operate.migrations.record",
    "resume_migration": "interlock.operate.migrations.record",
    "show": "interlock.observe.notebook",
    "timer_event": "interlock.assemble.charts",
}

__all__ = (
    "ArchivedError",
    "AsyncJoined",
    "Attempt",
    "BlockingRuntime",
    "BoundChart",
    "Candidate",
    "Chart",
    "CompactedError",
    "ConflictError",
    "Consumer",
    "CorruptionError",
    "CreateOptions",
    "DefinitionError",
    "Delivery",
    "DeniedError",
    "Diagnostic",
    "Document",
    "DrainReport",
    "Drawing",
    "Effect",
    "EntityPage",
    "EntityQuery",
    "EntityRow",
    "Entry",
    "Event",
    "Fault",
    "FeedEntry",
    "HandlerDefaults",
    "IndexStatus",
    "InterlockError",
    "InternalError",
    "Joined",
    "Message",
    "Migration",
    "MigrationReport",
    "MigrationUndo",
    "MissingExtraError",
    "NotFoundError",
    "Progress",
    "ProjectionStatus",
    "PrunedError",
    "Range",
    "Receipt",
    "ReconcileRequest",
    "ReconcileResult",
    "RefoldReport",
    "RejectedError",
    "Runtime",
    "SendOptions",
    "ShadowReport",
    "ShadowRun",
    "Snapshot",
    "SourceLocation",
    "Step",
    "UnavailableError",
    "UpgradePreview",
    "UsageError",
    "Verification",
    "VerificationProblem",
    "VisibleEntry",
    "VisibleReceipt",
    "VisibleSnapshot",
    "__version__",
    "build",
    "connect",
    "consume",
    "decode_event",
    "decode_snapshot",
    "done_event",
    "encode",
    "failed_event",
    "load",
    "load_mapping",
    "loads",
    "open",
    "pause_migration",
    "resume_migration",
    "show",
    "timer_event",
)

_get_public_name, __dir__ = lazy_names(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        globals()[name] = version("interlock")
        return globals()[name]
    return _get_public_name(name)
