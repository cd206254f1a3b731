"""Findings on the screen: place, severity, code, message, the line with a caret under it, the hint, a summary."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from unicodedata import combining, east_asian_width

from interlock.cli.output.terminal import Part, in_line
from interlock.errors import Diagnostic

STYLES = {"error": "bold red", "warning": "bold yellow", "info": "bold cyan"}
_LINE_LENGTH_MAX = 100
_LEAD = 24
TAB = "    "
"""A tab of a source line as it is shown: as wide in the line as in the caret's."""


def finding_lines(finding: Diagnostic, source: Sequence[str] | None) -> list[tuple[Part, ...]]:
    """One finding as lines; with its source line where there is one."""
    place, style = finding.place, STYLES[finding.severity]
    path = f" {place.path}" if place.path else ""
    head: tuple[Part, ...] = ((str(place), "bold"), " ", (finding.severity, style), " ", (finding.code, "cyan"))
    lines: list[tuple[Part, ...]] = [(*head, f"{path}: {finding.message}")]
    if source is not None and 0 < place.line <= len(source):
        lines += _source_lines(finding, source[place.line - 1], style)
    if finding.hint:
        lines.append((("  hint: ", "green"), finding.hint))
    return lines


def _source_lines(finding: Diagnostic, text: str, style: str) -> list[tuple[Part, ...]]:
    """The line a finding is about, cut to what fits around the column, and a caret under the part that is meant."""
    place = finding.place
    start = min(max(place.column - 1, 0), len(text))
    end = place.end_column - 1 if place.end_line == place.line else len(text.rstrip())
    if start > _LINE_LENGTH_MAX - _LEAD:
        cut = start - _LEAD
        text, start, end = "…" + text[cut:], start - cut + 1, end - cut + 1
    if len(text) > _LINE_LENGTH_MAX:
        text = text[: _LINE_LENGTH_MAX - 1] + "…"
    end = min(max(end, start + 1), max(len(text), start + 1))
    before, meant, after = (in_line(each.replace("\t", TAB)) for each in (text[:start], text[start:end], text[end:]))
    number = str(place.line)
    margin = " " * len(number)
    caret = " " * sum(map(_width, before))
    marks = "^" * max(1, sum(map(_width, meant)))
    return [
        ((f"  {number} | ", "dim"), before, (meant, style), after),
        ((f"  {margin} | ", "dim"), caret, (marks, style)),
    ]


def _width(character: str) -> int:
    """How many columns a character takes on a terminal."""
    if combining(character):
        return 0
    return 2 if east_asian_width(character) in {"W", "F"} else 1


def counted(findings: Iterable[Diagnostic]) -> dict[str, int]:
    """How many findings there are of each severity."""
    counts = {"error": 0, "warning": 0, "info": 0}
    for finding in findings:
        counts[finding.severity] += 1
    return counts


def summary(findings: Sequence[Diagnostic], names: Sequence[str]) -> str:
    """The closing line: `2 errors, 1 warning in order.yaml`."""
    where = names[0] if len(names) == 1 else f"{len(names)} files"
    counts = counted(findings)
    words = {"error": "error", "warning": "warning", "info": "note"}
    said = [f"{count} {words[name]}{'s' if count != 1 else ''}" for name, count in counts.items() if count]
    return f"{', '.join(said) or 'no findings'} in {where}"


def as_json(finding: Diagnostic) -> dict[str, Any]:
    """A finding as plain JSON, with the place spelled out."""
    place = finding.place
    return {
        "code": finding.code,
        "severity": finding.severity,
        "file": place.file,
        "line": place.line,
        "column": place.column,
        "end_line": place.end_line,
        "end_column": place.end_column,
        "path": place.path,
        "message": finding.message,
        "hint": finding.hint,
    }
