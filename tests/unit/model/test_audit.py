"""Rows of the audit as values: their bytes, and who an actor is."""

from __future__ import annotations

import pytest

from interlock.errors import CorruptionError
from interlock.model.actor import Actor, actor_of
from interlock.model.audit import (
    LOCAL,
    TIMER,
    WORKER,
    AuditRecord,
    AuditRow,
    actor_of_event,
    decode_former_row,
    encode_row,
    index_actor,
)
from interlock.model.event import Event
from interlock.model.journal.entry import CREATE
from interlock.model.limits import AUDIT_NAME_BYTES_MAX


@pytest.mark.parametrize("former", [None, 3])
def test_bytes_that_are_no_row_are_corrupt(former: int | None) -> None:
    """A store without columns for time and actor cannot find them there."""
    record = AuditRecord(7, 1, "eve", b'{"entity":', "x", former)

    with pytest.raises(CorruptionError) as caught:
        record.decode()

    assert ("audit.row", True) == (caught.value.code, "row 7" in caught.value.message)
    assert record == record.indexed()


def test_a_record_is_found_by_what_its_bytes_say() -> None:
    row = AuditRow("order/1", "ship", "denied", "roles", 5, actor="eve")
    record = AuditRecord(1, 0, None, encode_row(row), "x").indexed()

    assert (row, 5, "eve") == (record.decode(), record.time_ms, record.actor)


def test_text_that_no_store_accepts_is_replaced() -> None:
    """A lone surrogate has no bytes, and PostgreSQL accepts no NUL."""
    row = AuditRow("order/\ud800", "a\0b", "rejected", "entity.malformed", 1, originator=Actor("\ud800", "user"))
    found = AuditRecord(1, 1, None, encode_row(row), "x").decode()

    assert ("order/\ufffd", "a\ufffdb", Actor("\ufffd", "user")) == (found.entity, found.event, found.originator)


def test_a_long_actor_is_found_by_a_digest() -> None:
    long = "x" * (AUDIT_NAME_BYTES_MAX + 1)

    assert (None, "eve") == (index_actor(None), index_actor("eve"))
    assert index_actor(long) != index_actor(f"{long}y")
    assert len((index_actor(long) or "").encode()) <= AUDIT_NAME_BYTES_MAX


def test_who_a_principal_is() -> None:
    """Text from outside never decides that an actor is the system, unless it says so by a known word."""
    assert [None, None, Actor("7", "user"), Actor("b", "service"), Actor("w", "system"), Actor("x", "user")] == [
        actor_of(each)
        for each in (
            "eve",
            {"kind": "user"},
            {"id": 7, "kind": ["system"]},
            {"id": "b", "kind": "bus"},
            {"id": "w", "kind": "worker"},
            {"id": "x", "kind": "root"},
        )
    ]


@pytest.mark.parametrize(
    ("data", "actor"),
    [
        ({"parent": {"entity": "order/1"}}, Actor("order/1", "system")),
        ({"parent": None}, LOCAL),
        ({"parent": {}}, LOCAL),
        (None, LOCAL),
    ],
)
def test_who_creates_an_entity(data: object, actor: Actor) -> None:
    """A parent, or a program that named no principal."""
    assert actor == actor_of_event(Event(CREATE, data, time_ms=1))


@pytest.mark.parametrize(
    ("event", "actor"),
    [
        (Event("go", principal={"id": "eve"}, time_ms=1), Actor("eve", "user")),
        (Event("after.1h.a", source="timer/after.1h.a/2", time_ms=1), TIMER),
        (Event("done.invoke.x", source="invoke/order/1/2/0", time_ms=1), WORKER),
        (Event("go", time_ms=1), LOCAL),
    ],
)
def test_who_caused_an_event(event: Event, actor: Actor) -> None:
    assert actor == actor_of_event(event)


def test_rows_of_an_earlier_release_are_read() -> None:
    line = b'{"entity":"order/1","event":"go","outcome":"denied","reason":"roles","time_ms":4,"principal":"eve"}'
    row = AuditRow("order/1", "go", "denied", "roles", 4, actor="eve")

    assert [row, row, None, None] == [
        decode_former_row(line),
        AuditRecord(1, 4, "eve", line, "x", former=9).decode(),
        decode_former_row(line[:-1]),
        decode_former_row(b"\xff"),
    ]
