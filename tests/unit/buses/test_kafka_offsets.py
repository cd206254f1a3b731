"""Offsets in a Kafka partition advance when everything before is acknowledged."""

from __future__ import annotations

from itertools import permutations

import pytest

from interlock.buses.kafka import _Offsets


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_the_offset_never_passes_an_unacknowledged_record(order: tuple[int, ...]) -> None:
    offsets = [5, 6, 9, 10]
    places = _Offsets()
    for each in offsets:
        places.start(each)
    taken: set[int] = set()
    reached: int | None = None
    for number in order:
        taken.add(offsets[number])
        before = [each for each in offsets if all(other in taken for other in offsets if other <= each)]
        reached = places.finish(offsets[number])

        assert reached is None or reached == max(before)
    assert 10 == reached
