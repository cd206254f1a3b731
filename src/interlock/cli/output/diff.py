"""The differences between two definitions as text, as Markdown for a pull request, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from interlock.cli.output.change_evidence import (
    change_json,
    change_texts,
    evidence_json,
    markdown_lines,
    summary_lines,
    tombstone_lines,
)
from interlock.cli.output.terminal import Line, escape_line
from interlock.evolve.changes import REVIEWS, Change, Review
from interlock.evolve.diff import ChartDiff
from interlock.observe.change_evidence import ChangeEvidence, LiveEvidence

_WORDS: dict[Review, str] = {"none": "same", "safe": "safe", "care": "with care", "breaking": "breaking"}
_STYLES: dict[Review, str] = {"none": "dim", "safe": "green", "care": "yellow", "breaking": "bold red"}
_CODE_FIRST = "register them in every program before it uses the new definition"


def graver_first(diff: ChartDiff, evidence: LiveEvidence | None = None) -> list[tuple[Change, ChangeEvidence | None]]:
    """Return the changes sorted by class, the gravest first, each class in document order, with what a store knows."""
    known = [None] * len(diff.changes) if evidence is None else evidence.changes
    pairs = list(zip(diff.changes, known, strict=True))
    return sorted(pairs, key=lambda each: -REVIEWS.index(each[0].review))


def verdict(diff: ChartDiff) -> str:
    """Return the result in one line."""
    if not diff.changes:
        return f"{diff.kind}: no change"
    counts = [(_WORDS[each], sum(change.review == each for change in diff.changes)) for each in reversed(REVIEWS)]
    listed = ", ".join(f"{count} {word}" for word, count in counts if count)
    names = diff.before if diff.before == diff.after else f"{diff.before} -> {diff.after}"
    return f"{diff.kind}: {listed} ({names})"


def text_lines(diff: ChartDiff, evidence: LiveEvidence | None = None, *, quiet: bool) -> Iterator[Line]:
    """Yield the lines of a report for a terminal; with `quiet`, one line for each change."""
    for change, known in graver_first(diff, evidence):
        label = _WORDS[change.review]
        yield ((f"{label:<9}", _STYLES[change.review]), f"  {change.code}  ", (_subject(change), "bold"))
        if not quiet:
            yield (f"           {change.rule.reason}",)
            if change.rule.carry:
                yield (f"           can be carried over: {change.rule.carry}",)
            if change.hint is not None:
                yield ("           ", ("hint:", "green"), f" {change.hint}")
            if known is not None and evidence is not None:
                yield from (("           ", ("store:", "cyan"), f" {each}") for each in change_texts(known, evidence))
    if diff.new_names:
        yield (("new names", "yellow"), f"  {', '.join(diff.new_names)}: {_CODE_FIRST}")
    if evidence is not None:
        yield from tombstone_lines(evidence, quiet=quiet)
        yield from summary_lines(evidence)
    yield ((verdict(diff), f"bold {_STYLES[diff.review].removeprefix('bold ')}"),)


def markdown(diff: ChartDiff, evidence: LiveEvidence | None = None) -> str:
    """Return the report as Markdown, with one table."""
    lines = [f"### `{diff.kind}`: {_WORDS[diff.review] if diff.changes else 'no change'}", ""]
    if diff.before != diff.after:
        lines += [f"`{diff.before}` → `{diff.after}`", ""]
    if diff.changes:
        store = ("", "") if evidence is None else (" in the store |", "---|")
        lines += [
            f"| class | change | why | entities that can be carried over |{store[0]}",
            f"|---|---|---|---|{store[1]}",
        ]
    for change, known in graver_first(diff, evidence):
        hint = f" {change.hint}." if change.hint else ""
        what = f"`{change.code}` {_cell(_subject(change))}"
        carry = "" if change.review in ("none", "safe") else change.rule.carry or "all"
        row = f"| {_WORDS[change.review]} | {what} | {change.rule.reason}.{_cell(hint)} | {carry} |"
        if known is not None and evidence is not None:
            row += f" {_cell('. '.join(change_texts(known, evidence)))} |"
        lines.append(row)
    if diff.new_names:
        lines += ["", f"New names: {', '.join(f'`{each}`' for each in map(_cell, diff.new_names))}; {_CODE_FIRST}."]
    if evidence is not None:
        lines += markdown_lines(evidence)
    return "\n".join(lines).rstrip("\n") + "\n"


def diff_json(diff: ChartDiff, evidence: LiveEvidence | None = None) -> dict[str, Any]:
    """Return the report as plain JSON."""
    found: dict[str, Any] = {
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
                **({} if known is None else {"store": change_json(known)}),
            }
            for each, known in graver_first(diff, evidence)
        ],
        "new_names": list(diff.new_names),
    }
    if evidence is not None:
        found["store"] = evidence_json(evidence)
    return found


def _subject(change: Change) -> str:
    return f"{change.subject} ({change.detail})" if change.detail else change.subject


def _cell(text: str) -> str:
    """Text for a cell of a Markdown table."""
    return escape_line(text).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
