"""The differences between two definitions as text, as Markdown for a pull request, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from interlock.cli.output.terminal import Line, escape_line
from interlock.evolve.changes import REVIEWS, Change, Review
from interlock.evolve.diff import ChartDiff

_WORDS: dict[Review, str] = {"none": "same", "safe": "safe", "care": "with care", "breaking": "breaking"}
_STYLES: dict[Review, str] = {"none": "dim", "safe": "green", "care": "yellow", "breaking": "bold red"}
_CODE_FIRST = "register them in every program before it uses the new definition"


def graver_first(changes: tuple[Change, ...]) -> list[Change]:
    """Return the changes sorted by class, the gravest first, each class in document order."""
    return sorted(changes, key=lambda each: -REVIEWS.index(each.review))


def verdict(diff: ChartDiff) -> str:
    """Return the result in one line."""
    if not diff.changes:
        return f"{diff.kind}: no change"
    counts = [(_WORDS[each], sum(change.review == each for change in diff.changes)) for each in reversed(REVIEWS)]
    listed = ", ".join(f"{count} {word}" for word, count in counts if count)
    names = diff.before if diff.before == diff.after else f"{diff.before} -> {diff.after}"
    return f"{diff.kind}: {listed} ({names})"


def text_lines(diff: ChartDiff, *, quiet: bool) -> Iterator[Line]:
    """Yield the lines of a report for a terminal; with `quiet`, one line for each change."""
    for change in graver_first(diff.changes):
        label = _WORDS[change.review]
        yield ((f"{label:<9}", _STYLES[change.review]), f"  {change.code}  ", (_subject(change), "bold"))
        if not quiet:
            yield (f"           {change.rule.reason}",)
            if change.rule.carry:
                yield (f"           can be carried over: {change.rule.carry}",)
            if change.hint is not None:
                yield ("           ", ("hint:", "green"), f" {change.hint}")
    if diff.new_names:
        yield (("new names", "yellow"), f"  {', '.join(diff.new_names)}: {_CODE_FIRST}")
    yield ((verdict(diff), f"bold {_STYLES[diff.review].removeprefix('bold ')}"),)


def markdown(diff: ChartDiff) -> str:
    """Return the report as Markdown, with one table."""
    lines = [f"### `{diff.kind}`: {_WORDS[diff.review] if diff.changes else 'no change'}", ""]
    if diff.before != diff.after:
        lines += [f"`{diff.before}` → `{diff.after}`", ""]
    if diff.changes:
        lines += ["| class | change | why | entities that can be carried over |", "|---|---|---|---|"]
    for change in graver_first(diff.changes):
        hint = f" {change.hint}." if change.hint else ""
        what = f"`{change.code}` {_cell(_subject(change))}"
        carry = "" if change.review in ("none", "safe") else change.rule.carry or "all"
        lines.append(f"| {_WORDS[change.review]} | {what} | {change.rule.reason}.{_cell(hint)} | {carry} |")
    if diff.new_names:
        lines += ["", f"New names: {', '.join(f'`{each}`' for each in map(_cell, diff.new_names))}; {_CODE_FIRST}."]
    return "\n".join(lines).rstrip("\n") + "\n"


def diff_json(diff: ChartDiff) -> dict[str, Any]:
    """Return the report as plain JSON."""
    return {
        "kind": diff.kind,
        "before": diff.before,
        "after": diff.after,
        "review": diff.review,
        "changes": [
            {
                "code": each.code,
                "review": each.review,
                "subject": each.subject,
                "detail": each.detail,
                "reason": each.rule.reason,
                "carry": each.rule.carry,
                "states": list(each.states),
                "hint": each.hint,
            }
            for each in graver_first(diff.changes)
        ],
        "new_names": list(diff.new_names),
    }


def _subject(change: Change) -> str:
    return f"{change.subject} ({change.detail})" if change.detail else change.subject


def _cell(text: str) -> str:
    """Text for a cell of a Markdown table."""
    return escape_line(text).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
