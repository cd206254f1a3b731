"""`interlock diff`: what a change of a definition means, for reviewers and for CI."""

from __future__ import annotations

import click

from interlock.cli import exit_codes
from interlock.cli.commands.check import require_sound
from interlock.cli.commands.convert import write_output
from interlock.cli.git_files import read_revision
from interlock.cli.input import STDIN
from interlock.cli.options import common, example, format_option, json_option, output_option, pass_terminal
from interlock.cli.output.diff import diff_json, markdown, text_lines
from interlock.cli.output.terminal import Terminal
from interlock.cli.output.values import json_text
from interlock.evolve.changes import REVIEWS
from interlock.evolve.diff import ChartDiff, diff_documents

FORMATS = ("text", "markdown", "svg")


@example(
    "interlock diff HEAD~1:order.interlock.yaml order.interlock.yaml",
    "interlock diff origin/main:order.yaml order.yaml --format markdown --fail-on breaking",
    "interlock diff old.yaml new.yaml -o diff.svg",
)
@click.command
@click.argument("before", metavar="BEFORE")
@click.argument("after", metavar="AFTER")
@click.option(
    "--format",
    "printed_format",
    type=click.Choice(FORMATS),
    help="text (default), markdown for a pull request, or svg: a drawing of the differences.",
)
@click.option(
    "--fail-on",
    type=click.Choice(("care", "breaking", "never")),
    default="breaking",
    help="The lowest class of change that makes the exit code nonzero (default: breaking).",
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
    printed_format: str | None,
    fail_on: str,
    output: str | None,
    as_json: bool,
    source_format: str | None,
) -> int:
    """BEFORE and AFTER are files, or REVISION:PATH in git, such as HEAD~1:order.yaml.

    Each change is safe, needs care or is breaking. Exit code 10 if the gravest needs care, 11 if it is breaking, as far
    as --fail-on asks for it.
    """
    if before == after == STDIN:
        raise click.UsageError("stdin can be only one of the two definitions")
    if as_json and printed_format is not None:
        raise click.UsageError("--json and --format cannot be used together")
    documents = [require_sound(read_revision(each, source_format), terminal)[0] for each in (before, after)]
    found = diff_documents(documents[0], documents[1])
    if as_json:
        write_output(terminal, json_text(diff_json(found)), output)
    else:
        _print(terminal, found, printed_format or _format(output), output)
    return _exit_code(found, fail_on)


def _format(output: str | None) -> str:
    suffixes = {".svg": "svg", ".md": "markdown"}
    return next((name for suffix, name in suffixes.items() if (output or "").lower().endswith(suffix)), "text")


def _print(terminal: Terminal, found: ChartDiff, name: str, output: str | None) -> None:
    if name == "markdown":
        write_output(terminal, markdown(found), output)
    elif name == "svg":
        write_output(terminal, _drawing(terminal, found), output)
    elif output is None or output == STDIN:
        for parts in text_lines(found, quiet=terminal.quiet):
            terminal.report(*parts)
    else:
        lines = text_lines(found, quiet=terminal.quiet)
        plain = ("".join(part if isinstance(part, str) else part[0] for part in line) for line in lines)
        write_output(terminal, "".join(f"{line}\n" for line in plain), output)


def _drawing(terminal: Terminal, found: ChartDiff) -> str:
    from interlock.render.drawing import draw_diff_svg

    drawing = draw_diff_svg(found.old, found.new)
    if drawing.fallback_reason:
        terminal.message((f"drawn as an outline: {drawing.fallback_reason}", "yellow"))
    return drawing.svg


def _exit_code(found: ChartDiff, fail_on: str) -> int:
    if fail_on == "never" or REVIEWS.index(found.review) < REVIEWS.index(fail_on):
        return exit_codes.OK
    return exit_codes.BREAKING if found.review == "breaking" else exit_codes.WITH_CARE
