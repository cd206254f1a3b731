"""A projection built while 32 clients send and its runners are killed: a short storm, and its control."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.kills.projection_storm import postgres_place, sqlite_place, storm
from tests.support.postgres_server import store_or_skip

pytestmark = pytest.mark.slow

KILLS = 8


def test_the_table_equals_the_store_on_sqlite(tmp_path: Path) -> None:
    outcome = storm(sqlite_place(tmp_path), kills=KILLS)

    assert outcome.is_clean, outcome
    assert KILLS == outcome.kills


def test_the_table_equals_the_store_on_postgres() -> None:
    outcome = storm(postgres_place(store_or_skip()), kills=KILLS)

    assert outcome.is_clean, outcome
    assert KILLS == outcome.kills


def test_a_position_that_is_committed_apart_from_the_table_is_found(tmp_path: Path) -> None:
    """The control: the comparison finds entries that took effect twice."""
    outcome = storm(sqlite_place(tmp_path), kills=KILLS, with_commits_between=True)

    assert outcome.doubled > 0


def test_a_position_that_is_committed_apart_from_the_table_is_found_on_postgres() -> None:
    outcome = storm(postgres_place(store_or_skip()), kills=KILLS, with_commits_between=True)

    assert outcome.doubled > 0
