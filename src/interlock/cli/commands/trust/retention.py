"""`interlock prune` and `compact`: remove what a store no longer needs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack

import click

from interlock.assemble.archives import Archives, archive_folder
from interlock.cli import exit_codes
from interlock.cli.options import (
    chart_option,
    common,
    duration_ms,
    example,
    json_option,
    pass_terminal,
    user_name,
    words,
)
from interlock.cli.output.progress import Progress
from interlock.cli.output.terminal import Terminal
from interlock.cli.output.values import count_text, json_line
from interlock.cli.project import load_known_charts, split_words
from interlock.cli.session import open_for_writing, run
from interlock.errors import UsageError
from interlock.model.encoding.codec import to_builtins
from interlock.model.limits import COMPACT_ENTRIES_MIN
from interlock.operate.retention.rules import RetentionReport, RetentionResult, RetentionRule, rules_of_charts
from interlock.operate.retention.run import RetentionRun
from interlock.runtime.runtime import Runtime
from interlock.stores.registry import tenant_of

_VERBS = {
    "pruned": "pruned",
    "would_prune": "would be pruned",
    "compacted": "compacted",
    "would_compact": "would be compacted",
}

_kind_option = click.option("--kind", metavar="KIND", help="Only entities of this kind.")
_older_option = click.option(
    "--older", metavar="DURATION", help="An age such as 90d, instead of the chart's `retention`; needs --kind."
)
_to_option = click.option(
    "--to", "archive", metavar="file:///FOLDER", help="Copy what is removed to this archive first."
)
_dry_run_option = click.option("--dry-run", is_flag=True, help="Only print what would be removed.")
_rate_option = click.option("--rate", type=float, metavar="N", help="At most this many entities per second.")
_reason_option = click.option("--reason", metavar="TEXT", help="The reason, for the record.")


@example(
    "interlock prune sqlite:///orders.db --dry-run",
    "interlock prune sqlite:///orders.db --kind order --older 90d --to file:///var/archive/orders",
)
@click.command
@words("")
@_kind_option
@_older_option
@_to_option
@_dry_run_option
@_rate_option
@_reason_option
@chart_option
@json_option
@common
@pass_terminal
def prune(
    terminal: Terminal,
    words: tuple[str, ...],
    *,
    kind: str | None,
    older: str | None,
    archive: str | None,
    dry_run: bool,
    rate: float | None,
    reason: str | None,
    charts: tuple[str, ...],
    as_json: bool,
) -> int:
    """Removes entities that ended longer ago than `retention.ended` of their chart allows.

    Each journal is verified first, and copied to the archive if --to is given. Only the id of a pruned entity remains;
    it is never used again.

    An entity stays while something needs it: pending work, a living child, a waiting parent, a projection that has not
    read it, or the tag `legal-hold`. Clients can use the store meanwhile. After an interruption run the same command
    again. Exit code 1 if an entity stays.
    """
    older_ms = None if older is None else duration_ms(older, "--older")

    def rules(runtime: Runtime) -> list[RetentionRule]:
        if older_ms is None:
            found = [each for each in _of_charts(runtime, kind) if each.ended_ms is not None]
            return [_with(each, entries_ms=None, archive=archive or each.archive) for each in found]
        return [RetentionRule(kind=_needed(kind), ended_ms=older_ms, archive=archive)]

    return _run(terminal, words, rules, archive, charts, dry_run=dry_run, rate=rate, reason=reason, as_json=as_json)


@example(
    "interlock compact sqlite:///orders.db --dry-run",
    "interlock compact sqlite:///orders.db --kind account --older 400d --to file:///var/archive/accounts",
)
@click.command
@words("")
@_kind_option
@_older_option
@click.option(
    "--at-least",
    type=click.IntRange(min=1),
    default=COMPACT_ENTRIES_MIN,
    show_default=True,
    help="Only entities with at least this many entries to remove.",
)
@_to_option
@_dry_run_option
@_rate_option
@_reason_option
@chart_option
@json_option
@common
@pass_terminal
def compact(
    terminal: Terminal,
    words: tuple[str, ...],
    *,
    kind: str | None,
    older: str | None,
    at_least: int,
    archive: str | None,
    dry_run: bool,
    rate: float | None,
    reason: str | None,
    charts: tuple[str, ...],
    as_json: bool,
) -> int:
    """Removes entries that are older than `retention.entries` of the chart allows.

    Each journal is verified and replayed, and then starts with a snapshot. The chain of hashes continues, but the
    states before the snapshot can no longer be shown. Entries that a timer, an invoke, a saga or pending work needs
    stay. Clients can use the store meanwhile. After an interruption run the same command again. Exit code 1 if entries
    stay.
    """
    older_ms = None if older is None else duration_ms(older, "--older")

    def rules(runtime: Runtime) -> list[RetentionRule]:
        if older_ms is None:
            found = [each for each in _of_charts(runtime, kind) if each.entries_ms is not None]
            return [_with(each, ended_ms=None, archive=archive or each.archive, least=at_least) for each in found]
        return [RetentionRule(kind=_needed(kind), entries_ms=older_ms, archive=archive, entries_min=at_least)]

    return _run(terminal, words, rules, archive, charts, dry_run=dry_run, rate=rate, reason=reason, as_json=as_json)


def _with(
    rule: RetentionRule,
    *,
    archive: str | None,
    ended_ms: int | None = -1,
    entries_ms: int | None = -1,
    least: int = COMPACT_ENTRIES_MIN,
) -> RetentionRule:
    return RetentionRule(
        kind=rule.kind,
        ended_ms=rule.ended_ms if ended_ms == -1 else ended_ms,
        entries_ms=rule.entries_ms if entries_ms == -1 else entries_ms,
        archive=archive,
        entries_min=least,
    )


def _needed(kind: str | None) -> str:
    if kind is None:
        raise UsageError("--older needs --kind", code="retention.kind", hint="interlock prune --kind order --older 90d")
    return kind


def _of_charts(runtime: Runtime, kind: str | None) -> list[RetentionRule]:
    """Return the retention of the charts. Raises UsageError if there is none: that must not look like success."""
    found = [each for each in rules_of_charts(runtime) if kind in (None, each.kind)]
    if not found:
        what = "no chart" if kind is None else f"the chart `{kind}`"
        message = f"{what} declares `retention`" if kind is None else f"{what} declares no `retention`"
        hint = "add it to the chart, such as retention: {ended: 90d}; or use --kind and --older"
        raise UsageError(message, code="retention.missing", hint=hint)
    return found


def _run(
    terminal: Terminal,
    words: tuple[str, ...],
    rules: Callable[[Runtime], list[RetentionRule]],
    archive: str | None,
    charts: tuple[str, ...],
    *,
    dry_run: bool,
    rate: float | None,
    reason: str | None,
    as_json: bool,
) -> int:
    url, _ = split_words(words)
    bound = load_known_charts(charts)
    if archive is not None:
        archive_folder(archive)
    report = RetentionReport.empty()

    async def work() -> None:
        nonlocal report
        async with open_for_writing(url, bound) as runtime, AsyncExitStack() as stack:
            archives = Archives(tenant_of(url))
            stack.push_async_callback(archives.close)
            found = rules(runtime)
            for each in found:
                runtime.charts.for_new_entity(each.kind)  # raises for an unknown kind
            retention = RetentionRun(
                runtime, found, dry_run=dry_run, rate=rate, open_archive=archives.open, who=user_name(), reason=reason
            )
            report = retention.report
            with Progress(terminal, "entities") as progress:
                async for result in retention.run():
                    progress.over(_print, terminal, result, as_json=as_json)
                    progress.at(report.done.total(), f"{report.done['kept']} stay")

    run(work())
    if not as_json:
        terminal.report((_summary(report), "bold"))
    return exit_codes.FINDINGS if report.done["kept"] else exit_codes.OK


def _print(terminal: Terminal, each: RetentionResult, *, as_json: bool) -> None:
    if as_json:
        terminal.data(json_line(to_builtins(each)))
    elif each.done == "kept":
        terminal.report(("✗ ", "red"), (each.entity, "bold"), f"  stays: {each.reason}")
    elif terminal.verbose or each.done.startswith("would"):
        terminal.report(("✓ ", "green"), (each.entity, "bold"), f"  {_VERBS[each.done]}: version {each.version}")


def _summary(report: RetentionReport) -> str:
    parts = [f"{report.done[name]} {verb}" for name, verb in _VERBS.items() if report.done[name]]
    if report.rows:
        parts.append(f"{count_text(report.rows, 'row', 'rows')} removed")
    if report.done["kept"]:
        parts.append(f"{report.done['kept']} stay")
    return ", ".join(parts) or "nothing is old enough"
