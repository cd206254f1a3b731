"""`interlock diff`: what a change of a definition means, for reviewers and for CI."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from interlock.cli import exit_codes
from interlock.cli.commands.charts.check import require_sound
from interlock.cli.commands.charts.convert import write_output
from interlock.cli.git_files import read_revision
from interlock.cli.input import STDIN
from interlock.cli.options import (
    common,
    duration_ms,
    example,
    format_option,
    json_option,
    output_option,
    pass_terminal,
)
from interlock.cli.output.diff import diff_json, markdown, text_lines
from interlock.cli.output.terminal import Terminal
from interlock.cli.output.values import json_text, short_number
from interlock.cli.session import open_for_reading, run
from interlock.errors import NotFoundError, UsageError
from interlock.evolve.changes import REVIEWS
from interlock.evolve.diff import ChartDiff, diff_documents
from interlock.model.document.document import Document
from interlock.observe.change_evidence import WITHIN_MS, LiveEvidence, change_evidence
from interlock.runtime.runtime import Runtime

FORMATS = ("text", "markdown", "svg")


@example(
    "interlock diff HEAD~1:order.interlock.yaml order.interlock.yaml",
    "interlock diff origin/main:order.yaml order.yaml --format markdown --fail-on breaking",
    "interlock diff order@1.0.0 order.yaml --store sqlite:///orders.db --fail-on live",
    "interlock diff old.yaml new.yaml -o diff.svg",
)
@click.command
@click.argument("before", metavar="BEFORE")
@click.argument("after", metavar="AFTER")
@click.option("--store", metavar="URL", help="A store: show which changes concern something in use there.")
@click.option(
    "--seen-within",
    metavar="DURATION",
    help="With --store: an event counts as in use if it was seen this recently (default 30d).",
)
@click.option(
    "--format",
    "printed_format",
    type=click.Choice(FORMATS),
    help="text (default), markdown for a pull request, or svg: a drawing of the differences.",
)
@click.option(
    "--fail-on",
    type=click.Choice(("care", "breaking", "live", "never")),
    default="breaking",
    help="The lowest class of change that fails (default: breaking); live: breaking and in use.",
)
@output_option
@json_option
@format_option
@common
@pass_terminal
def diff(
    terminal: Terminal,
    before: str,
    after: str,
    *,
    store: str | None,
    seen_within: str | None,
    printed_format: str | None,
    fail_on: str,
    output: str | None,
    as_json: bool,
    source_format: str | None,
) -> int:
    """BEFORE and AFTER are files, or REVISION:PATH in git, such as HEAD~1:order.yaml. With --store they may also be
    KIND@REVISION in the store, or KIND@ for its newest revision.

    Each change is safe, needs care, or is breaking. Exit code 11 if a change is breaking; with --fail-on care also 10
    if one needs care; with --fail-on live, 11 only if a breaking change concerns something in use.
    """
    if before == after == STDIN:
        raise click.UsageError("stdin can be only one of the two definitions")
    if as_json and printed_format is not None:
        raise click.UsageError("--json and --format cannot be used together")
    if store is None and (fail_on == "live" or seen_within is not None):
        raise click.UsageError("--fail-on live and --seen-within need --store")
    within_ms = WITHIN_MS if seen_within is None else duration_ms(seen_within, "--seen-within")

    def read(name: str) -> Document:
        return require_sound(read_revision(name, source_format), terminal)[0]

    evidence: LiveEvidence | None = None
    if store is None:
        _refuse_stored(before, after)
        found = diff_documents(read(before), read(after))
    else:
        found, evidence = run(_with_store(store, (before, after), read, within_ms))
    if as_json:
        write_output(terminal, json_text(diff_json(found, evidence)), output)
    else:
        _print(terminal, found, evidence, printed_format or _format(output), output)
    return _exit_code(found, evidence, fail_on)


# Revisions in a store


def _is_stored(name: str) -> bool:
    """Whether a word is KIND@REVISION. A file of that name, and a path in git, come first."""
    return "@" in name and ":" not in name and not Path(name).exists()


def _refuse_stored(*names: str) -> None:
    for each in names:
        if _is_stored(each):
            hint = "add --store URL"
            raise NotFoundError(f'there is no file "{each}"; a revision needs its store', code="diff.store", hint=hint)


async def _with_store(
    url: str, names: tuple[str, str], read: Callable[[str], Document], within_ms: int
) -> tuple[ChartDiff, LiveEvidence]:
    async with open_for_reading(url) as runtime:
        before, after = [await _stored(runtime, each) if _is_stored(each) else read(each) for each in names]
        found = diff_documents(before, after)
        return found, await change_evidence(runtime, found, after.removed, within_ms=within_ms)


async def _stored(runtime: Runtime, name: str) -> Document:
    """Return the definition of KIND@REVISION: a name of the revision, or its label; without one, the newest."""
    kind, _, revision = name.partition("@")
    editions = await runtime.revisions.editions(kind)
    named = [each for each in editions if not revision or revision in (each.label, each.revision, *each.names)]
    if not named:
        known = ", ".join(dict.fromkeys(each.label or each.revision for each in editions)) or "none"
        hint = f"its revisions are {known}" if editions else "interlock db definitions list shows all"
        raise NotFoundError(f"the store has no definition `{name[:200]}`", code="revision.unknown", hint=hint)
    document = (await runtime.revisions.chart(kind, named[-1].revision)).document
    if document is None:
        raise UsageError(f"`{name[:200]}` has no definition that can be compared", code="diff.definition")
    return document


def _format(output: str | None) -> str:
    suffixes = {".svg": "svg", ".md": "markdown"}
    return next((name for suffix, name in suffixes.items() if (output or "").lower().endswith(suffix)), "text")


def _print(terminal: Terminal, found: ChartDiff, evidence: LiveEvidence | None, name: str, output: str | None) -> None:
    if name == "markdown":
        write_output(terminal, markdown(found, evidence), output)
    elif name == "svg":
        write_output(terminal, _drawing(terminal, found, evidence), output)
    elif output is None or output == STDIN:
        for parts in text_lines(found, evidence, quiet=terminal.quiet):
            terminal.report(*parts)
    else:
        lines = text_lines(found, evidence, quiet=terminal.quiet)
        plain = ("".join(part if isinstance(part, str) else part[0] for part in line) for line in lines)
        write_output(terminal, "".join(f"{line}\n" for line in plain), output)


def _drawing(terminal: Terminal, found: ChartDiff, evidence: LiveEvidence | None) -> str:
    """The differences as SVG; with evidence, states that a change concerns show how many living entities they have."""
    from interlock.render.drawing import Options, draw_diff_svg

    badges: dict[str, str] = {}
    for change, known in zip(found.changes, () if evidence is None else evidence.changes, strict=False):
        if known.entities:
            state = change.states[0]
            badges[found.names.get(state, state)] = short_number(known.entities)
    drawing = draw_diff_svg(found.old, found.new, Options(badges=tuple(sorted(badges.items()))))
    if drawing.fallback_reason:
        terminal.message((f"drawn as an outline: {drawing.fallback_reason}", "yellow"))
    return drawing.svg


def _exit_code(found: ChartDiff, evidence: LiveEvidence | None, fail_on: str) -> int:
    if fail_on == "live":
        pairs = zip(found.changes, () if evidence is None else evidence.changes, strict=True)
        is_live = any(change.review == "breaking" and known.in_use for change, known in pairs)
        return exit_codes.BREAKING if is_live else exit_codes.OK
    if fail_on == "never" or REVIEWS.index(found.review) < REVIEWS.index(fail_on):
        return exit_codes.OK
    return exit_codes.BREAKING if found.review == "breaking" else exit_codes.WITH_CARE
