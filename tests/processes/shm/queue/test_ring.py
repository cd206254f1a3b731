"""Rings: order, limits, wraps and invalid bytes, in every mode."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.shm.memory.region import LINE, MemoryRegion
from interlock.shm.queue.ring import (
    FULL,
    PUSHED,
    PUSHED_NOTIFY,
    RING_HEAD,
    TOO_LARGE,
    PlainRing,
    Ring,
    open_ring,
    payload_bytes_max,
    ring_area_bytes,
)
from tests.processes.shm.queues import working_modes

RING = 256


@pytest.fixture(params=working_modes())
def region(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryRegion]:
    """A region in each mode that works here."""
    monkeypatch.setenv("INTERLOCK_SHM", request.param)
    with MemoryRegion.create(slots=2) as made:
        yield made


def new_ring(region: MemoryRegion, ring: int = RING) -> tuple[Ring, int, int]:
    """Return a new ring, its offset, and the offset of the asleep word."""
    asleep = region.area("asleep", LINE)
    offset = region.area("ring", ring_area_bytes(ring))
    return open_ring(region, offset, ring, asleep), offset, asleep


def test_messages_are_received_complete_and_in_order(region: MemoryRegion) -> None:
    """Of any length up to the largest, also empty ones."""
    ring, _, _ = new_ring(region)
    messages = [b"", b"a", b"12345678", b"x" * 100]

    answers = [ring.push(message) for message in messages]

    assert [PUSHED] * 4 == answers
    assert messages == ring.pop_many(10)
    assert [] == ring.pop_many(10)


def test_pop_many_returns_at_most_the_limit(region: MemoryRegion) -> None:
    ring, _, _ = new_ring(region)
    for number in range(5):
        ring.push(bytes([number]))

    assert [b"\0", b"\1"] == ring.pop_many(2)
    assert [] == ring.pop_many(0)
    assert ring.has_messages()
    assert [b"\2", b"\3", b"\4"] == ring.pop_many(9)
    assert not ring.has_messages()


def test_a_push_to_a_full_ring_fails(region: MemoryRegion) -> None:
    """It changes nothing; after a pop there is space again."""
    ring, _, _ = new_ring(region)
    count = 0
    while ring.push(b"12345678") == PUSHED:
        count += 1

    assert RING // 16 == count
    assert FULL == ring.push(b"")
    assert [b"12345678"] == ring.pop_many(1)
    assert PUSHED == ring.push(b"again")
    assert FULL == ring.push(b"12345678")
    assert [b"12345678"] * (count - 1) + [b"again"] == ring.pop_many(99)


def test_the_largest_message_is_half_the_ring(region: MemoryRegion) -> None:
    """It fits at any position of an empty ring; one byte more never does."""
    ring, _, _ = new_ring(region)
    largest = b"L" * payload_bytes_max(RING)

    for _ in range(40):
        assert PUSHED == ring.push(b"shift")
        assert TOO_LARGE == ring.push(largest + b"!")
        assert [b"shift"] == ring.pop_many(9)
        assert PUSHED == ring.push(largest)
        assert [largest] == ring.pop_many(9)


def test_a_push_returns_whether_the_consumer_sleeps(region: MemoryRegion) -> None:
    """The push never clears the word."""
    ring, _, asleep = new_ring(region)
    region.words.store(asleep, 1)

    assert PUSHED_NOTIFY == ring.push(b"wake")
    assert PUSHED_NOTIFY == ring.push(b"up")
    assert 1 == region.words.load(asleep)


def test_a_push_accepts_any_bytes_like_object(region: MemoryRegion) -> None:
    """But not text."""
    ring, _, _ = new_ring(region)
    words = memoryview(struct.pack("<2Q", 1, 2)).cast("Q")

    assert [PUSHED, PUSHED, PUSHED] == [ring.push(each) for each in (bytearray(b"ab"), memoryview(b"cd"), words)]
    assert [b"ab", b"cd", struct.pack("<2Q", 1, 2)] == ring.pop_many(9)
    with pytest.raises(TypeError):
        ring.push("text")  # type: ignore[arg-type]  # the point of the test
    assert not ring.has_messages()


@pytest.mark.parametrize("length", [RING, RING // 2 - 7, 0x7FFFFFFF, 0xFFFFFFFE, 0xFFFFFFFF])
def test_an_invalid_length_is_corrupt(region: MemoryRegion, length: int) -> None:
    """It is detected before the bytes are read."""
    ring, offset, _ = new_ring(region)
    struct.pack_into("<I", region.buffer, offset + RING_HEAD, length)
    region.words.store(offset, 64)

    assert ring.pop_many(9) is None
    assert 0 == region.words.load(offset + LINE)


@pytest.mark.parametrize(("tail", "head"), [(8, 16), (RING + 8, 0), (4, 0)])
def test_invalid_positions_are_corrupt(region: MemoryRegion, tail: int, head: int) -> None:
    """Head beyond tail, more than a ring between them, or an unaligned position."""
    ring, offset, _ = new_ring(region)
    region.words.store(offset, tail)
    region.words.store(offset + LINE, head)

    assert ring.pop_many(9) is None


def test_messages_before_a_corrupt_one_are_delivered(region: MemoryRegion) -> None:
    ring, offset, _ = new_ring(region)
    ring.push(b"good")
    struct.pack_into("<I", region.buffer, offset + RING_HEAD + 16, 0x7FFFFFFF)
    region.words.store(offset, 64)

    assert [b"good"] == ring.pop_many(9)
    assert ring.pop_many(9) is None


@pytest.mark.skipif("native" not in working_modes(), reason="SKIPPED: no C core here, so nothing to compare with")
@given(st.lists(st.one_of(st.binary(max_size=130), st.integers(1, 5)), max_size=60), st.booleans())
def test_the_core_and_the_fallback_share_one_ring(acts: list[bytes | int], producer_is_plain: bool) -> None:
    """One pushes and the other pops: same results, same bytes."""
    with MemoryRegion.create(slots=1) as region:
        asleep = region.area("asleep", LINE)
        offset = region.area("ring", ring_area_bytes(RING))
        native = open_ring(region, offset, RING, asleep)
        plain = PlainRing(region.words, memoryview(region.buffer), offset, RING, asleep)
        producer, consumer = (plain, native) if producer_is_plain else (native, plain)
        model: deque[bytes] = deque()
        for act in acts:
            if isinstance(act, int):
                assert [model.popleft() for _ in range(min(act, len(model)))] == consumer.pop_many(act)
                continue
            answer = producer.push(act)
            if answer == PUSHED:
                model.append(act)
            else:
                assert answer == (TOO_LARGE if len(act) > payload_bytes_max(RING) else FULL)
            assert bool(model) == consumer.has_messages()
