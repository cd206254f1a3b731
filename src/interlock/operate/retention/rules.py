"""What may be removed, by kind and age, and the result for each entity."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from msgspec import Struct

from interlock.errors import UsageError
from interlock.model.limits import COMPACT_ENTRIES_MIN, KEY_WINDOW_MS
from interlock.runtime.charts.registry import RETENTION_KIND
from interlock.runtime.runtime import Runtime

Done = Literal["pruned", "would_prune", "compacted", "would_compact", "kept"]


class RetentionRule(Struct, frozen=True, kw_only=True):
    """How long the entities of a kind are kept after they ended, and entries of living ones; None: without limit.

    With `archive`, an address such as file:///var/archive, a copy is made before anything is removed. A compaction
    removes `entries_min` entries at least.
    """

    kind: str
    ended_ms: int | None = None
    entries_ms: int | None = None
    archive: str | None = None
    entries_min: int = COMPACT_ENTRIES_MIN

    def __post_init__(self) -> None:
        """Raise UsageError for a negative age, entries younger than remembered keys, and the records of retention."""
        if (self.ended_ms or 0) < 0 or self.entries_min < 1:
            raise UsageError(f"the retention of `{self.kind}` is negative", code="retention.age", hint="such as 90d")
        if self.entries_ms is not None and self.entries_ms < KEY_WINDOW_MS:
            message = f"entries of `{self.kind}` must be kept as long as keys are remembered"
            raise UsageError(message, code="retention.entries", hint="30d at least")
        if self.kind == RETENTION_KIND:
            message = "the records of retention are the evidence for what was removed, and are never removed"
            raise UsageError(message, code="retention.records", hint="name another kind")


class RetentionResult(Struct, frozen=True, omit_defaults=True):
    """The result for one entity. `kept` has a `reason`: why it is still needed, or cannot be judged.

    `version` is that of its last entry, or of the last one that was compacted; `rows` counts what the store removed.
    """

    entity: str
    done: Done
    version: int = 0
    rows: int = 0
    reason: str | None = None


class RetentionReport(Struct):
    """The counts of a run: entities by result, rows that were removed, and why entities were kept."""

    done: Counter[str]
    reasons: Counter[str]
    rows: int = 0

    @staticmethod
    def empty() -> RetentionReport:
        """Return a report of nothing."""
        return RetentionReport(Counter(), Counter())

    def add(self, result: RetentionResult) -> None:
        """Count a result."""
        self.done[result.done] += 1
        self.rows += result.rows
        if result.reason is not None:
            self.reasons[result.reason.partition(":")[0]] += 1

    def counts(self) -> dict[str, int]:
        """Return the counts as they are recorded."""
        return {**dict(sorted(self.done.items())), "rows": self.rows}


def rules_of_charts(runtime: Runtime) -> tuple[RetentionRule, ...]:
    """Return the retention of the charts of a runtime, of the newest revision of each kind."""
    found = []
    for kind in runtime.charts.kinds():
        policy = runtime.charts.for_new_entity(kind).chart.retention
        if policy is not None:
            rule = RetentionRule(
                kind=kind, ended_ms=policy.ended_ms, entries_ms=policy.entries_ms, archive=policy.archive
            )
            found.append(rule)
    return tuple(found)
