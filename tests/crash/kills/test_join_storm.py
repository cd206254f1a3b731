"""Kill -9 between the program's own write and its COMMIT: a short storm, and its control."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.kills.join_storm import postgres_place, sqlite_place, storm
from tests.support.postgres_server import store_or_skip

pytestmark = pytest.mark.slow

ROUNDS = 12


def test_rows_and_entries_stay_together_on_sqlite(tmp_path: Path) -> None:
    outcome = storm(sqlite_place(tmp_path), rounds=ROUNDS)

    assert outcome.is_clean, outcome
    assert outcome.kills >= ROUNDS // 2


def test_rows_and_entries_stay_together_on_postgres() -> None:
    outcome = storm(postgres_place(store_or_skip()), rounds=ROUNDS)

    assert outcome.is_clean, outcome
    assert outcome.kills >= ROUNDS // 2


def test_a_program_that_commits_in_between_is_found(tmp_path: Path) -> None:
    """The control: the comparison finds what two transactions lose."""
    outcome = storm(sqlite_place(tmp_path), rounds=ROUNDS, with_commits_between=True)

    assert outcome.rows_without_entry > 0
