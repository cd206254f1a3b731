"""A short retention under clients and kills on SQLite and PostgreSQL, and the faults that it must find."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.retention.storm import Sizes, storm
from tests.support.postgres_server import store_or_skip

pytestmark = pytest.mark.slow

SHORT = Sizes(clients=8, kills=4)


@pytest.mark.parametrize(("store", "entities"), [("sqlite", 2_000), ("postgres", 500), ("files", 100)])
def test_a_removal_under_kills_loses_nothing_that_is_needed(store: str, entities: int, tmp_path: Path) -> None:
    url = {"sqlite": f"sqlite:///{tmp_path}/parcels.db", "files": f"file://{tmp_path}/parcels"}.get(store)
    counts = storm(url or store_or_skip(), SHORT, entities=entities)

    assert counts.is_clean, counts
    assert (counts.pruned, counts.compacted) == (entities * 6 // 10, entities * 2 // 10)


@pytest.mark.parametrize("fault", ["hold", "base"])
def test_a_planted_fault_is_found(fault: str, tmp_path: Path) -> None:
    counts = storm(f"sqlite:///{tmp_path}/parcels.db", Sizes(clients=2, kills=1), entities=60, fault=fault)

    assert counts.lost > 0
