"""Reading in the caller's transaction, on every driver and both databases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from interlock.errors import NotFoundError, UsageError
from interlock.testing.join_suite import JoinSubject
from tests.conformance.join.programs import postgres_programs, postgres_subject, sqlite_programs, sqlite_subject
from tests.support.postgres_server import store_or_skip


def sees_what_the_transaction_wrote(subject: JoinSubject) -> None:
    """The program reads its own writes, and others do not; the rollback removes them."""
    program: Any = subject.program
    program.begin()
    program.write("a")
    program.create("order/1")
    program.send("order/1", "noted")
    mine = program.joined_state("order/1")
    assert (2, {"notes": 1}) == (mine.version, mine.context)
    assert mine.matches("open")
    with pytest.raises(NotFoundError):
        subject.observer.state("order/1")
    program.rollback()
    program.begin()
    with pytest.raises(NotFoundError):
        program.joined_state("order/1")
    program.rollback()


def takes_no_lock(subject: JoinSubject) -> None:
    """Another process sends while the transaction that has only read is open."""
    program: Any = subject.program
    subject.observer.create("order/1")
    program.begin()
    assert 1 == program.joined_state("order/1").version
    if not subject.locks_at_begin:
        assert "applied" == subject.observer.send("order/1", "noted").outcome
    program.rollback()


def refuses_an_invalid_name(subject: JoinSubject) -> None:
    program: Any = subject.program
    program.begin()
    with pytest.raises(UsageError):
        program.joined_state("order")
    program.rollback()


CASES = [sees_what_the_transaction_wrote, takes_no_lock, refuses_an_invalid_name]


@pytest.mark.parametrize("driver", sqlite_programs(Path("x"), ""))
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_program_on_sqlite(case: Any, driver: str, tmp_path: Path) -> None:
    with sqlite_subject(tmp_path / "program.db", driver) as subject:
        case(subject)


@pytest.mark.parametrize("driver", postgres_programs("postgresql://a:b@c:1/d", ""))
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_program_on_postgres(case: Any, driver: str) -> None:
    dsn, _, schema = store_or_skip().partition("?schema=")
    with postgres_subject(dsn, schema, driver) as subject:
        case(subject)
