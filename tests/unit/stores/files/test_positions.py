"""Positions in long journals: any page is near one, and their number is bounded."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from interlock.model.journal.record import InvalidRecord, JournalRecord, decode_record
from interlock.stores.files.durable_io import Settings
from interlock.stores.files.journal import reading
from interlock.stores.files.journal.line_formats import Position
from interlock.stores.files.reader import ENDS_MAX, POSITIONS_MAX, Positions
from tests.crash.life import ENTITY, opened, step
from tests.crash.simulated.file_system import Simulated, World

LONG = 2_000


def walked(versions: range) -> Positions:
    """The positions of a journal that was read once from the start."""
    places = Positions()
    for version in versions:
        if version % places.apart == 0:
            places.add(Position(version, version * 100, ""))
    return places


def test_the_nearest_position_comes_first() -> None:
    """Positions after the requested version are of no use."""
    places = walked(range(1, 1_001))

    assert [768, 512, 256] == [mark.version for mark in places.up_to(1_000)]
    assert [512, 256] == [mark.version for mark in places.up_to(767)]
    assert () == places.up_to(255)


def test_a_journal_of_any_length_has_few_positions_that_are_evenly_spread() -> None:
    """No two neighbours are farther apart than `apart`."""
    places = walked(range(1, 1_000_001))
    versions = [mark.version for mark in reversed(places.up_to(1_000_000))]

    assert POSITIONS_MAX // 2 <= len(versions) <= POSITIONS_MAX
    assert max(later - sooner for sooner, later in pairwise(versions)) <= places.apart


def test_a_position_of_a_replaced_journal_is_replaced() -> None:
    """The newest position of a version counts."""
    places = walked(range(1, 300))
    places.add(Position(256, 1, "other"))

    assert (Position(256, 1, "other"),) == places.up_to(300)


def test_a_reader_that_follows_a_journal_displaces_no_position() -> None:
    """Each of its readings ends at another version; it continues from the last, and the other positions stay."""
    places = walked(range(1, 1_001))
    for version in range(1_001, 1_280):
        places.add(Position(version, version * 100, ""))
    nearest = [mark.version for mark in places.up_to(1_279)]

    assert 256 == places.apart
    assert ([1_279, 1_278], [1_024, 768, 512, 256]) == (nearest[:2], nearest[-4:])
    assert len(nearest) == ENDS_MAX + 4


def test_a_page_of_a_long_journal_is_read_from_a_near_position(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also backwards, from the end: what was read once is not read again."""
    fs = Simulated(World())
    journals = opened(fs, Settings(snapshot_every=10_000))
    for version in range(1, LONG + 1):
        journals.append(step(version, f"k{version}"))
    reader = opened(Simulated(fs.world, process=2), Settings())
    decoded = list[int]()

    def counted(line: bytes, *, version: int, **facts: Any) -> JournalRecord | InvalidRecord:
        decoded.append(version)
        return decode_record(line, version=version, **facts)

    monkeypatch.setattr(reading, "decode_record", counted)
    costs = []
    for after in (LONG - 10, LONG - 500, 300, LONG - 10):
        decoded.clear()
        records = reader.read(ENTITY, after=after, limit=10)
        costs.append(len(decoded))

        assert list(range(after + 1, after + 11)) == [record.version for record in records]
    assert LONG == costs[0]
    assert max(costs[1:]) < 256 + 10
