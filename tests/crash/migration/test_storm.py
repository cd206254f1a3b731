"""A short migration under clients and kills on SQLite and PostgreSQL, and the faults that it must find."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.migration.storm import Sizes, storm
from tests.support.postgres_server import store_or_skip

pytestmark = pytest.mark.slow

SHORT = Sizes(clients=8, kills=3)


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_migration_under_kills_loses_and_locks_nothing(store: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tickets.db" if store == "sqlite" else store_or_skip()
    counts = storm(url, SHORT, entities=200)

    assert counts.is_clean, counts
    assert counts.migrated >= 200


@pytest.mark.parametrize(("fault", "found"), [("blind", "lost"), ("skip", "wrong_revision")])
def test_a_planted_fault_is_found(fault: str, found: str, tmp_path: Path) -> None:
    counts = storm(f"sqlite:///{tmp_path}/tickets.db", SHORT, entities=60, fault=fault)

    assert getattr(counts, found) > 0
