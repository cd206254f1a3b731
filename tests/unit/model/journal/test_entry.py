"""Entries, receipts and records, valid and damaged."""

from __future__ import annotations

from hashlib import blake2b

import pytest

from interlock.errors import DeniedError, RejectedError
from interlock.model.encoding.codec import encode
from interlock.model.event import Event
from interlock.model.journal.entry import Entry, Receipt
from interlock.model.journal.record import InvalidRecord, JournalRecord, chain_start, decode_record, encode_record
from interlock.model.step import FailedGuard, Fault

ENTRY = Entry(1, Event("_create"), "applied", (), ("a",), "1+abc", "k-1")
START = chain_start("lamp/1")


def test_a_good_receipt_is_what_it_expects() -> None:
    for outcome in ("applied", "ignored", "duplicate"):
        receipt = Receipt("lamp/1", outcome, 2)

        assert receipt is receipt.expect()


@pytest.mark.parametrize(
    ("receipt", "words"),
    [
        (Receipt("lamp/1", "rejected", 2, "no_transition"), "no_transition"),
        (
            Receipt(
                "lamp/1", "rejected", 2, "guard", failed_guards=(FailedGuard(0, "context.n > 1", {"context.n": 0}),)
            ),
            "n > 1",
        ),
        (Receipt("lamp/1", "rejected", 2, "payload", faults=(Fault("event.payload", "`n` is missing"),)), "`n` is"),
    ],
)
def test_a_rejection_says_why_when_it_is_raised(receipt: Receipt, words: str) -> None:
    with pytest.raises(RejectedError) as caught:
        receipt.expect()

    assert words in str(caught.value)
    assert f"rejected.{receipt.reason}" == caught.value.code


def test_a_denial_is_raised_as_one() -> None:
    with pytest.raises(DeniedError) as caught:
        Receipt("lamp/1", "denied", 2, "roles").expect()

    assert "denied.roles" == caught.value.code


def test_an_entry_is_written_in_the_words_of_a_journal() -> None:
    """`from` and `to`, as people read it."""
    assert b'"from":[],"to":["a"]' in encode(ENTRY)


def test_a_record_reads_back_as_itself() -> None:
    record = encode_record(ENTRY, durable=0, previous=START)

    assert record == decode_record(record.line, previous=START, version=1)
    assert isinstance(decode_record(record.line, previous=chain_start("lamp/2"), version=1), InvalidRecord)
    assert isinstance(decode_record(record.line, previous=START, version=2), InvalidRecord)
    assert START != chain_start("lamp/1", tenant="t") != chain_start("lamp/1", store_key=b"secret")


@pytest.mark.parametrize("cut", [0, 10, -1])
def test_a_truncated_line_is_invalid(cut: int) -> None:
    line = encode_record(ENTRY, durable=0, previous=START).line[:cut]

    assert isinstance(decode_record(line, previous=START, version=1), InvalidRecord)


def test_a_record_with_a_valid_hash_and_invalid_content_is_invalid() -> None:
    whole = encode_record(ENTRY, durable=0, previous=START)
    body = whole.line.replace(b'"d":0', b'"d":""')[: -len(',"h":""}\n') - 32]
    line = _chained(body)

    found = decode_record(line, previous=START, version=1)

    assert isinstance(found, InvalidRecord)
    assert not isinstance(found, JournalRecord)


def _chained(body: bytes) -> bytes:
    head = blake2b(START.encode() + body, digest_size=16).hexdigest()
    return body + b',"h":"' + head.encode() + b'"}\n'
