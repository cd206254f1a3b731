"""The suite of sends in the caller's transaction, on every driver and both databases."""

from __future__ import annotations

from pathlib import Path

import pytest

from interlock.testing.join_suite import JOIN_CASES, Case
from tests.conformance.join.programs import postgres_programs, postgres_subject, sqlite_programs, sqlite_subject
from tests.support.postgres_server import store_or_skip


@pytest.mark.parametrize("driver", sqlite_programs(Path("x"), ""))
@pytest.mark.parametrize("case", JOIN_CASES, ids=lambda case: case.__name__)
def test_a_program_on_sqlite(case: Case, driver: str, tmp_path: Path) -> None:
    with sqlite_subject(tmp_path / "program.db", driver) as subject:
        case(subject)


@pytest.mark.parametrize("driver", postgres_programs("postgresql://a:b@c:1/d", ""))
@pytest.mark.parametrize("case", JOIN_CASES, ids=lambda case: case.__name__)
def test_a_program_on_postgres(case: Case, driver: str) -> None:
    dsn, _, schema = store_or_skip().partition("?schema=")
    with postgres_subject(dsn, schema, driver) as subject:
        case(subject)
