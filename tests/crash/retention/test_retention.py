"""A short retention under clients and kills on every store, and the faults that it must find."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.retention.retention import Retention
from tests.crash.storms import Sizes, storm
from tests.support.postgres_server import store_or_skip

pytestmark = pytest.mark.slow

SHORT = Sizes(clients=8, kills=4)


@pytest.mark.parametrize(("store", "entities"), [("sqlite", 2_000), ("postgres", 500), ("files", 100)])
def test_a_removal_under_kills_loses_nothing_that_is_needed(store: str, entities: int, tmp_path: Path) -> None:
    url = {"sqlite": f"sqlite:///{tmp_path}/parcels.db", "files": f"file://{tmp_path}/parcels"}.get(store)
    counts = storm(Retention(entities), url or store_or_skip(), SHORT)

    assert counts.is_clean, counts
    assert (counts.done["pruned"], counts.done["compacted"]) == (entities * 6 // 10, entities * 2 // 10)


@pytest.mark.parametrize("fault", ["hold", "base"])
def test_a_planted_fault_is_found(fault: str, tmp_path: Path) -> None:
    counts = storm(Retention(60), f"sqlite:///{tmp_path}/parcels.db", Sizes(clients=2, kills=1), fault=fault)

    assert counts.wrong["lost"] > 0
