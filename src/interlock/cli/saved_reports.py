"""Save the report of a command in the store, for the console: `--save`."""

from __future__ import annotations

import click
from msgspec import Struct

from interlock.cli.options import user_name
from interlock.runtime.history.recorded_steps import RecordedSteps
from interlock.runtime.runtime import Runtime
from interlock.runtime.trials.reports import ReportType, StoredReport, plain_report, report_id, save_report

save_option = click.option("--save", "saves", is_flag=True, help="Save the report in the store, for the console.")


async def save_result(
    runtime: Runtime, what: ReportType, report: Struct, recorded: RecordedSteps, *, began_ms: int
) -> None:
    """Save a complete report; it replaces the earlier one of this chart."""
    chart = recorded.new.chart
    stored = StoredReport(
        id=report_id(what, chart.kind, chart.revision),
        what=what,
        kind=chart.kind,
        revision=chart.revision,
        label=chart.label,
        who=user_name(),
        began_ms=began_ms,
        saved_ms=runtime.clock.now_ms(),
        running=False,
        report=plain_report(report, *recorded.charts()),
    )
    await save_report(runtime.entities, runtime.sender, stored)
