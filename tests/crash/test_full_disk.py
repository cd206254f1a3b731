"""A disk that is full refuses, loses nothing, and is used again as soon as there is room."""

from pathlib import Path

import pytest

from tests.crash.disks import tmpfs
from tests.crash.full_disk import REFUSED_EACH, URLS, filled

ROUNDS = 5


@pytest.mark.slow
@pytest.mark.parametrize("store", URLS)
def test_a_full_disk_refuses_and_the_store_goes_on_when_there_is_room(store: str, tmp_path: Path) -> None:
    """In every round the same handle says `store.full` and later takes the same keys; every receipt holds."""
    with tmpfs(tmp_path / "disk", "4m") as disk:
        result = filled(store, disk, rounds=ROUNDS)

    assert ([], {"store.full"}, ROUNDS) == (result.found, result.codes, result.rounds)
    assert ROUNDS * REFUSED_EACH == result.refused
