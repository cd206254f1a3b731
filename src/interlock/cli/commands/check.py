"""`interlock check`: every finding about definitions, for people, for programs and for pull requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

import click
import msgspec

from interlock.assemble.charts import compile_reading
from interlock.cli import exit_codes
from interlock.cli.input import Source, read_source
from interlock.cli.options import common, example, format_option, json_option, pass_terminal, src_option
from interlock.cli.output.diagnostics import as_json as finding_as_json
from interlock.cli.output.diagnostics import counted, finding_lines, summary
from interlock.cli.output.terminal import Terminal, in_line
from interlock.errors import Diagnostic, NotFoundError
from interlock.model.chart import Chart
from interlock.model.document.document import Document


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedFile:
    """A definition with all that is known about it; no chart when a finding is an error."""

    source: Source
    document: Document | None
    chart: Chart | None
    findings: tuple[Diagnostic, ...]


def checked(source: Source) -> CheckedFile:
    """Read and compile a definition, and keep every finding of both."""
    reading = source.reading()
    compilation = compile_reading(reading)
    return CheckedFile(
        source=source, document=reading.document, chart=compilation.chart, findings=compilation.diagnostics
    )


@example("interlock check", "interlock check order.interlock.yaml", "interlock check --strict charts/*.yaml")
@click.command(short_help="Find errors and likely mistakes in definitions.")
@click.argument("files", nargs=-1, metavar="[FILE...]")
@click.option("--strict", is_flag=True, help="Let warnings fail too.")
@click.option("--github", is_flag=True, help="Print annotations for a GitHub workflow.")
@json_option
@format_option
@src_option
@common
@pass_terminal
def check(
    terminal: Terminal,
    files: tuple[str, ...],
    *,
    strict: bool,
    github: bool,
    as_json: bool,
    source_format: str | None,
    allow_src: bool,
) -> int:
    """Find errors and likely mistakes in definitions; all of them at once.

    Without a FILE the definitions that interlock.toml names are meant. Ends with 1 when there is an error, with
    --strict also when there is a warning. Notes are shown with -v.
    """
    if as_json and github:
        raise click.UsageError("--json and --github exclude each other; choose one")
    results, unread = _read(files or _of_project(), source_format, allow_src=allow_src)
    if not results:
        raise unread[0]
    findings = [finding for result in results for finding in result.findings]
    if as_json:
        terminal.data(_document(results))
    elif github:
        for finding in findings:
            terminal.data(in_line(finding.annotation()) + "\n")
    else:
        _show(terminal, results)
    if unread:
        raise unread[0]  # after what the other files gave
    counts = counted(findings)
    failed = counts["error"] or (strict and counts["warning"])
    return exit_codes.FINDINGS if failed else exit_codes.OK


def _of_project() -> tuple[str, ...]:
    """The definitions that the project names; charts with code are checked when they are loaded."""
    from interlock.cli.session import project  # with all that stores need: not for one who names a file

    found = tuple(each for each in project().charts if ":" not in each)
    if not found:
        raise click.UsageError("missing argument 'FILE...', and no project here names a definition")
    return found


def _read(
    files: tuple[str, ...], source_format: str | None, *, allow_src: bool
) -> tuple[list[CheckedFile], list[NotFoundError]]:
    """What could be read, checked, and the files that are not there."""
    results: list[CheckedFile] = []
    unread: list[NotFoundError] = []
    for name in files:
        try:
            results.append(checked(read_source(name, source_format, allow_src=allow_src)))
        except NotFoundError as error:
            unread.append(error)
    return results, unread


def _document(results: list[CheckedFile]) -> str:
    """Everything found, as one JSON document."""
    counts = counted(finding for result in results for finding in result.findings)
    said = {
        "files": [
            {
                "file": result.source.name,
                "format": result.source.format,
                "kind": result.document.kind if result.document is not None else None,
                "revision": result.chart.revision if result.chart is not None else None,
                "findings": [finding_as_json(each) for each in result.findings],
            }
            for result in results
        ],
        "errors": counts["error"],
        "warnings": counts["warning"],
        "notes": counts["info"],
    }
    return msgspec.json.format(msgspec.json.encode(said), indent=2).decode() + "\n"


def _show(terminal: Terminal, results: list[CheckedFile]) -> None:
    """The findings for a person; with -q one line each, with -v the notes too."""
    findings = []
    for result in results:
        lines = None if terminal.quiet else result.source.lines()
        for finding in result.findings:
            findings.append(finding)
            if finding.severity == "info" and not terminal.verbose:
                continue
            for parts in finding_lines(finding, lines):
                terminal.report(*parts)
    if not terminal.quiet:
        worst = counted(findings)
        style = "red" if worst["error"] else "yellow" if worst["warning"] else "green"
        terminal.report((summary(findings, [result.source.name for result in results]), f"bold {style}"))
        if worst["info"] and not terminal.verbose:
            terminal.message(("-v shows the notes", "dim"))


def sound(source: Source, terminal: Terminal) -> tuple[Document, Chart]:
    """The document and the chart of a definition without errors; warnings are only counted, for `check` tells them.

    Ends the command, with every finding told, when one of them is an error.
    """
    result = checked(source)
    if result.chart is None or result.document is None:
        refuse(terminal, source, result.findings)
    warnings = [finding for finding in result.findings if finding.severity == "warning"]
    if warnings:
        terminal.message((f"{summary(warnings, [source.name])}; interlock check tells them", "yellow"))
    return result.document, result.chart


def refuse(terminal: Terminal, source: Source, findings: tuple[Diagnostic, ...]) -> NoReturn:
    """End a command that cannot use its definition: tell every error and warning on stderr."""
    told = [finding for finding in findings if finding.severity != "info"]
    for finding in told:
        for parts in finding_lines(finding, source.lines()):
            terminal.note(*parts)
    terminal.failure(summary(told, [source.name]))
    raise click.exceptions.Exit(exit_codes.FINDINGS)
