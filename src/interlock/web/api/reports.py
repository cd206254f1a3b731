"""Saved reports: shadow runs, shadow replays and refolds.

Rule: a user sees the reports of the kinds that they may see. Values of masked fields are left out, as in an entity, and
so is everything else that may contain them.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from interlock.errors import NotFoundError
from interlock.runtime.trials.reports import StoredReport, masked_report, read_reports
from interlock.web.http.endpoint import Endpoint, RequestContext


class ReportRow(Struct, frozen=True, kw_only=True):
    """A report in the list.

    `what` is `shadow.run`, `shadow.replay` or `refold`. `verdict` is that of a shadow report: `none`, `divergent` or
    `unknown`; of a refold: `equal`, `different` or `incomplete`. `differing` are the entries or entities that differ.
    """

    id: str
    what: str
    kind: str
    revision: str
    label: str | None
    who: str
    began_ms: int
    saved_ms: int
    running: bool
    verdict: str
    differing: int
    compared: int


class ReportsView(Struct, frozen=True):
    """Reports, the one that was saved last first."""

    reports: tuple[ReportRow, ...]


class ReportView(Struct, frozen=True):
    """A report: its row, and the whole report as the command prints it with `--json`."""

    row: ReportRow
    report: dict[str, Any]


async def list_reports(request: RequestContext) -> ReportsView:
    """Return the saved reports of the kinds that the user may see."""
    found = await read_reports(request.console.runtime.entities)
    return ReportsView(tuple(_row(each) for each in found if request.may_see(each.kind)))


async def get_report(request: RequestContext) -> ReportView:
    """Return a report. Raises NotFoundError if it does not exist or the user may not see its kind."""
    name = request.path("report")
    for each in await read_reports(request.console.runtime.entities):
        if each.id == name and request.may_see(each.kind):
            masked = request.console.masked_fields(request.user, each.kind)
            shown = replace(each, report=masked_report(each.report, masked)) if masked else each
            return ReportView(_row(shown), shown.report)
    raise NotFoundError(f"unknown report {name[:60]}", code="report.unknown")


def _row(stored: StoredReport) -> ReportRow:
    report = stored.report
    if stored.what == "refold":
        differing = report["correctable"] + report["corrected"] + report["blocked"]
        compared = report["entities"]
        verdict = "different" if differing else "incomplete" if report["gaps"] else "equal"
    else:
        differing, compared, verdict = report["divergences"], report["evidence"]["entries"], report["verdict"]
    return ReportRow(
        id=stored.id,
        what=stored.what,
        kind=stored.kind,
        revision=stored.revision,
        label=stored.label,
        who=stored.who,
        began_ms=stored.began_ms,
        saved_ms=stored.saved_ms,
        running=stored.running,
        verdict=verdict,
        differing=differing,
        compared=compared,
    )


ENDPOINTS = (
    Endpoint(method="GET", path="/reports", summary="List saved reports", handler=list_reports, answer=ReportsView),
    Endpoint(
        method="GET", path="/reports/{report}", summary="Get a saved report", handler=get_report, answer=ReportView
    ),
)
