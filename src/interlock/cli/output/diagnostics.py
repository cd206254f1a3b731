"""Findings as lines: place, severity, code, message, the source line with a caret, the hint, and a summary."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from unicodedata import combining, east_asian_width

from interlock.cli.output.terminal import Part, escape_line
from interlock.errors import Diagnostic

STYLES = {"error": "bold red", "warning": "bold yellow", "info": "bold cyan"}
_LINE_LENGTH_MAX = 100
_LEAD = 24
TAB = "    "
"""How a tab is printed, so that the caret is below the right column."""


def finding_lines(finding: Diagnostic, source: Sequence[str] | None) -> list[tuple[Part, ...]]:
    """Return one finding as lines, with its source line if there is one."""
    location, style = finding.location, STYLES[finding.severity]
    path = f" {location.path}" if location.path else ""
    head: tuple[Part, ...] = ((str(location), "bold"), " ", (finding.severity, style), " ", (finding.code, "cyan"))
    lines: list[tuple[Part, ...]] = [(*head, f"{path}: {finding.message}")]
    if source is not None and 0 < location.line <= len(source):
        lines += _source_lines(finding, source[location.line - 1], style)
    if finding.hint:
        lines.append((("  hint: ", "green"), finding.hint))
    return lines


def _source_lines(finding: Diagnostic, text: str, style: str) -> list[tuple[Part, ...]]:
    """The source line of a finding, shortened around its column, and carets below the part that is meant."""
    location = finding.location
    start = min(max(location.column - 1, 0), len(text))
    end = location.end_column - 1 if location.end_line == location.line else len(text.rstrip())
    if start > _LINE_LENGTH_MAX - _LEAD:
        cut = start - _LEAD
        text, start, end = "…" + text[cut:], start - cut + 1, end - cut + 1
    if len(text) > _LINE_LENGTH_MAX:
        text = text[: _LINE_LENGTH_MAX - 1] + "…"
    end = min(max(end, start + 1), max(len(text), start + 1))
    before, marked, after = (
        escape_line(each.replace("\t", TAB)) for each in (text[:start], text[start:end], text[end:])
    )
    number = str(location.line)
    margin = " " * len(number)
    caret = " " * sum(map(_width, before))
    marks = "^" * max(1, sum(map(_width, marked)))
    return [
        ((f"  {number} | ", "dim"), before, (marked, style), after),
        ((f"  {margin} | ", "dim"), caret, (marks, style)),
    ]


def _width(character: str) -> int:
    """The columns of a character on a terminal."""
    if combining(character):
        return 0
    return 2 if east_asian_width(character) in {"W", "F"} else 1


def count_findings(findings: Iterable[Diagnostic]) -> dict[str, int]:
    """Return the number of findings of each severity."""
    counts = {"error": 0, "warning": 0, "info": 0}
    for finding in findings:
        counts[finding.severity] += 1
    return counts


def summary(findings: Sequence[Diagnostic], names: Sequence[str]) -> str:
    """Return the last line: `2 errors, 1 warning in order.yaml`."""
    where = names[0] if len(names) == 1 else f"{len(names)} files"
    counts = count_findings(findings)
    words = {"error": "error", "warning": "warning", "info": "note"}
    texts = [f"{count} {words[name]}{'s' if count != 1 else ''}" for name, count in counts.items() if count]
    return f"{', '.join(texts) or 'no findings'} in {where}"


def finding_json(finding: Diagnostic) -> dict[str, Any]:
    """Return a finding as JSON."""
    location = finding.location
    return {
        "code": finding.code,
        "severity": finding.severity,
        "file": location.file,
        "line": location.line,
        "column": location.column,
        "end_line": location.end_line,
        "end_column": location.end_column,
        "path": location.path,
        "message": finding.message,
        "hint": finding.hint,
    }
