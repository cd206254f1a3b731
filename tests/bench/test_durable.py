"""The durable part of the benchmark: its goals, its tables, its choices, and what it does when a part is missing."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from bench.durable import servers
from bench.durable.order import EVENTS, STATES, Place, WrongStateError, fleet, sequence, step, whole_orders
from bench.measure import PeerUnavailableError


class Remembering:
    """An engine that keeps orders in a dictionary; with `wrong` it returns a wrong state."""

    def __init__(self, *, wrong: bool = False) -> None:
        self.states: dict[str, str] = {}
        self.keys: list[str] = []
        self.wrong = wrong

    async def start(self) -> None:
        """Nothing to open."""

    async def stop(self) -> None:
        """Nothing to close."""

    async def create(self, order: str) -> None:
        """Create an order."""
        self.states[order] = "created"

    async def send(self, order: str, event: str, key: str) -> str:
        """Send an event to an order."""
        self.keys.append(key)
        state, _ = step(self.states[order], event)
        self.states[order] = "created" if self.wrong else state
        return self.states[order]


async def test_a_fleet_drives_every_order_to_its_end() -> None:
    """Six steps for each, every key used once, however few orders or callers there are."""
    engine = Remembering()
    answer = await fleet(engine, 7, (), clients=3)

    assert ["delivered"] * 7 == list(engine.states.values())
    assert 35 == len(set(engine.keys)) == len(engine.keys)
    assert answer["rate"] > 0


async def test_a_sequence_drives_one_order() -> None:
    """As many events as asked for, after five that are not measured."""
    engine = Remembering()
    answer = await sequence(engine, 12, ())

    assert 1 == len(engine.states)
    assert 17 == len(set(engine.keys))
    assert answer["rate"] > 0


async def test_an_engine_in_the_wrong_state_has_failed() -> None:
    """A state that the chart does not have ends the question."""
    with pytest.raises(WrongStateError, match="submit led to created, not to submitted"):
        await fleet(Remembering(wrong=True), 1, ())


class Counting:
    """A runner whose orders have three steps and end out of order."""

    def __init__(self) -> None:
        self.orders: list[str] = []

    async def start(self) -> None:
        """Nothing to open."""

    async def stop(self) -> None:
        """Nothing to close."""

    async def run(self, order: str) -> int:
        """Let the other callers run in between."""
        self.orders.append(order)
        for _ in range(len(self.orders) % 3):
            await asyncio.sleep(0)
        return 3


async def test_steps_of_concurrent_orders_are_all_counted() -> None:
    runner = Counting()
    answer = await whole_orders(runner, 100, ())

    assert 100 == len(set(runner.orders))
    assert pytest.approx(answer["rate"] * answer["seconds"]) == 300


async def test_the_limit_of_group_commit_writes_the_rows_of_interlock(tmp_path: Path) -> None:
    """As many rows in each table of SQLite, for orders that run at the same time."""
    from bench.durable.engines.group_commit import Sqlite
    from bench.durable.engines.interlock_stores import LINES

    counts = []
    for name, engine in (
        ("group.db", Sqlite(Place(folder=tmp_path))),
        ("orders.db", LINES["sqlite"].make(Place(folder=tmp_path))),
    ):
        await engine.start()
        try:
            await fleet(engine, 5, (), clients=3)
        finally:
            await engine.stop()
        connection = sqlite3.connect(tmp_path / name)
        counts.append(
            {
                table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
                for table in ("entity", "journal", "event_key", "entity_state", "work", "state_count")
            }
        )
        connection.close()

    assert counts[1] == counts[0]
    assert 30 == counts[0]["journal"]


def test_the_table_is_the_chart() -> None:
    """Peers step by a table, Interlock by its chart: both say the same about every state and event."""
    from bench.durable.engines.interlock_stores import CHART

    for state in STATES:
        for event in EVENTS:
            snapshot = CHART.start(entity="order/1").snapshot
            for before in EVENTS[: STATES.index(state)]:
                snapshot = CHART.step(snapshot, before).snapshot
            found = CHART.step(snapshot, event)
            try:
                wanted, effects = step(state, event)
            except KeyError:
                assert "applied" != found.outcome
                continue

            assert (wanted,) == found.snapshot.configuration
            assert list(effects) == [each.name for each in found.effects if each.type == "call"]


def test_a_server_that_is_not_installed_is_left_out_loudly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run continues without it, and reports why."""

    def missing() -> Path:
        raise PeerUnavailableError("no PostgreSQL server is installed")

    monkeypatch.setattr(servers, "postgres_binaries", missing)
    with servers.started(tmp_path, {"postgres"}) as running:
        assert {} == running.addresses
        assert "{}" == running.arguments("postgres")

    assert {"postgres": "no PostgreSQL server is installed"} == running.left_out
    assert "LEFT OUT: the server of postgres" in capsys.readouterr().err
