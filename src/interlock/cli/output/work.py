"""Work items as lines and as JSON. The status words come from `observe.work_status`; their texts are here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from interlock.cli.output.entity import attempt_parts
from interlock.cli.output.terminal import Line, Part
from interlock.cli.output.values import age_text
from interlock.model.journal.attempts import failed_attempts
from interlock.model.journal.work import CHILD_WORK
from interlock.observe.work_status import WorkStatus, work_status
from interlock.operate.dead_letters import key_of
from interlock.ports.work import WorkRow
from interlock.runtime.charts.registry import child_entity

_STYLES = {"dead": "bold red", "retry": "yellow", "expired": "yellow", "cancelled": "dim"}


def work_lines(rows: Sequence[WorkRow], now_ms: int, handlers: frozenset[str] | None) -> Iterator[Line]:
    """One line for each row: key, handler, status, age, and the last error."""
    statuses = [work_status(row, now_ms=now_ms, handlers=handlers) for row in rows]
    cells = [
        (key_of(row), handler_text(row), _status_text(row, each, now_ms))
        for row, each in zip(rows, statuses, strict=True)
    ]
    widths = [max((len(each[column]) for each in cells), default=0) for column in range(3)]
    for row, status, (key, handler, text) in zip(rows, statuses, cells, strict=True):
        style, padded = _STYLES.get(status.word, ""), f"{text:<{widths[2]}}"
        part: Part = (padded, style) if style else padded
        yield (
            (f"{key:<{widths[0]}}", "bold"),
            f"  {handler:<{widths[1]}}  ",
            part,
            f"  {_age_text(row, now_ms)}{_error_text(row)}",
        )


def attention_lines(entity: str, rows: Sequence[WorkRow], now_ms: int) -> Iterator[Line]:
    """The work of one entity that failed or is overdue, each failed attempt, and the command that lists all of it."""
    found = [row for row in rows if row.failures or work_status(row, now_ms=now_ms).needs_attention]
    for row, line in zip(found, work_lines(found, now_ms, None), strict=True):
        yield (("  work     ", "bold yellow"), *line)
        for each in failed_attempts(row.error):
            yield ("           ", *attempt_parts(each))
    if found:
        yield ((f"  next     interlock effects ls --entity {entity}", "dim"),)


def failed_attempt_lines(row: WorkRow) -> Iterator[Line]:
    """The failed attempts of work, oldest first."""
    for each in failed_attempts(row.error):
        yield ("    ", *attempt_parts(each))


def handler_text(row: WorkRow) -> str:
    """The handler of work; with its lane for timers, sends and messages."""
    lane, name = row.work.id.lane, row.work.name
    if name == CHILD_WORK:
        src = row.work.body.get("src") if isinstance(row.work.body, dict) else None
        return f"child {src}"
    return name if lane == "effect" else f"{lane} {name}"


def _status_text(row: WorkRow, status: WorkStatus, now_ms: int) -> str:
    at_ms = status.at_ms or 0
    owner = (row.owner or "")[:12]
    text = {
        "dead": f"dead letter for {age_text(now_ms - at_ms)}",
        "cancelled": "cancelled",
        "running": f"running on {owner}, lease {age_text(at_ms - now_ms)}",
        "expired": f"lease of {owner} expired {age_text(now_ms - at_ms)} ago",
        "retry": f"retry {status.failures}/{status.retries_max} {_when_text(at_ms, now_ms)}",
        "pending": "pending",
        "scheduled": f"due {_when_text(at_ms, now_ms)}",
        "waiting_child": f"waiting for child{_child_text(row)}",
        "queued": "queued behind earlier messages",
        "held": "held",
    }[status.word]
    if status.word in ("pending", "scheduled") and status.is_overdue:
        text = f"overdue by {age_text(status.overdue_ms)}"
    return f"{text}; no handler" if status.handler_missing else text


def _child_text(row: WorkRow) -> str:
    """The child entity, if the row names its kind: the kind of an inline chart is generated."""
    src, invokeid = row.work.body.get("src"), row.work.body.get("id")
    if not isinstance(src, str) or not isinstance(invokeid, str) or "." in src:
        return ""
    return f" {child_entity(src, invokeid, key_of(row), restarts=row.failures)}"


def _when_text(at_ms: int, now_ms: int) -> str:
    return f"in {age_text(at_ms - now_ms)}" if at_ms > now_ms else "now"


def _age_text(row: WorkRow, now_ms: int) -> str:
    """The age of the work. The row of a timer has only its due time."""
    if row.work.due_ms is None or row.work.id.lane == "timer":
        return "-"
    return f"{age_text(now_ms - row.work.due_ms)} old"


def _error_text(row: WorkRow) -> str:
    if not isinstance(row.error, dict) or "code" not in row.error:
        return ""
    message, hint = (str(row.error.get(part) or "").replace("\n", "\\n") for part in ("message", "hint"))
    text = f"  {row.error['code']}: {message}" if message else f"  {row.error['code']}"
    return f"{text} ({hint})" if hint else text


def work_json(row: WorkRow, status: WorkStatus) -> dict[str, Any]:
    """A row for programs, without its input: that may be secret, and the journal has it."""
    return {
        "key": key_of(row),
        "entity": row.entity,
        "lane": row.work.id.lane,
        "version": row.work.id.version,
        "ordinal": row.work.id.ordinal,
        "name": row.work.name,
        "state": status.word,
        "missing": status.handler_missing,
        "attempts": row.attempts,
        "failures": row.failures,
        "next_ms": row.next_ms,
        "owner": row.owner,
        "dead_ms": row.dead_ms,
        "cancelled": row.cancelled,
        "error": row.error,
    }
