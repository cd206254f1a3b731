"""The status of work: one word for each row, and whether it is overdue."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.model.journal.work import CHILD_WORK, Work, WorkId
from interlock.observe.work_status import DESCRIPTIONS, work_status
from interlock.ports.work import WorkRow

NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("row", "word"),
    [
        ({"next_ms": NOW}, "pending"),
        ({"next_ms": NOW + 1}, "scheduled"),
        ({"next_ms": NOW + 1, "failures": 1}, "retry"),
        ({"next_ms": NOW + 1, "owner": "w"}, "running"),
        ({"next_ms": NOW, "owner": "w"}, "expired"),
        ({"next_ms": NOW, "owner": "w", "failures": 1}, "expired"),
        ({"next_ms": None}, "queued"),
        ({"next_ms": None, "name": CHILD_WORK}, "waiting_child"),
        ({"next_ms": None, "name": CHILD_WORK, "failures": 1}, "waiting_child"),
        ({"next_ms": None, "due_ms": None}, "held"),
        ({"next_ms": None, "due_ms": None, "lane": "message"}, "queued"),
        ({"next_ms": NOW, "cancelled": True}, "cancelled"),
        ({"next_ms": NOW, "cancelled": True, "dead_ms": NOW}, "dead"),
    ],
)
def test_a_row_has_one_status(row: dict[str, Any], word: str) -> None:
    fields = {"failures": 0, "attempts": 0, "name": "charge", **row}
    work_id, due_ms = WorkId(fields.pop("lane", "effect"), 1, 0), fields.pop("due_ms", NOW)
    work = Work(work_id, fields.pop("name"), {"id": "charge"}, due_ms)
    found = work_status(WorkRow(entity="order/1", work=work, **fields), now_ms=NOW)

    assert word == found.word
    assert found.word in DESCRIPTIONS


@pytest.mark.parametrize(
    ("row", "is_overdue"),
    [
        ({"next_ms": NOW - 9_000}, False),
        ({"next_ms": NOW - 11_000}, True),
        ({"next_ms": NOW - 11_000, "failures": 1}, True),
        ({"next_ms": NOW - 11_000, "owner": "w"}, True),
        ({"next_ms": NOW + 30_000, "owner": "w"}, False),
        ({"next_ms": NOW - 11_000, "dead_ms": NOW}, False),
        ({"next_ms": NOW - 11_000, "cancelled": True}, False),
        ({"next_ms": None}, False),
        ({"next_ms": NOW + 60_000}, False),
        ({"next_ms": NOW + 500, "due_ms": NOW - 60_000}, True),  # put off again and again: no worker has its chart
        ({"next_ms": NOW + 500, "due_ms": NOW - 60_000, "attempts": 9, "lane": "timer"}, True),
        ({"next_ms": NOW + 60_000, "due_ms": NOW - 60_000, "lane": "timer"}, False),  # downtime moved it
        ({"next_ms": NOW - 500, "due_ms": NOW - 60_000, "attempts": 1}, False),  # requeued by a worker that stopped
        ({"next_ms": NOW + 500, "due_ms": NOW - 60_000, "name": CHILD_WORK}, False),
    ],
)
def test_work_is_overdue_if_a_worker_should_have_claimed_it_long_ago(row: dict[str, Any], is_overdue: bool) -> None:
    fields = {"failures": 0, "attempts": 0, "due_ms": row["next_ms"], "lane": "effect", "name": "charge", **row}
    work_id = WorkId(fields.pop("lane"), 1, 0)
    work = Work(work_id, fields.pop("name"), {"id": "charge"}, fields.pop("due_ms"))

    assert is_overdue == work_status(WorkRow(entity="order/1", work=work, **fields), now_ms=NOW).is_overdue
