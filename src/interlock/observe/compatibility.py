"""What a chart breaks that declares itself `compatible` with earlier revisions.

Rule 1: only revisions that have living entities count: a promise about no entity cannot be broken.
Rule 2: each change that `diff` classifies as breaking is named, whether or not an entity is affected by it now: one may
be at its next step.
Rule 3: a revision without a definition is left out, because nothing says what changed.
"""

from __future__ import annotations

from interlock.errors import Diagnostic, SourceLocation, UnavailableError
from interlock.evolve.labels import is_within
from interlock.kernel.step import Kernel
from interlock.observe.stuck import living_revisions
from interlock.ports.delivery import CHART_MISSING_CODES
from interlock.ports.store import ENDED_STATES
from interlock.ports.threads import in_thread
from interlock.runtime.runtime import Runtime

BROKEN = "compatible.broken"


async def broken_promises(runtime: Runtime) -> tuple[Diagnostic, ...]:
    """Return what the newest charts of this process break, of revisions in their `compatible` range."""
    found: list[Diagnostic] = []
    for kind in runtime.charts.kinds():
        newest = runtime.charts.for_new_entity(kind)
        if newest.chart.compatible is not None:
            for revision, states in (await living_revisions(runtime, kind)).items():
                found += await _broken(runtime, newest, revision, states)
    return tuple(found)


async def _broken(runtime: Runtime, newest: Kernel, revision: str, populated: set[str]) -> list[Diagnostic]:
    # Imported when needed: most charts declare no range.
    from interlock.evolve.diff import diff_documents

    chart = newest.chart
    if chart.is_revision(revision) or chart.compatible is None or chart.document is None:
        return []
    label = await runtime.revisions.label(chart.kind, revision) or ""
    if not is_within(label, chart.compatible):
        return []
    try:
        old = await runtime.revisions.chart(chart.kind, revision)
    except UnavailableError as error:
        if error.code not in CHART_MISSING_CODES:
            raise
        return []
    ended = {*ENDED_STATES.values(), *(each.id for each in old.states if each.type == "final")}
    if not old.is_revision(revision) or old.document is None or populated <= ended:
        return []
    diff = await in_thread(lambda: diff_documents(old.document, chart.document))  # type: ignore[arg-type]  # both were checked
    hint = "change `compatible`, or keep what it breaks; interlock diff explains each change"
    return [
        Diagnostic(
            code=BROKEN,
            message=f"`{chart.kind}` declares itself compatible with {old.revision_text}, which has living entities, "
            f"but {change.code} {change.subject}: {change.rule.reason}",
            location=SourceLocation(file=chart.document.source, path="compatible"),
            hint=hint,
        )
        for change in diff.changes
        if change.review == "breaking"
    ]
