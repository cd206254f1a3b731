"""The result of a shadow run as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from interlock.cli.output.terminal import Line
from interlock.cli.output.values import age_text, count_text, time_text
from interlock.evolve.shadow import DivergenceGroup, Evidence, ShadowReport, Verdict
from interlock.model.encoding.codec import to_builtins

_GROUPS_SHOWN_MAX = 50
_NAMES_SHOWN_MAX = 12
_VERDICTS: dict[Verdict, tuple[str, str]] = {
    "none": ("no difference", "bold green"),
    "divergent": ("steps differ", "bold red"),
    "unknown": ("no verdict", "bold yellow"),
}


def report_json(report: ShadowReport) -> dict[str, Any]:
    """Return the report as plain JSON."""
    return {**to_builtins(report), "is_window_full": report.is_window_full}


def report_lines(report: ShadowReport, *, quiet: bool) -> Iterator[Line]:
    """Yield the lines of a report; with `quiet`, groups without samples."""
    for group in report.groups[:_GROUPS_SHOWN_MAX]:
        yield from _group_lines(group, quiet=quiet)
    hidden = report.groups[_GROUPS_SHOWN_MAX:]
    if hidden or report.other:
        count = sum(each.count for each in hidden) + report.other
        more = f" in {len(hidden):,} more groups" if not report.other else " in more groups"
        yield ((f"{count:,} more differences{more}; --json has {len(report.groups):,} groups", "dim"),)
    yield from _evidence_lines(report.evidence)
    for gap in report.gaps:
        where = f"{gap.entity} and {gap.count - 1:,} more" if gap.count > 1 else gap.entity
        fix = "; pass it with --recorded FILE" if gap.code in ("kind.unknown", "revision.unknown") else ""
        yield ("not compared  ", (where, "bold"), f"  {gap.code}: {gap.text}{fix}")
    word, style = _VERDICTS[report.verdict]
    yield ((f"{report.kind}: {word}", style), f"{_reason(report)} ({report.revision})")


def _group_lines(group: DivergenceGroup, *, quiet: bool) -> Iterator[Line]:
    new = "no step" if group.new is None else _states(group.new)
    count = count_text(group.count, "time", "times")
    path = f" in {_states(group.state)}" if group.state else ""
    yield (
        (group.event, "bold"),
        f"{path}: {_states(group.recorded)} ",
        ("→", "dim"),
        f" {new}  {', '.join(group.parts)}  ",
        (count, "yellow"),
    )
    if quiet:
        return
    for sample in group.samples:
        yield (f"    {sample.entity} v{sample.version}  {'; '.join(sample.differences)}",)
    if group.count > 1:
        yield ((f"    first {time_text(group.first.time_ms)}, last {time_text(group.last.time_ms)}", "dim"),)


def _evidence_lines(evidence: Evidence) -> Iterator[Line]:
    entities = count_text(evidence.entities, "entity", "entities")
    entries = count_text(evidence.entries, "entry", "entries")
    skipped = f", {evidence.skipped:,} after an end that only the journal has" if evidence.skipped else ""
    revisions = ", ".join(f"{name} {count:,}" for name, count in evidence.revisions.items())
    yield (f"compared      {entries} of {entities}{skipped}",)
    if revisions:
        yield (f"revisions     {revisions}",)
    if evidence.declares_events:
        total = len(evidence.events_seen) + len(evidence.events_missing)
        yield (f"events        {len(evidence.events_seen)} of {total}{_never(evidence.events_missing, 'received')}",)
    taken = evidence.transitions - len(evidence.never_taken)
    yield (f"transitions   {taken} of {evidence.transitions}{_never(evidence.never_taken, 'taken')}",)
    longest = "none completed" if evidence.longest_ms is None else f"the longest {age_text(evidence.longest_ms)}"
    oldest = "" if evidence.oldest_ms is None else f"; the oldest living entity {age_text(evidence.oldest_ms)}"
    ended = count_text(evidence.ended, "completed life", "completed lives")
    yield (f"window        {age_text(evidence.window_ms)}, {ended}, {longest}{oldest}",)
    if evidence.fields_ignored:
        yield (f"fields        not compared, in one definition only: {', '.join(evidence.fields_ignored)}",)


def _never(names: tuple[str, ...], what: str) -> str:
    if not names:
        return ""
    more = f", and {len(names) - _NAMES_SHOWN_MAX:,} more" if len(names) > _NAMES_SHOWN_MAX else ""
    return f"; never {what}: {', '.join(names[:_NAMES_SHOWN_MAX])}{more}"


def _states(names: tuple[str, ...]) -> str:
    return ", ".join(names)


def _reason(report: ShadowReport) -> str:
    if report.verdict == "divergent":
        return f", {report.divergences:,} of {report.evidence.entries:,} entries"
    if report.verdict == "none":
        return ""
    if not report.evidence.entries:
        return ", no entry was compared"
    if report.gaps:
        return ", some entries were not compared"
    return ", the window does not cover a completed life"
