"""`interlock.open`: a store by its address, charts, and a runtime that blocks or is awaited."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.errors import NotFoundError, UnavailableError, UsageError
from tests.support.eventually import PATIENCE_SECONDS
from tests.unit.runtime.scene import DOOR, StillClock

door = interlock.loads(DOOR)


@pytest.mark.parametrize("scheme", ["memory:", "sqlite:///{}/doors.db", "file://{}/doors"])
async def test_a_runtime_is_opened_by_its_address(scheme: str, tmp_path: Path) -> None:
    async with interlock.open(scheme.format(tmp_path), charts=[door], clock=StillClock(7)) as doors:
        created = await doors.create("door/1")
        entry = (await doors.journal("door/1"))[0]

    assert ("applied", 7) == (created.outcome, entry.event.time_ms)
    with pytest.raises(UnavailableError):
        await doors.send("door/1", "opened")


def test_a_blocking_runtime_needs_no_event_loop(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/doors.db"
    before = set(threading.enumerate())
    with interlock.open(address, charts=[door]).blocking() as doors:
        assert isinstance(doors, interlock.BlockingRuntime)
        assert "applied" == doors.create("door/1", key="k").outcome
        assert 2 == doors.send("door/1", "opened", principal={"id": "ada"}).version
        assert ("open",) == doors.state("door/1").configuration
        assert ("closed",) == doors.state("door/1", at=1).configuration
        assert [1, 2] == [each.version for each in doors.journal("door/1")]
        assert 1 == len(doors.list(interlock.EntityQuery(kind="door")).rows)
        assert doors.can("door/1")
        watching = doors.watch("door/1")
        assert [1, 2] == [next(watching).version for _ in range(2)]
        watching.close()
    with interlock.open(address, charts=[door]) as doors:  # type: ignore[attr-defined]  # it works; type checkers report it
        assert "duplicate" == doors.create("door/1", key="k").outcome

    assert set() == set(threading.enumerate()) - before


def test_a_connection_is_open_until_it_is_closed(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/doors.db"
    doors = interlock.connect(address, charts=[door])
    doors.create("door/1")
    doors.close()
    with interlock.connect(address, charts=[door], work=True) as again:
        version = again.send("door/1", "opened", principal={"id": "ada"}).version

    assert 2 == version
    for each in (doors, again):
        with pytest.raises(UnavailableError):
            each.state("door/1")


async def test_a_connection_inside_an_event_loop_is_refused() -> None:
    with pytest.raises(UsageError) as raised:
        interlock.connect("memory:", charts=[door])

    assert "runtime.running_loop" == raised.value.code


async def test_an_awaited_runtime_is_open_until_it_is_closed() -> None:
    doors = await interlock.open("memory:", charts=[door])
    created = await doors.create("door/1")
    await doors.close()

    assert "applied" == created.outcome
    with pytest.raises(UnavailableError):
        await doors.state("door/1")


def test_an_opening_can_be_used_again() -> None:
    """Each `with` opens it again."""
    runtimes = interlock.open("memory:", charts=[door])
    with runtimes.blocking() as first:
        first.create("door/1")
    with runtimes.blocking() as second:
        assert "applied" == second.create("door/1").outcome


@pytest.mark.parametrize(
    ("address", "hint"),
    [
        ("sqlit:///x.db", "sqlite"),
        ("doors.db", "sqlite:"),
        ("", "memory:"),
        ("oracle://x", "file:"),
    ],
)
def test_an_unknown_address_names_the_known_ones(address: str, hint: str) -> None:
    """UsageError immediately, before anything is opened."""
    with pytest.raises(UsageError, match=hint) as raised:
        interlock.open(address, charts=[door])

    assert "store.unknown" == raised.value.code


@pytest.mark.parametrize(
    ("address", "code"),
    [
        ("memory:somewhere", "url.malformed"),
        ("sqlite:x.db", "url.malformed"),
        ("sqlite:///", "url.malformed"),
        ("sqlite:///:memory:", "url.memory"),
        ("sqlite:///x.db?cache=1", "url.option"),
    ],
)
def test_an_invalid_address_is_refused(address: str, code: str) -> None:
    before = set(threading.enumerate())
    with pytest.raises(UsageError) as raised, interlock.open(address, charts=[door]).blocking():
        pass

    assert code == raised.value.code
    assert set() == set(threading.enumerate()) - before


def test_charts_are_required() -> None:
    with pytest.raises(UsageError) as missing:
        interlock.open("memory:", charts=[])
    with pytest.raises(UsageError) as single:
        interlock.open("memory:", charts=door)  # type: ignore[arg-type]  # the mistake in question

    assert ("charts.missing", "charts.malformed") == (missing.value.code, single.value.code)


def test_a_chart_without_its_functions_is_refused_by_open() -> None:
    text = "interlock: 1\nkind: k\ninitial: a\nstates: {a: {on: {go: {target: b, guard: is_ready}}}, b: {}}\n"
    with pytest.raises(UsageError, match="is_ready"):
        interlock.open("memory:", charts=[interlock.loads(text)])


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    """A store makes its file, not the folders above it."""
    with pytest.raises(NotFoundError), interlock.open(f"sqlite:///{tmp_path}/none/x.db", charts=[door]).blocking():
        pass


def test_another_package_brings_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheme that an entry point names opens by it."""
    from interlock.stores import registry
    from interlock.stores.memory import MemoryStore

    monkeypatch.setattr(registry, "store_plugins", lambda: {"cloud": lambda: lambda url: MemoryStore()})
    with interlock.open("cloud://x", charts=[door]).blocking() as doors:
        assert "applied" == doors.create("door/1").outcome


def test_a_plugin_that_does_not_say_what_it_can_do_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """All missing attributes are named, and the store is closed again."""
    from interlock.ports.store import CAPABILITIES
    from interlock.stores import registry

    closed = []

    class Old:
        work = None

        async def close(self) -> None:
            closed.append(self)

    monkeypatch.setattr(registry, "store_plugins", lambda: {"cloud": lambda: lambda url: Old()})
    with pytest.raises(UsageError) as caught, interlock.open("cloud://x", charts=[door]).blocking():
        pass

    assert ("store.capabilities", 1) == (caught.value.code, len(closed))
    assert [each != "work" for each in CAPABILITIES] == [f"`{each}`" in caught.value.message for each in CAPABILITIES]


def test_the_entry_points_match_the_table() -> None:
    import tomllib

    from interlock.stores.registry import STORE_GROUP, STORES

    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert {scheme: f"{module}:open_store" for scheme, module in STORES.items()} == project["entry-points"][STORE_GROUP]


async def test_the_prefix_is_part_of_every_key_that_handlers_see() -> None:
    chart = interlock.loads("interlock: 1\nkind: bill\nstates:\n  due: {entry: [charge]}\n")
    asked: list[str] = []
    heard = asyncio.Event()

    @chart.handler("charge")
    async def charge(attempt: interlock.Attempt) -> None:
        asked.append(attempt.key)
        heard.set()

    async with interlock.open("memory:", charts=[chart], key_prefix="eu/") as bills:
        await bills.create("bill/1")
        await asyncio.wait_for(heard.wait(), PATIENCE_SECONDS)

    assert ["eu/bill/1/1/0"] == asked


async def test_the_prefix_is_part_of_keys_of_sagas_and_of_what_a_compensation_compensates() -> None:
    chart = interlock.loads(
        """
        interlock: 1
        kind: trip
        states:
          booking:
            saga:
              steps:
                - {id: flight, do: {src: book}, compensate: {src: cancel, input: {why: full}}, timeout: 1m}
                - {id: hotel, do: {src: rest, key: hotel-7}, timeout: 1m}
              onDone: booked
              onCompensated: refused
              onError: refused
          booked: {type: final}
          refused: {type: final}
        """
    )
    seen: list[tuple[str, str, Any]] = []

    async def look(attempt: interlock.Attempt) -> str:
        seen.append((attempt.name, attempt.key, attempt.input))
        if attempt.name == "rest":
            raise interlock.RejectedError("full")
        return "done"

    for name in ("book", "cancel", "rest"):
        chart.handler(name)(look)
    async with interlock.open("memory:", charts=[chart], key_prefix="eu/") as trips:
        await trips.create("trip/1")
        async for entry in trips.watch("trip/1"):
            if entry.after == ("refused",):
                break

    assert [
        ("book", "eu/trip/1/1/booking.flight", None),
        ("rest", "eu/hotel-7", None),
        ("cancel", "eu/trip/1/3/0", {"compensates": "eu/trip/1/1/booking.flight", "why": "full"}),
    ] == seen


async def test_the_prefix_does_not_change_an_authors_own_input() -> None:
    chart = interlock.loads(
        """
        interlock: 1
        kind: claim
        states:
          asking:
            entry: [{do: note, with: {compensates: damage}}]
            invoke: {id: rate, src: look, input: {compensates: damage}, onDone: paying}
          paying:
            saga:
              steps:
                - {id: pay, do: {src: pay, input: {compensates: damage}}, compensate: {src: claw}, timeout: 1m}
              onDone: paid
              onCompensated: refused
              onError: refused
          paid: {type: final}
          refused: {type: final}
        """
    )
    seen: list[tuple[str, Any]] = []

    async def look(attempt: interlock.Attempt) -> str:
        seen.append((attempt.name, attempt.input))
        return "done"

    for name in ("look", "note", "pay", "claw"):
        chart.handler(name)(look)
    async with interlock.open("memory:", charts=[chart], key_prefix="eu/") as claims:
        await claims.create("claim/1")
        async for entry in claims.watch("claim/1"):
            if entry.after == ("paid",):
                break

    assert [(name, {"compensates": "damage"}) for name in ("look", "note", "pay")] == sorted(seen)


@pytest.mark.parametrize("prefix", ["x" * 65, 7])
def test_a_prefix_that_cannot_be_is_refused(prefix: Any) -> None:
    """Where it is written, and not by the service that gets the key."""
    with pytest.raises(UsageError) as raised:
        interlock.open("memory:", charts=[door], key_prefix=prefix)

    assert "key.prefix" == raised.value.code
