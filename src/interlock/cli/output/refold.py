"""The result of a refold as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from interlock.cli.output.terminal import Line
from interlock.cli.output.values import count_text
from interlock.evolve.refold import RefoldGroup, RefoldReport
from interlock.model.encoding.codec import to_builtins

_GROUPS_SHOWN_MAX = 50


def report_json(report: RefoldReport) -> dict[str, Any]:
    """Return the report as plain JSON."""
    return {**to_builtins(report), "is_complete": report.is_complete}


def report_lines(report: RefoldReport, *, quiet: bool) -> Iterator[Line]:
    """Yield the lines of a report; with `quiet`, groups without samples."""
    done = "corrected" if report.corrected else "can be corrected"
    for group in report.groups[:_GROUPS_SHOWN_MAX]:
        yield from _group_lines(group, done, quiet=quiet)
    hidden = report.groups[_GROUPS_SHOWN_MAX:]
    if hidden or report.other:
        count = sum(each.count for each in hidden) + report.other
        yield ((f"{count:,} more entities in more groups; --json has {len(report.groups):,} groups", "dim"),)
    for gap in report.gaps:
        where = f"{gap.entity} and {gap.count - 1:,} more" if gap.count > 1 else gap.entity
        fix = "; pass it with --recorded FILE" if gap.code in ("kind.unknown", "revision.unknown") else ""
        yield (("not folded  ", "red"), (where, "bold"), f"  {gap.code}: {gap.text}{fix}")
    read = f"{count_text(report.entities, 'entity', 'entities')}, {count_text(report.entries, 'entry', 'entries')}"
    counts = [f"{report.same:,} equal"]
    counts += [f"{report.corrected:,} corrected"] if report.corrected else []
    counts += [f"{report.correctable:,} can be corrected"] if report.correctable else []
    counts += [f"{report.blocked:,} need attention"] if report.blocked else []
    counts += [f"{sum(each.count for each in report.gaps):,} not folded"] if report.gaps else []
    yield ((f"{report.kind}: {', '.join(counts)}", "bold"), f" ({read}, {report.revision})")


def _group_lines(group: RefoldGroup, done: str, *, quiet: bool) -> Iterator[Line]:
    word = ("needs attention", "yellow") if group.reasons else (done, "green")
    first = "" if group.event is None else f"  first at {group.event}"
    parts = ", ".join(group.parts) or "nothing now"
    yield (f"{group.count:>9,}  ", word, f"  {', '.join(group.state)}  {parts}", (first, "dim"))
    for each in group.reasons:
        yield (f"{'':>11}{each}",)
    if quiet:
        return
    for sample in group.samples:
        since = "" if sample.first_version is None else f" since v{sample.first_version}"
        differences = f"  {'; '.join(sample.differences)}" if sample.differences else ""
        yield ((f"{'':>11}{sample.entity} v{sample.version}{since}{differences}", "dim"),)
