"""After a power cut or a disk failure on a real ext4, every acknowledged entry is stored."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.disks.full_disk import ADDRESSES, REFUSED_EACH, URLS
from tests.crash.disks.power_cut import cut, failed, is_possible
from tests.crash.simulated.mutants import retried_flush

CUTS = 8
ROUNDS = 3


@pytest.fixture(autouse=True)
def mounting(tmp_path: Path) -> None:
    """Skip the tests if no file system can be mounted."""
    why = is_possible(tmp_path)
    if why is not None:
        pytest.skip(why)


@pytest.mark.slow
@pytest.mark.parametrize("store", ADDRESSES)
def test_a_power_cut_takes_nothing_that_was_acknowledged(store: str, tmp_path: Path) -> None:
    """The file system is shut down under two writers, mounted again, and used again: receipts hold, each once."""
    outcome = cut(store, tmp_path / "cut", cuts=CUTS, seed=7)

    assert ([], CUTS) == (outcome.found(), outcome.kills)
    assert (True, True) == (outcome.inside > CUTS // 2, len(outcome.kept) > CUTS)


@pytest.mark.slow
@pytest.mark.parametrize("store", URLS)
def test_a_store_that_does_not_flush_is_found_out(store: str, tmp_path: Path) -> None:
    outcome = cut(store, tmp_path / "cut", cuts=1, seed=7, fault="unsynced")

    assert [] != outcome.lost


@pytest.mark.slow
@pytest.mark.parametrize("store", URLS)
def test_a_failing_disk_takes_nothing_that_was_acknowledged(store: str, tmp_path: Path) -> None:
    result = failed(store, tmp_path / "outer", rounds=ROUNDS)

    assert ([], ROUNDS * REFUSED_EACH) == (result.found, result.refused)
    assert "store.poisoned" in result.codes


@pytest.mark.slow
def test_a_store_that_flushes_again_is_found_out(tmp_path: Path) -> None:
    """The failing disk is not blind: the second flush says yes, and after a new start the entry is not there."""
    with retried_flush():
        result = failed("files", tmp_path / "outer", rounds=ROUNDS)

    assert [] != [each for each in result.found if each.startswith("lost")]
