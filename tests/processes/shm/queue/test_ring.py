"""Lanes: order, limits, wraps, and bytes that no producer wrote, in every mode."""

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


def lane_of(region: MemoryRegion, ring: int = RING) -> tuple[Ring, int, int]:
    """A fresh lane, its offset, and the offset of the asleep word."""
    asleep = region.area("asleep", LINE)
    offset = region.area("lane", ring_area_bytes(ring))
    return open_ring(region, offset, ring, asleep), offset, asleep


def test_messages_come_out_whole_and_in_order(region: MemoryRegion) -> None:
    """What goes in first comes out first, of any length up to the largest, also of no length."""
    lane, _, _ = lane_of(region)
    messages = [b"", b"a", b"12345678", b"x" * 100]

    answers = [lane.push(message) for message in messages]

    assert [PUSHED] * 4 == answers
    assert messages == lane.pop_many(10)
    assert [] == lane.pop_many(10)


def test_a_limit_leaves_the_rest(region: MemoryRegion) -> None:
    """`pop_many` takes no more than it was asked for."""
    lane, _, _ = lane_of(region)
    for number in range(5):
        lane.push(bytes([number]))

    assert [b"\0", b"\1"] == lane.pop_many(2)
    assert [] == lane.pop_many(0)
    assert lane.has_messages()
    assert [b"\2", b"\3", b"\4"] == lane.pop_many(9)
    assert not lane.has_messages()


def test_a_full_lane_answers_and_loses_nothing(region: MemoryRegion) -> None:
    """A push that does not fit changes nothing; after a pop there is room again."""
    lane, _, _ = lane_of(region)
    count = 0
    while lane.push(b"12345678") == PUSHED:
        count += 1

    assert RING // 16 == count
    assert FULL == lane.push(b"")
    assert [b"12345678"] == lane.pop_many(1)
    assert PUSHED == lane.push(b"again")
    assert FULL == lane.push(b"12345678")
    assert [b"12345678"] * (count - 1) + [b"again"] == lane.pop_many(99)


def test_the_largest_message_is_half_the_ring(region: MemoryRegion) -> None:
    """It fits into an empty ring wherever the ring stands; one byte more never does."""
    lane, _, _ = lane_of(region)
    largest = b"L" * payload_bytes_max(RING)

    for _ in range(40):
        assert PUSHED == lane.push(b"shift")
        assert TOO_LARGE == lane.push(largest + b"!")
        assert [b"shift"] == lane.pop_many(9)
        assert PUSHED == lane.push(largest)
        assert [largest] == lane.pop_many(9)


def test_a_push_tells_when_the_consumer_sleeps(region: MemoryRegion) -> None:
    """The answer says whether to ring; the push itself never clears the word."""
    lane, _, asleep = lane_of(region)
    region.words.store(asleep, 1)

    assert PUSHED_NOTIFY == lane.push(b"wake")
    assert PUSHED_NOTIFY == lane.push(b"up")
    assert 1 == region.words.load(asleep)


def test_any_kind_of_bytes_is_taken(region: MemoryRegion) -> None:
    """Memory views and byte arrays go in as bytes do; text does not."""
    lane, _, _ = lane_of(region)
    words = memoryview(struct.pack("<2Q", 1, 2)).cast("Q")

    assert [PUSHED, PUSHED, PUSHED] == [lane.push(each) for each in (bytearray(b"ab"), memoryview(b"cd"), words)]
    assert [b"ab", b"cd", struct.pack("<2Q", 1, 2)] == lane.pop_many(9)
    with pytest.raises(TypeError):
        lane.push("text")  # type: ignore[arg-type]  # the point of the test
    assert not lane.has_messages()


@pytest.mark.parametrize("length", [RING, RING // 2 - 7, 0x7FFFFFFF, 0xFFFFFFFE, 0xFFFFFFFF])
def test_bytes_of_no_producer_are_called_corrupt(region: MemoryRegion, length: int) -> None:
    """A length that no push writes is noticed before a byte of it is read."""
    lane, offset, _ = lane_of(region)
    struct.pack_into("<I", region.buffer, offset + RING_HEAD, length)
    region.words.store(offset, 64)

    assert lane.pop_many(9) is None
    assert 0 == region.words.load(offset + LINE)


@pytest.mark.parametrize(("tail", "head"), [(8, 16), (RING + 8, 0), (4, 0)])
def test_positions_of_no_lane_are_called_corrupt(region: MemoryRegion, tail: int, head: int) -> None:
    """Head beyond tail, more than a ring between them, or a position between words."""
    lane, offset, _ = lane_of(region)
    region.words.store(offset, tail)
    region.words.store(offset + LINE, head)

    assert lane.pop_many(9) is None


def test_messages_before_the_damage_are_delivered_first(region: MemoryRegion) -> None:
    """What was published whole is not lost because of what follows."""
    lane, offset, _ = lane_of(region)
    lane.push(b"good")
    struct.pack_into("<I", region.buffer, offset + RING_HEAD + 16, 0x7FFFFFFF)
    region.words.store(offset, 64)

    assert [b"good"] == lane.pop_many(9)
    assert lane.pop_many(9) is None


@pytest.mark.skipif("native" not in working_modes(), reason="SKIPPED: no C core here, so nothing to compare with")
@given(st.lists(st.one_of(st.binary(max_size=130), st.integers(1, 5)), max_size=60), st.booleans())
def test_the_core_and_the_fallback_are_one_lane(acts: list[bytes | int], producer_is_plain: bool) -> None:
    """Either may push and the other pop: same answers, same bytes, against a queue of Python's own."""
    with MemoryRegion.create(slots=1) as region:
        asleep = region.area("asleep", LINE)
        offset = region.area("lane", ring_area_bytes(RING))
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
