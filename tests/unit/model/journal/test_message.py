"""Messages: what an entry says, and the CloudEvents that carry it, out and in."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from interlock.errors import RejectedError
from interlock.model.event import Event
from interlock.model.journal.entry import Entry
from interlock.model.journal.message import (
    Message,
    change_message,
    decode_message,
    encode_message,
    message_body,
    message_of,
)
from interlock.model.journal.work import WorkId
from interlock.model.limits import MESSAGE_BYTES_MAX

NOW = 1_794_700_000_123
TRACE = f"00-{'a' * 32}-{'b' * 16}-01"
PLACE = WorkId("message", 7, 2)


def entry(*, principal: Any = None, key: str = "req-1", before: tuple[str, ...] = ("unpaid",)) -> Entry:
    """An entry: an order was paid."""
    event = Event("pay", {"card": "secret"}, principal=principal, time_ms=NOW)
    return Entry(7, event, "applied", before, ("paid",), "1+abc", key, trace=TRACE)


def test_a_message_does_not_contain_the_payload() -> None:
    word, data = change_message(entry(principal={"id": "ada", "roles": ["clerk"]}), None)
    body = message_body(entry(principal={"id": "ada", "roles": ["clerk"]}), f"order.{word}", data)
    message = message_of("order/A-1", PLACE, body)

    assert {"event": "pay", "from": ("unpaid",), "to": ("paid",), "version": 7} == message.data
    assert ("order.state.changed", "order/A-1/7/2", "/interlock/order") == (message.type, message.id, message.source)
    assert ("ada", "req-1", TRACE, "1+abc") == (message.principal, message.key, message.trace, message.revision)
    assert b"secret" not in encode_message(message)
    assert b"clerk" not in encode_message(message)


def test_an_entry_that_changes_no_state_says_so() -> None:
    assert "context.changed" == change_message(entry(before=("paid",)), None)[0]


def test_the_last_message_says_how_the_entity_ended() -> None:
    assert "done" == change_message(entry(), "done")[1]["ended"]


@pytest.mark.parametrize("principal", [None, "ada", {}, {"id": None}])
def test_a_sender_without_a_name_is_not_named(principal: Any) -> None:
    assert "principal" not in message_body(entry(principal=principal), "t", None)


def test_a_key_of_the_driver_is_not_sent() -> None:
    assert "key" not in message_body(entry(key="_token"), "t", None)


@pytest.mark.parametrize("key", ["_bus/5:/shop#1", "_bulk/j/order/1", "_reconcile/stuck/7"])
def test_a_request_with_a_driver_key_is_sent_by_its_name(key: str) -> None:
    asked = entry(key=key)
    named = replace(asked, event=replace(asked.event, key="/shop#1"))

    assert "/shop#1" == message_body(named, "t", None)["key"]


def test_sequences_compare_as_text_in_the_order_of_the_journal() -> None:
    places = [WorkId("message", version, ordinal) for version in (1, 9, 10, 123_456) for ordinal in (0, 2, 10, 1_000)]
    found = [str(message_of("order/1", each, {"type": "t", "time_ms": 0}).sequence) for each in places]

    assert sorted(found) == found
    assert len(set(found)) == len(found)


def test_on_the_wire_a_message_is_a_structured_cloudevent() -> None:
    message = message_of(
        "order/A-1", PLACE, message_body(entry(), "order.paid", {"n": 1}), source="https://shop.example"
    )
    found = json.loads(encode_message(message))

    assert {
        "specversion": "1.0",
        "id": "order/A-1/7/2",
        "source": "https://shop.example/order",
        "type": "order.paid",
        "subject": "order/A-1",
        "time": "2026-11-14T23:46:40.123Z",
        "datacontenttype": "application/json",
        "data": {"n": 1},
        "sequence": "000000000007.0002",
        "partitionkey": "order/A-1",
        "kind": "order",
        "event": "pay",
        "key": "req-1",
        "revision": "1+abc",
        "traceparent": TRACE,
    } == found
    assert all(name.isalnum() and name.islower() and len(name) <= 20 for name in found)


@pytest.mark.parametrize(
    "message",
    [
        Message(id="1", source="/x", type="t"),
        Message(id="1", source="/x", type="t", subject="s", time_ms=NOW, data={"a": [1, None]}, trace=TRACE),
        Message(id="1", source="/x", type="t", data=b"\x00\xff", trace="no traceparent"),
        Message(id="é\u2028", source="/x", type="t", time_ms=-1, more={"dataschema": "https://x", "own": 3}),
    ],
)
def test_what_goes_out_comes_in_as_it_was(message: Message) -> None:
    """Binary data, others' attributes and times before 1970 too."""
    assert message == decode_message(encode_message(message))


def test_a_time_that_no_calendar_has_is_left_out() -> None:
    assert "time" not in json.loads(encode_message(Message(id="1", source="/x", type="t", time_ms=10**17)))


@pytest.mark.parametrize("theirs", [5, ["a"], {"a": 1}, True])
def test_an_invalid_trace_attribute_of_others_is_kept_unchanged(theirs: Any) -> None:
    found = decode_message(json.dumps({**GOOD, "trace": theirs}).encode())

    assert (None, {"trace": theirs}) == (found.trace, found.more)


@pytest.mark.parametrize("theirs", ["z" * 500, "00-x", {"a": 1}, 5])
def test_an_invalid_traceparent_is_ignored(theirs: Any) -> None:
    """As W3C says; a `trace` of another form stays as it is, and the message can be sent on."""
    found = decode_message(json.dumps({**GOOD, "traceparent": theirs, "trace": 7}).encode())

    assert (None, {"trace": 7}) == (found.trace, found.more)
    assert found == decode_message(encode_message(found))


GOOD: dict[str, Any] = {"specversion": "1.0", "id": "1", "source": "/x", "type": "t"}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "JSON"),
        (b"\xff\xfe", "JSON"),
        (b"[" * 100_000, "JSON"),
        (b"[]", "CloudEvent"),
        (b'"x"', "CloudEvent"),
        ({**GOOD, "specversion": "0.3"}, "CloudEvent"),
        ({**GOOD, "id": None}, "`id` is missing"),
        ({**GOOD, "type": ""}, "`type` is missing"),
        ({**GOOD, "source": 5}, "`source`"),
        ({**GOOD, "subject": ["x"]}, "`subject`"),
        ({**GOOD, "time": "yesterday"}, "`time`"),
        ({**GOOD, "time": 5}, "`time`"),
        ({**GOOD, "time": "2026-11-15T04:26:40"}, "`time`"),
        ({**GOOD, "data_base64": "!"}, "base64"),
        ({**GOOD, "data_base64": 5}, "base64"),
        (b"x" * (MESSAGE_BYTES_MAX + 1), "bytes"),
    ],
)
def test_an_invalid_message_is_rejected_with_the_reason(body: Any, why: str) -> None:
    with pytest.raises(RejectedError) as caught:
        decode_message(body if isinstance(body, bytes) else json.dumps(body).encode())

    assert ("message.malformed", True) == (caught.value.code, why in caught.value.message)
