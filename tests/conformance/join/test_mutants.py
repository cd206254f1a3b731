"""Faults that the suite of joined sends must find."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any

import psycopg
import pytest

import interlock
from interlock.errors import ConflictError, InterlockError
from interlock.runtime.entities.entities import Entities
from interlock.stores.postgres import joined as postgres_joined
from interlock.stores.postgres.commit import JOINED_STRIPE, OWN_STRIPE, STRIPES
from interlock.testing import join_suite
from interlock.testing.join_suite import ORDER
from tests.conformance.join.programs import sqlite_subject
from tests.support.postgres_server import asked, store_or_skip

FOUND = (AssertionError, InterlockError)


def cached_load(entities: Entities, store: Any, on_work: Any, loop: Any) -> Entities:
    """A joined call that steps the snapshot in the cache of the runtime."""
    joined = ON_TRANSACTION(entities, store, on_work, loop)
    joined.snapshots = entities.snapshots
    return joined


ON_TRANSACTION = Entities.on_transaction


@contextmanager
def found_by(case: join_suite.Case, tmp_path: Path) -> Iterator[None]:
    """Run a case on sqlite3 with a fault in place; it must find the fault."""
    yield
    with sqlite_subject(tmp_path / "program.db", "sqlite3") as subject, pytest.raises(FOUND):
        case(subject)


def test_a_load_from_the_cache_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The snapshot of a savepoint that was undone is still in the cache."""
    with found_by(join_suite.a_savepoint_that_is_undone_takes_its_entry_with_it, tmp_path):
        monkeypatch.setattr(Entities, "on_transaction", cached_load)


def test_a_stripe_of_the_backend_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two backends may have one stripe: the second transaction then waits for the first, or gives up."""
    url = store_or_skip()
    dsn = url.partition("?")[0]
    outcomes: list[str] = []
    with interlock.connect(url, charts=[interlock.loads(ORDER)]) as orders:
        orders.create("order/1")
        orders.create("order/2")
        connections = [psycopg.connect(dsn) for _ in range(STRIPES + 1)]
        try:
            first, second = next(
                pair
                for pair in combinations(connections, 2)
                if pair[0].info.backend_pid % STRIPES == pair[1].info.backend_pid % STRIPES
            )
            for is_faulty in (False, True):
                if is_faulty:
                    for name in ("JOIN_STEP_WITH_LISTS", "JOIN_STEP_WITH_WORK"):
                        text = getattr(postgres_joined, name).replace(JOINED_STRIPE, OWN_STRIPE)
                        monkeypatch.setattr(postgres_joined, name, text)
                orders.join(first).send("order/1", "paid")
                second.execute("SET LOCAL lock_timeout = '50ms'")
                try:
                    outcomes.append(orders.join(second).send("order/2", "paid").outcome)
                except ConflictError:
                    outcomes.append("waits")
                first.rollback()
                second.rollback()
        finally:
            for each in connections:
                each.close()

    assert ["applied", "waits"] == outcomes


def test_unqualified_names_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the caller's search path there is another table of that name, or none."""
    url = store_or_skip()
    dsn = url.partition("?")[0]
    asked(dsn, "CREATE TABLE IF NOT EXISTS work (mine integer)")
    with interlock.connect(url, charts=[interlock.loads(ORDER)]) as orders:
        orders.create("order/1")
        with psycopg.connect(dsn) as connection:
            orders.join(connection).send("order/1", "paid").expect()
            connection.rollback()
            monkeypatch.setattr(postgres_joined, "qualify", lambda statement, schema: statement)
            with pytest.raises(InterlockError):
                orders.join(connection).send("order/1", "paid")


def test_every_name_of_a_joined_statement_is_qualified() -> None:
    """What the statements name is a table of the store, a part of the statement, or the server's own."""
    url = store_or_skip()
    dsn = url.partition("?")[0]
    with interlock.connect(url, charts=[interlock.loads(ORDER)]) as orders:
        orders.create("order/1")
        with psycopg.connect(dsn, options="-c search_path=pg_catalog") as connection:
            joined = orders.join(connection)
            for entity, event in (("order/1", "noted"), ("order/1", "paid"), ("order/2", None)):
                receipt = joined.create(entity, key="k") if event is None else joined.send(entity, event, key=event)
                assert "applied" == receipt.outcome
            assert "duplicate" == joined.send("order/1", "noted", key="noted").outcome
