"""The one encoding: deterministic, checked on the way in."""

from __future__ import annotations

import pytest

from interlock.errors import CorruptionError, SourceLocation
from interlock.model.document.actions import Expression
from interlock.model.document.document import Document, State, Transition
from interlock.model.document.field import Field
from interlock.model.encoding.codec import content_hash, decode_event, decode_snapshot, encode, to_builtins
from interlock.model.event import Event
from interlock.model.limits import SNAPSHOT_BYTES_MAX
from interlock.model.snapshot import Invocation, Parent, Snapshot, Timer

FULL = Snapshot(
    "order",
    "order/1",
    7,
    "1+abc",
    ("a", "b"),
    {"z": 1, "a": [None, 1.5]},
    {"h": ("x",)},
    (Timer("t", "late", 5, 1, 0),),
    (Invocation("i", "a", 0, "order/1/1/0"),),
    (Event("kept"),),
    ("a",),
    None,
    None,
    Parent("p/1", "i"),
)


def test_a_snapshot_reads_back_as_itself() -> None:
    assert decode_snapshot(encode(FULL)) == FULL
    assert b'"context":{"a":[null,1.5],"z":1}' in encode(FULL)


def test_an_event_reads_back_as_itself() -> None:
    event = Event("pay", {"n": 1}, id="e-1", time_ms=5)

    assert decode_event(encode(event)) == event
    assert encode(Event("pay")) == b'{"name":"pay"}'
    assert to_builtins(Event("pay", 1)) == {"name": "pay", "data": 1}


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"kind":1}', b'{"kind":"\xff"}', b"[" * 100_000])
def test_bytes_that_are_no_snapshot_are_corruption(data: bytes) -> None:
    with pytest.raises(CorruptionError) as caught:
        decode_snapshot(data)

    assert caught.value.code == "snapshot.decode"


def test_more_bytes_than_a_snapshot_may_have_are_refused_unread() -> None:
    with pytest.raises(CorruptionError) as caught:
        decode_event(b" " * (SNAPSHOT_BYTES_MAX + 1))

    assert caught.value.code == "event.size"


def _document(**changes: object) -> Document:
    state = State(key="a", transitions=(Transition(events=("go",), targets=("a",), reenter=True),))
    fields = (Field(name="n", default=Expression("1 + 1"), enum=(1, {"x": [2]})),)
    return Document(**{"kind": "k", "root": State(states=(state,), context=fields), **changes})  # type: ignore[arg-type]  # keywords of one class


def test_the_content_hash_is_of_what_is_said_not_where() -> None:
    """Moving a definition to other lines keeps its revision; changing it does not."""
    moved = _document(
        root=State(states=_document().root.states, context=_document().root.context, location=SourceLocation("f", 9, 9))
    )

    assert content_hash(_document()) == content_hash(moved)
    assert content_hash(_document()) != content_hash(_document(kind="other"))
