"""A short migration under clients and kills on SQLite and PostgreSQL, and the faults that it must find."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.migration.migration import Migration
from tests.crash.storms import Sizes, storm
from tests.support.postgres_server import store_or_skip

pytestmark = pytest.mark.slow

SHORT = Sizes(clients=8, kills=3)


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_migration_under_kills_loses_and_locks_nothing(store: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tickets.db" if store == "sqlite" else store_or_skip()
    counts = storm(Migration(200), url, SHORT)

    assert counts.is_clean, counts
    assert counts.done["migrated"] >= 200


@pytest.mark.parametrize(("fault", "found"), [("blind", "lost"), ("skip", "wrong revision")])
def test_a_planted_fault_is_found(fault: str, found: str, tmp_path: Path) -> None:
    counts = storm(Migration(60), f"sqlite:///{tmp_path}/tickets.db", SHORT, fault=fault)

    assert counts.wrong[found] > 0
