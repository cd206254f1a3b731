"""What a store knows about the differences between two definitions, as text, as Markdown and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from interlock.cli.output.terminal import Line
from interlock.cli.output.values import count_text, time_text
from interlock.model.duration import format_duration
from interlock.model.encoding.codec import to_builtins
from interlock.observe.change_evidence import ChangeEvidence, LiveEvidence, TombstoneEvidence
from interlock.ports.reading.statistics import DAY_MS, LastSeen

NAMES_SHOWN_MAX = 10
"""Names of events that are listed for one change; `--json` has all."""

_SEEN = {
    "state": "entered",
    "event": "received",
    "refused": "refused or without effect",
    "timer": "sent by a timer",
}
_VERDICTS = {
    "used": ("still in use", "bold red"),
    "waiting": ("waiting", "yellow"),
    "unknown": ("evidence incomplete", "yellow"),
    "safe": ("safe to remove", "green"),
}


def evidence_json(evidence: LiveEvidence) -> dict[str, Any]:
    """Return the evidence as plain JSON, without the changes, which are listed elsewhere."""
    found: dict[str, Any] = to_builtins(evidence)
    del found["changes"]
    return found


def change_json(change: ChangeEvidence) -> dict[str, Any]:
    """Return the evidence about one change as plain JSON."""
    found: dict[str, Any] = to_builtins(change)
    del found["code"], found["subject"]
    return found


def change_texts(change: ChangeEvidence, evidence: LiveEvidence) -> Iterator[str]:
    """Yield sentences about one change."""
    if change.entities is not None:
        yield _entities_text(change.entities, change.oldest_ms)
    yield from _seen_texts(change.seen)
    if not change.seen and (change.entities is None or not change.entities):
        yield _unseen_text(evidence)


def tombstone_texts(stone: TombstoneEvidence, evidence: LiveEvidence) -> Iterator[str]:
    """Yield sentences about one tombstone."""
    if stone.entities:
        yield _entities_text(stone.entities, stone.oldest_ms)
    yield from _seen_texts(stone.seen)
    if not stone.seen and not stone.entities:
        yield _unseen_text(evidence)


def tombstone_lines(evidence: LiveEvidence, *, quiet: bool) -> Iterator[Line]:
    """Yield the lines about all tombstones."""
    for each in evidence.tombstones:
        word, style = _VERDICTS[each.verdict]
        yield (("removed  ", "dim"), f"  {each.what} ", (each.name, "bold"), f"  from {each.day}: ", (word, style))
        if not quiet:
            yield from ((f"           {text}",) for text in tombstone_texts(each, evidence))


def summary_lines(evidence: LiveEvidence) -> Iterator[Line]:
    """Yield the lines about the store as a whole."""
    for text in (*evidence.gaps, *evidence.notes):
        yield (("store    ", "yellow"), f"  {text}")
    yield (("store    ", "dim"), f"  {summary_text(evidence)}")


def summary_text(evidence: LiveEvidence) -> str:
    """Return what the evidence covers, in one sentence."""
    living = count_text(evidence.living, "living entity", "living entities")
    used = sum(each.in_use for each in evidence.changes)
    concerned = f"{count_text(used, 'change concerns', 'changes concern')} something in use"
    within = f"an event counts as in use for {format_duration(evidence.within_ms)}"
    return f"{living}, {evidence.others:,} not on the new definition; {concerned}; {_window_text(evidence)}; {within}"


def markdown_lines(evidence: LiveEvidence) -> Iterator[str]:
    """Yield the lines about tombstones and the store for a pull request."""
    if evidence.tombstones:
        yield from ("", "| removed | from | in the store |", "|---|---|---|")
    for each in evidence.tombstones:
        text = ". ".join([_VERDICTS[each.verdict][0], *tombstone_texts(each, evidence)])
        yield f"| {each.what} `{each.name}` | {each.day} | {text} |"
    yield from ("", f"{summary_text(evidence)}.")
    yield from (f"{text}." for text in (*evidence.gaps, *evidence.notes))


def _entities_text(entities: int, oldest_ms: int | None) -> str:
    if not entities:
        return "no living entity is in it"
    verb = "is" if entities == 1 else "are"
    since = "" if oldest_ms is None else f", {'since' if entities == 1 else 'the oldest since'} {_day(oldest_ms)}"
    return f"{count_text(entities, 'living entity', 'living entities')} {verb} in it{since}"


def _seen_texts(seen: Sequence[LastSeen]) -> Iterator[str]:
    for each in seen[:NAMES_SHOWN_MAX]:
        times = count_text(each.count, "time", "times")
        first = _day(each.first_day_ms)
        yield f"{each.name}: last {_SEEN[each.what]} on {_day(each.last_ms)}, {times} since {first}"
    if len(seen) > NAMES_SHOWN_MAX:
        yield f"and {len(seen) - NAMES_SHOWN_MAX:,} more names; --json has all"


def _unseen_text(evidence: LiveEvidence) -> str:
    return f"not seen; {_window_text(evidence)}"


def _window_text(evidence: LiveEvidence) -> str:
    if evidence.since_ms is None:
        return "the store has seen nothing of this kind yet"
    days = max(1, (evidence.now_ms - evidence.since_ms) // DAY_MS)
    return f"the store knows {count_text(days, 'day', 'days')}"


def _day(ms: int) -> str:
    return time_text(ms)[:10]
