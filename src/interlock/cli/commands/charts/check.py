"""`interlock check`: findings about definitions, for people, for programs and for pull requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import click

from interlock.assemble.charts import BoundChart, compile_reading
from interlock.cli import exit_codes
from interlock.cli.input import Source, read_source
from interlock.cli.options import common, example, format_option, json_option, pass_terminal, src_option
from interlock.cli.output.diagnostics import count_findings, finding_json, finding_lines, summary
from interlock.cli.output.terminal import Terminal, escape_line
from interlock.cli.output.values import json_text
from interlock.cli.user_code import is_code_name, load_code
from interlock.errors import Diagnostic, NotFoundError
from interlock.model.charts.chart import Chart
from interlock.model.document.document import Document


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedFile:
    """A definition with its findings; `chart` is None if one of them is an error."""

    source: Source
    document: Document | None
    chart: Chart | None
    findings: tuple[Diagnostic, ...]


def check_source(source: Source) -> CheckedFile:
    """Read and compile a definition, and return the findings of both."""
    reading = source.reading()
    compilation = compile_reading(reading)
    return CheckedFile(
        source=source, document=reading.document, chart=compilation.chart, findings=compilation.diagnostics
    )


def check_bound(name: str, bound: BoundChart, *, strict: bool) -> CheckedFile:
    """Return the findings of a chart with code; with `strict` also about its functions."""
    findings = bound.diagnostics
    if strict:
        from interlock.testing.exercise import exercise  # loads the simulation

        findings = (*findings, *exercise(bound))
    source = Source(name=name, data=b"", format="python", path=None)
    return CheckedFile(source=source, document=bound.document, chart=bound.chart, findings=findings)


@example(
    "interlock check",
    "interlock check order.interlock.yaml",
    "interlock check --strict charts/*.yaml",
    "interlock check --strict orders:charts",
)
@click.command
@click.argument("files", nargs=-1, metavar="[FILE...]")
@click.option(
    "--strict", is_flag=True, help="Treat warnings as errors; check that the functions of module:name are pure."
)
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
    """Prints all findings. Without FILE it checks the definitions of interlock.toml.

    FILE may also be module:name, a chart with code. With --strict, its guards and assign functions are called on random
    walks, always twice with the same arguments; different results are an error (function.impure).

    Exit code 1 if there is an error, and with --strict also if there is a warning. Notes are shown with -v.
    """
    if as_json and github:
        raise click.UsageError("--json and --github cannot be used together")
    results, missing = _read(files or _project_definitions(), source_format, allow_src=allow_src, strict=strict)
    if not results:
        raise missing[0]
    findings = [finding for result in results for finding in result.findings]
    if as_json:
        terminal.data(json_text(_report_json(results)))
    elif github:
        for finding in findings:
            terminal.data(escape_line(finding.annotation()) + "\n")
    else:
        _print_findings(terminal, results)
    if missing:
        raise missing[0]  # after the findings of the other files
    counts = count_findings(findings)
    failed = counts["error"] or (strict and counts["warning"])
    return exit_codes.FINDINGS if failed else exit_codes.OK


def _project_definitions() -> tuple[str, ...]:
    """The definitions of the project; charts with code are checked when they are loaded."""
    from interlock.cli.project import project

    found = tuple(each for each in project().charts if ":" not in each)
    if not found:
        raise click.UsageError("missing argument 'FILE...'; there is no project with definitions")
    return found


def _read(
    files: tuple[str, ...], source_format: str | None, *, allow_src: bool, strict: bool
) -> tuple[list[CheckedFile], list[NotFoundError]]:
    """The files that exist, checked, and an error for each missing file."""
    results: list[CheckedFile] = []
    missing: list[NotFoundError] = []
    for name in files:
        if is_code_name(name):
            results += (check_bound(name, each, strict=strict) for each in load_code(name))
            continue
        try:
            results.append(check_source(read_source(name, source_format, allow_src=allow_src)))
        except NotFoundError as error:
            missing.append(error)
    return results, missing


def _report_json(results: list[CheckedFile]) -> dict[str, Any]:
    counts = count_findings(finding for result in results for finding in result.findings)
    return {
        "files": [
            {
                "file": result.source.name,
                "format": result.source.format,
                "kind": result.document.kind if result.document is not None else None,
                "revision": result.chart.revision if result.chart is not None else None,
                "findings": [finding_json(each) for each in result.findings],
            }
            for result in results
        ],
        "errors": counts["error"],
        "warnings": counts["warning"],
        "notes": counts["info"],
    }


def _print_findings(terminal: Terminal, results: list[CheckedFile]) -> None:
    """Print findings for people; with -q one line each, with -v also notes."""
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
        counts = count_findings(findings)
        style = "red" if counts["error"] else "yellow" if counts["warning"] else "green"
        terminal.report((summary(findings, [result.source.name for result in results]), f"bold {style}"))
        if counts["info"] and not terminal.verbose:
            terminal.message(("-v shows the notes", "dim"))


def require_sound(source: Source, terminal: Terminal) -> tuple[Document, Chart]:
    """Return the document and the chart of a definition without errors; warnings are only counted.

    If there is an error, print all findings and end the command.
    """
    result = check_source(source)
    if result.chart is None or result.document is None:
        exit_with_findings(terminal, source, result.findings)
    warnings = [finding for finding in result.findings if finding.severity == "warning"]
    if warnings:
        terminal.message((f"{summary(warnings, [source.name])}; interlock check shows them", "yellow"))
    return result.document, result.chart


def exit_with_findings(terminal: Terminal, source: Source, findings: tuple[Diagnostic, ...]) -> NoReturn:
    """End a command that cannot use its definition: print every error and warning on stderr."""
    shown = [finding for finding in findings if finding.severity != "info"]
    for finding in shown:
        for parts in finding_lines(finding, source.lines()):
            terminal.note(*parts)
    terminal.failure(summary(shown, [source.name]))
    raise click.exceptions.Exit(exit_codes.FINDINGS)
