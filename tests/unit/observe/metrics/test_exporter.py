"""The exporter: what is counted, what is never a label, and which process reports the store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.errors import UnavailableError, UsageError
from interlock.observe.metrics import exporter as exporter_module
from interlock.observe.metrics.exporter import LEASE_MS, MetricsExporter
from interlock.observe.metrics.families import FAMILIES
from interlock.ports.reading.statistics import DAY_MS, DWELL_BOUNDS_MS
from interlock.runtime.runtime import Runtime
from interlock.testing.clock import VirtualClock
from tests.support.eventually import eventually
from tests.unit.observe.metrics.scrapes import ACCOUNT, CUSTOMER, ORDER, Scrape, names, parsed, scrape, value

STORE_WIDE = {each.name for each in FAMILIES if each.is_store_wide}


@asynccontextmanager
async def exported(
    url: str, clock: VirtualClock, *texts: str, work: bool = False
) -> AsyncIterator[tuple[Runtime, MetricsExporter]]:
    """A runtime of some charts with an exporter."""
    charts = [interlock.loads(each) for each in texts or (ORDER,)]
    async with interlock.open(url, charts=charts, clock=clock, work=work) as runtime:
        exporter = MetricsExporter(runtime)
        await exporter.start()
        try:
            yield runtime, exporter
        finally:
            await exporter.stop()


@pytest.fixture(params=["memory:", "sqlite:///orders.db"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a store with counters."""
    monkeypatch.chdir(tmp_path)
    return str(request.param)


async def test_events_are_counted_by_what_became_of_them(url: str) -> None:
    clock = VirtualClock()
    async with exported(url, clock) as (orders, exporter):
        await orders.create("order/1")
        await orders.send("order/1", "pay", key="k", principal=CUSTOMER)
        await orders.send("order/1", "pay", key="k", principal=CUSTOMER)
        await orders.send("order/1", "pay", principal={"id": "eve"})
        await orders.send("order/1", "pay", principal=CUSTOMER)
        found = await scrape(exporter, clock)

    def transitions(event: str, outcome: str) -> float | None:
        return value(found, "interlock_transitions_total", kind="order", event=event, outcome=outcome)

    assert (1, 1, 1, 1, 1) == (
        transitions("_create", "applied"),
        *(transitions("pay", each) for each in ("applied", "duplicate", "denied", "rejected")),
    )
    assert 1 == value(found, "interlock_duplicates_total", kind="order")
    assert 1 == value(found, "interlock_refusals_total", kind="order", reason="denied")
    assert 1 == value(found, "interlock_refusals_total", kind="order", reason="chart")
    assert 2 == value(found, "interlock_append_seconds_count")


async def test_an_error_that_refuses_an_event_is_counted_by_its_class() -> None:
    clock = VirtualClock()
    async with exported("memory:", clock) as (orders, exporter):
        await orders.create("order/1")
        with pytest.raises(interlock.ConflictError):
            await orders.send("order/1", "pay", expected=7, principal=CUSTOMER)
        with pytest.raises(UsageError):
            await orders.send("order/1", "no event name")
        found = await scrape(exporter, clock)

    assert 1 == value(found, "interlock_refusals_total", kind="order", reason="conflict")


async def test_names_that_senders_choose_are_no_labels() -> None:
    """Unknown events and kinds are counted together, however many there are."""
    clock = VirtualClock()
    async with exported("memory:", clock) as (orders, exporter):
        await orders.create("order/1")
        before = await scrape(exporter, clock)
        for number in range(200):
            with pytest.raises(interlock.errors.InterlockError):
                await orders.send("order/1", f"noise.{number}")
            with pytest.raises(interlock.errors.InterlockError):
                await orders.send(f"strange{number}/1", "pay")
        after = await scrape(exporter, clock)

    assert 200 == value(after, "interlock_transitions_total", kind="order", event="_other", outcome="rejected")
    assert 200 == value(after, "interlock_refusals_total", kind="_other", reason="entity")
    assert len(after) <= len(before) + 3
    assert "noise" not in str(after)
    assert "strange" not in str(after)
    assert "order/1" not in str(after)


async def test_populations_and_the_oldest_entity_are_those_of_the_store(url: str) -> None:
    clock = VirtualClock()
    async with exported(url, clock) as (orders, exporter):
        await orders.create("order/1")
        clock.time_ms += 2 * 3_600_000
        await orders.create("order/2")
        await orders.create("order/3")
        await orders.send("order/3", "pay", principal=CUSTOMER)
        await orders.send("order/3", "ship", principal=CUSTOMER)
        found = await scrape(exporter, clock)

    def gauges(name: str) -> dict[str, float]:
        return {dict(labels)["state"]: each for (known, labels), each in found.items() if known == name}

    assert {"unpaid": 2, "paid": 0, "shipped": 1, "expired": 0} == gauges("interlock_entities")
    assert {"unpaid": 7_205, "paid": 0} == gauges("interlock_state_oldest_seconds")
    assert {"unpaid": 1} == gauges("interlock_stuck_entities")
    assert 1 == value(found, "interlock_exporter_leader")
    assert 2 == value(found, "interlock_work_rows", lane="timer")


async def test_held_entities_are_counted_and_are_not_stuck(url: str) -> None:
    """The oldest one is the oldest that is not held, so no alert is raised for the others. A held kind has none."""
    clock = VirtualClock(autojump=True)
    async with exported(url, clock) as (orders, exporter):
        await orders.create("order/1")
        await clock.sleep_ms(3_600_000)
        await orders.create("order/2")
        await orders.create("order/3")
        await clock.sleep_ms(3_600_000)
        await orders.hold("order/1", reason="case 118")
        await orders.hold("order/2", reason="case 119")
        single = await scrape(exporter, clock)
        await orders.hold_kind("order", reason="case 120")
        whole = await scrape(exporter, clock)
        await orders.resume_kind("order")
        await orders.resume("order/1")
        await orders.resume("order/2")
        resumed = await scrape(exporter, clock)

    def unpaid(found: Scrape) -> tuple[float | None, float | None]:
        place = {"kind": "order", "state": "unpaid"}
        oldest = value(found, "interlock_state_oldest_seconds", **place)
        return oldest and oldest // 3_600, value(found, "interlock_stuck_entities", **place)

    def held(found: Scrape) -> tuple[float | None, float | None]:
        return value(found, "interlock_held_entities", kind="order"), value(found, "interlock_held_kinds", kind="order")

    assert [(1, 1), (0, 0), (2, 3)] == [unpaid(each) for each in (single, whole, resumed)]
    assert [(2, 0), (2, 1), (0, 0)] == [held(each) for each in (single, whole, resumed)]


async def test_overdue_work_and_dead_letters_are_shown_by_lane(url: str) -> None:
    chart = "interlock: 1\nkind: job\nstates: {on: {entry: [charge], on: {again: {target: on, reenter: true}}}}\n"
    clock = VirtualClock()
    async with exported(url, clock, chart) as (jobs, exporter):
        await jobs.create("job/1")
        await jobs.send("job/1", "again")
        clock.time_ms += 60_000
        found = await scrape(exporter, clock)

    assert 2 == value(found, "interlock_work_rows", lane="effect")
    assert 65 == value(found, "interlock_work_oldest_seconds", lane="effect")
    assert 0 == value(found, "interlock_dead_letters", lane="effect")


@pytest.mark.parametrize("place", ["memory:", "sqlite:///orders.db"])
async def test_times_in_states_only_grow(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a store keeps by day is deleted after two weeks; the histogram of the process goes on."""
    monkeypatch.chdir(tmp_path)
    clock = VirtualClock()
    async with exported(place, clock) as (orders, exporter):
        counts = []
        found: Scrape = {}
        for number in (1, 2):
            await orders.create(f"order/{number}")
            clock.time_ms += 1_500
            await orders.send(f"order/{number}", "pay", principal=CUSTOMER)
            await _until_counted(exporter, clock, orders, number)
            found = await scrape(exporter, clock)
            counts.append(value(found, "interlock_state_duration_seconds_count", kind="order", state="unpaid"))
            clock.time_ms += 15 * DAY_MS

    buckets = {
        dict(labels)["le"]: each
        for (name, labels), each in found.items()
        if name == "interlock_state_duration_seconds_bucket" and dict(labels)["state"] == "unpaid"
    }
    assert [1, 2] == counts
    assert [*(str(each / 1_000) for each in DWELL_BOUNDS_MS), "+Inf"] == list(buckets)
    assert (0, 2, 2) == (buckets["0.4"], buckets["1.6"], buckets["+Inf"])
    assert 3.0 == value(found, "interlock_state_duration_seconds_sum", kind="order", state="unpaid")


async def _until_counted(exporter: MetricsExporter, clock: VirtualClock, orders: Runtime, number: int) -> None:
    """Wait until the statistics of a step are written, which SQLite does when it is idle."""

    async def is_counted() -> bool:
        statistics = orders.store.statistics
        assert statistics is not None
        return sum(sum(each.stays) for each in await statistics.process_stays()) == number

    await eventually(is_counted, f"{number} stays")


async def test_attempts_of_effects_are_counted_by_result() -> None:
    text = """
interlock: 1
kind: job
initial: on
states:
  on: {invoke: {id: c, src: charge, onDone: off, onError: off}, on: {again: {target: on, reenter: true}}}
  off: {on: {again: on}}
"""
    chart = interlock.loads(text)
    clock, failing = VirtualClock(), [False, True]

    @chart.handler("charge")
    async def charge(attempt: Any) -> None:
        if failing.pop(0):
            raise interlock.HandlerFailed("declined", "no", retry=False)

    async with interlock.open("memory:", charts=[chart], clock=clock) as jobs:
        exporter = MetricsExporter(jobs)
        await exporter.start()
        await jobs.create("job/1")
        await clock.settle()
        await jobs.send("job/1", "again")
        await clock.settle()
        found = await scrape(exporter, clock)
        await exporter.stop()

    def attempts(result: str) -> float | None:
        return value(found, "interlock_effect_attempts_total", kind="job", handler="charge", result=result)

    assert (1, 1, None) == (attempts("ok"), attempts("failed"), attempts("retry"))
    assert 2 == value(found, "interlock_effect_seconds_count", kind="job", handler="charge")


async def test_a_timer_that_fires_late_is_measured() -> None:
    clock = VirtualClock()
    async with interlock.open("memory:", charts=[interlock.loads(ORDER)], clock=clock) as orders:
        exporter = MetricsExporter(orders)
        await exporter.start()
        await orders.create("order/1")
        await clock.advance(2 * DAY_MS + 5)
        await clock.settle()
        found = await scrape(exporter, clock)
        ended = (await orders.state("order/1")).configuration
        await exporter.stop()

    assert ("expired",) == ended
    assert 1 == value(found, "interlock_timer_lateness_seconds_count", kind="order")


async def test_a_lost_swap_is_counted(tmp_path: Path) -> None:
    clock, store = VirtualClock(), f"sqlite:///{tmp_path}/orders.db"
    async with (
        exported(store, clock) as (one, exporter),
        interlock.open(store, charts=[interlock.loads(ORDER)], clock=clock, work=False) as other,
    ):
        await one.create("order/1")
        await other.send("order/1", "pay", principal=CUSTOMER)
        sent = asyncio.ensure_future(one.send("order/1", "ship", principal=CUSTOMER))

        async def is_sent() -> bool:
            await clock.advance(1_000)  # the wait before the next try
            return sent.done()

        await eventually(is_sent, "another try")
        (await sent).expect()
        found = await scrape(exporter, clock)

    assert 1 == value(found, "interlock_conflicts_total", kind="order")


# Hidden states


async def hidden_world(*, is_frozen: bool) -> tuple[bytes, bytes]:
    """The texts of a process whose account is frozen or in use, scraped at the same times."""
    clock = VirtualClock()
    async with exported("memory:", clock, ORDER, ACCOUNT) as (bank, exporter):
        await bank.create("order/1")
        await bank.create("account/1")
        for event in ("freeze", "thaw") if is_frozen else ("use", "use"):
            await bank.send("account/1", event)
        if is_frozen:
            await bank.send("account/1", "freeze")
        first = await exporter.render()
        clock.time_ms += 3 * 3_600_000
        return first, await exporter.render()


async def test_nothing_of_a_kind_with_hidden_states_is_shown() -> None:
    """Neither its states nor its events nor its work; the kind next to it is shown as ever."""
    quiet, frozen = [await hidden_world(is_frozen=each) for each in (False, True)]

    for before, after in zip(quiet, frozen, strict=True):
        assert _without_times(parsed(before)) == _without_times(parsed(after))
    assert b"account" not in frozen[1]
    assert b"frozen" not in frozen[1]
    assert 1 == value(parsed(frozen[1]), "interlock_entities", kind="order", state="unpaid")
    assert "interlock_work_rows" not in names(parsed(frozen[1]))


def _without_times(found: Scrape) -> Scrape:
    """What does not depend on how long the machine took, and on how many steps there were in all."""
    return {key: each for key, each in found.items() if not key[0].startswith("interlock_append_seconds")}


# Which process reports the store


async def test_one_of_two_processes_reports_the_store_and_another_takes_over(tmp_path: Path) -> None:
    store, clock = f"sqlite:///{tmp_path}/orders.db", VirtualClock()
    async with exported(store, clock) as (orders, leader), exported(store, clock) as (_, other):
        await orders.create("order/1")
        both = [await scrape(each, clock) for each in (leader, other)]
        leader._task.cancel()  # type: ignore[union-attr]  # as a kill: it renews nothing
        clock.time_ms += LEASE_MS
        after = await scrape(other, clock)
        suspended = await scrape(leader, clock)

    populations = [value(each, "interlock_entities", kind="order", state="unpaid") for each in both]
    assert [1, None] == populations
    assert [1, 0] == [value(each, "interlock_exporter_leader") for each in both]
    assert STORE_WIDE.isdisjoint(names(both[1]))
    assert 0 == value(suspended, "interlock_exporter_leader")
    assert STORE_WIDE.isdisjoint(names(suspended))
    assert 1 == value(after, "interlock_exporter_leader")
    assert 1 == value(after, "interlock_entities", kind="order", state="unpaid")


async def test_a_process_that_stops_hands_over_at_once(tmp_path: Path) -> None:
    store, clock = f"sqlite:///{tmp_path}/orders.db", VirtualClock()
    async with exported(store, clock) as (_, other):
        assert other.is_leader
    async with exported(store, clock) as (_, next_one):
        assert next_one.is_leader


# Limits and failures


async def test_further_series_are_added_up_and_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(exporter_module, "METRIC_SERIES_MAX", 20)
    clock = VirtualClock()
    with caplog.at_level(logging.WARNING, "interlock.observe"):
        async with exported("memory:", clock) as (orders, exporter):
            for number in range(3):
                await orders.create(f"order/{number}")
            found = [await scrape(exporter, clock) for _ in range(2)]

    assert len(found[0]) < 60
    assert any(dict(labels).get("state") == "_other" for _, labels in found[1])
    assert 3 == sum(each for (name, _), each in found[1].items() if name == "interlock_entities")
    assert 1 == len(caplog.records)


async def test_an_unreachable_store_costs_the_store_wide_metrics_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = VirtualClock()
    async with exported("memory:", clock) as (orders, exporter):
        await orders.create("order/1")

        async def fail(*_: object, **__: object) -> None:
            raise UnavailableError("the server is away", code="store.unreachable")

        with monkeypatch.context() as broken:
            broken.setattr(orders.store, "kinds", fail)
            away = await scrape(exporter, clock)
        again = await scrape(exporter, clock)

    assert STORE_WIDE.isdisjoint(names(away))
    assert 0 == value(away, "interlock_exporter_leader")
    assert 1 == value(again, "interlock_entities", kind="order", state="unpaid")


async def test_without_an_exporter_nothing_is_counted() -> None:
    async with interlock.open("memory:", charts=[interlock.loads(ORDER)], work=False) as orders:
        assert orders.entities.process.meter is None
        exporter = MetricsExporter(orders)
        await exporter.start()
        assert orders.entities.process.meter is not None
        await exporter.stop()
        assert orders.entities.process.meter is None


async def test_a_store_in_files_has_the_metrics_of_the_process(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with exported(f"file:{tmp_path}/orders", clock) as (orders, exporter):
        await orders.create("order/1")
        found = await scrape(exporter, clock)

    assert 1 == value(found, "interlock_transitions_total", kind="order", event="_create", outcome="applied")
    assert "interlock_entities" not in names(found)
