"""The durable part of the benchmark: its goals, its tables, its choices, and what it does when a part is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.durable import servers
from bench.durable.order import EVENTS, STATES, WrongStateError, fleet, sequence, step
from bench.measure import PeerUnavailableError


class Remembering:
    """An engine that keeps orders in a dictionary; it may be told to be wrong."""

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
    """The run goes on without it, and says why."""

    def missing() -> Path:
        raise PeerUnavailableError("no PostgreSQL server is installed")

    monkeypatch.setattr(servers, "postgres_binaries", missing)
    with servers.started(tmp_path, {"postgres"}) as running:
        assert {} == running.addresses
        assert "{}" == running.arguments("postgres")

    assert {"postgres": "no PostgreSQL server is installed"} == running.left_out
    assert "LEFT OUT: the server of postgres" in capsys.readouterr().err
