"""On a full disk the store refuses new entries, loses nothing, and continues when there is free space."""

from pathlib import Path

import pytest

from tests.crash.disks.full_disk import REFUSED_EACH, URLS, filled
from tests.crash.disks.mounts import tmpfs

ROUNDS = 5


@pytest.mark.slow
@pytest.mark.parametrize("store", URLS)
def test_a_full_disk_refuses_and_the_store_goes_on_when_there_is_room(store: str, tmp_path: Path) -> None:
    """In every round the same handle says `store.full` and later takes the same keys; every receipt holds."""
    with tmpfs(tmp_path / "disk", "4m") as disk:
        result = filled(store, disk, rounds=ROUNDS)

    assert ([], {"store.full"}, ROUNDS) == (result.found, result.codes, result.rounds)
    assert ROUNDS * REFUSED_EACH == result.refused


@pytest.mark.slow
def test_a_log_that_fills_the_disk_is_taken_into_its_file(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", "4m") as disk:
        result = filled("sqlite", disk, rounds=30)

    assert ([], 30 * REFUSED_EACH) == (result.found, result.refused)
