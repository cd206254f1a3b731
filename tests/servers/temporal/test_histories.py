"""Long lives: an entity continues in a new history; histories are replayed with the charts that wrote them, or others.

With few Updates a history, and many callers: a key that is sent again counts once, also in a later history.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

import interlock
from interlock.assemble.charts import BoundChart
from interlock.engines.temporal.replay import replay_histories
from interlock.engines.temporal.store import TemporalStore
from interlock.errors import ArchivedError
from interlock.runtime.runtime import Runtime
from tests.servers.temporal.lives import Ledger, charts, in_state
from tests.support.eventually import eventually
from tests.support.temporal_server import private_namespace, server_or_skip

pytestmark = [pytest.mark.xdist_group("temporal")]

COUNTER = """
interlock: 1
kind: counter
context: {n: {type: integer, default: 0}}
states:
  counting:
    on:
      add: {actions: [{assign: {n: "= context.n + 1"}}]}
      work: {actions: [{assign: {n: "= context.n + 1"}}, note]}
      guarded: [{target: high, guard: is_high}, {target: low}]
  high: {type: final}
  low: {type: final}
"""


def counter(*, limit: int = 3, notes: list[str] | None = None, text: str = COUNTER) -> BoundChart[Any]:
    """A chart that counts, with a guard in Python and a call."""
    chart = interlock.loads(text)
    if limit == 3:
        chart.guard("is_high")(is_high)
    else:
        chart.guard("is_high")(is_higher)

    @chart.handler("note")
    async def note(effect: interlock.Attempt) -> None:
        (notes if notes is not None else []).append(effect.key)

    return chart


def is_high(context: Any, _: Any) -> bool:
    """Whether it counted to three."""
    return bool(context["n"] >= 3)


def is_higher(context: Any, _: Any) -> bool:
    """Whether it counted to thirty."""
    return bool(context["n"] >= 30)


async def runs(runtime: Runtime, entity: str) -> list[str]:
    """The ids of the histories of an entity."""
    store = runtime.store
    assert isinstance(store, TemporalStore)
    return [each.run_id async for each in store.client.list_workflows(f"WorkflowId = '{entity}'")]


async def test_thirty_callers_and_short_histories_apply_each_event_once() -> None:
    """150 events, one history for 20 Updates; each event is sent twice, and its effect runs once."""
    url = await private_namespace(server_or_skip(), **{"continue": "20"})
    notes: list[str] = []
    async with interlock.open(url, charts=[counter(notes=notes)], lease_ms=2_000) as runtime:
        await runtime.create("counter/1", {}, key="c")
        todo = list(range(150))

        async def caller() -> list[str]:
            found: list[str] = []
            while todo:
                number = todo.pop()
                event = "work" if number % 10 == 0 else "add"
                found.append((await runtime.send("counter/1", event, key=f"k-{number}")).outcome)
            return found

        first = [each for found in await asyncio.gather(*(caller() for _ in range(30))) for each in found]
        again = [(await runtime.send("counter/1", "add", key=f"k-{number}")).outcome for number in (149, 77, 1)]
        snapshot = await runtime.state("counter/1")
        entries = await runtime.journal("counter/1")

        assert Counter(first) == {"applied": 150}
        assert again == ["duplicate"] * 3
        assert (snapshot.version, snapshot.context["n"]) == (151, 150)
        assert sorted(each.key for each in entries) == sorted(["c", *(f"k-{number}" for number in range(150))])
        await eventually(lambda: len(notes) == 15)
        assert len(set(notes)) == 15

        async def has_many() -> bool:
            return len(await runs(runtime, "counter/1")) >= 5

        await eventually(has_many)


async def test_timers_effects_and_a_saga_go_on_in_the_next_history() -> None:
    """With a new history after every second Update, nothing that waits is lost or done twice."""
    url = await private_namespace(server_or_skip(), **{"continue": "2"})
    ledger = Ledger()
    async with interlock.open(url, charts=charts(ledger), lease_ms=2_000) as runtime:
        await runtime.create("shop/1", {}, key="c")
        await runtime.create("tour/1", {}, key="c")
        (await runtime.send("tour/1", "ordered", key="o")).expect()
        for number in range(6):
            (await runtime.send("shop/1", "poke", number, key=f"p-{number}")).expect()
        (await runtime.send("shop/1", "wait", key="w")).expect()
        await in_state(runtime, "shop/1", "open", version=9)
        (await runtime.send("shop/1", "charge", key="x")).expect()
        await in_state(runtime, "shop/1", "open", version=11)
        await in_state(runtime, "tour/1", "refused")

        fired = [each.event.name for each in await runtime.journal("shop/1") if each.event.name.startswith("after")]
        assert len(fired) == 1
        assert ledger.performed("charge") == ["shop/1/10/0"] * 3
        assert len(ledger.performed("hotel.cancel")) == len(ledger.performed("flight.cancel")) == 1


async def test_a_recorded_history_replays_with_the_charts_that_wrote_it() -> None:
    """Every chart of the lives, with effects, timers, a child and a saga, through Temporal's replayer."""
    url = await private_namespace(server_or_skip())
    ledger = Ledger()
    known = charts(ledger)
    async with interlock.open(url, charts=known, lease_ms=2_000) as runtime:
        await runtime.create("shop/1", {}, key="c")
        await runtime.create("tour/1", {}, key="c")
        (await runtime.send("tour/1", "ordered", key="o")).expect()
        for number, event in enumerate(("poke", "charge")):
            (await runtime.send("shop/1", event, key=f"k-{number}")).expect()
        await in_state(runtime, "shop/1", "open", version=4)
        (await runtime.send("shop/1", "wait", key="w")).expect()
        await in_state(runtime, "shop/1", "open", version=6)
        (await runtime.send("shop/1", "survey", key="s")).expect()
        await in_state(runtime, "tour/1", "refused")
        store = runtime.store
        assert isinstance(store, TemporalStore)
        workflows = [each async for each in store.client.list_workflows()]
        histories = [
            await store.client.get_workflow_handle(each.id, run_id=each.run_id).fetch_history() for each in workflows
        ]

    reports = await replay_histories(histories, tuple(each.kernel for each in known))

    assert {each.problem for each in reports} == {None}
    assert sum(each.answers for each in reports) == 5


async def test_a_function_that_was_changed_under_its_name_is_found_in_a_replay_and_stops_the_entity() -> None:
    """The entity waits for a worker with the function that it was created with; nothing is stepped by another one."""
    url = await private_namespace(server_or_skip(), wait="3s")
    async with interlock.open(url, charts=[counter()]) as runtime:
        await runtime.create("counter/1", {}, key="c")
        for number in range(5):
            (await runtime.send("counter/1", "add", key=f"k-{number}")).expect()
        store = runtime.store
        assert isinstance(store, TemporalStore)
        history = await store.client.get_workflow_handle("counter/1").fetch_history()
    (report,) = await replay_histories([history], (counter(limit=30).kernel,))
    assert report.problem is not None
    async with interlock.open(url, charts=[counter(limit=30)]) as runtime:
        with pytest.raises(interlock.UnavailableError) as refused:
            await runtime.send("counter/1", "guarded", key="g")
        assert refused.value.code in ("engine.failing", "engine.no_worker"), refused.value.message
    async with interlock.open(url, charts=[counter()]) as runtime:

        async def is_sent() -> bool:
            try:
                (await runtime.send("counter/1", "guarded", key="g")).expect()
            except interlock.UnavailableError:  # the server tries a failed workflow task again a while later
                return False
            return True

        await eventually(is_sent)
        assert (await runtime.state("counter/1")).configuration == ("high",)


async def test_an_entity_finishes_on_the_definition_that_it_carries() -> None:
    """A worker with another revision of the chart runs it; new entities start on the new one."""
    url = await private_namespace(server_or_skip())
    async with interlock.open(url, charts=[counter()]) as runtime:
        await runtime.create("counter/old", {}, key="c")
    newer = COUNTER.replace("context.n + 1", "context.n + 100")
    async with interlock.open(url, charts=[counter(text=newer)]) as runtime:
        await runtime.create("counter/new", {}, key="c")
        old = (await runtime.send("counter/old", "add", key="a")).expect().snapshot
        new = (await runtime.send("counter/new", "add", key="a")).expect().snapshot

        assert (old.context["n"], new.context["n"]) == (1, 100)
        assert old.revision != new.revision
        assert {each.event for each in await runtime.can("counter/old")} == {"add", "work", "guarded"}


async def test_entries_that_no_history_has_any_more_are_a_clear_error() -> None:
    """Only the newest entries are carried over; older ones are in the mirror, if there is one."""
    url = await private_namespace(server_or_skip(), **{"continue": "3"})
    async with interlock.open(url, charts=[counter()]) as runtime:
        await runtime.create("counter/1", {}, key="c")
        for number in range(8):
            (await runtime.send("counter/1", "add", {"text": "x" * 60_000}, key=f"k-{number}")).expect()
        newest = await runtime.journal("counter/1", after=8)
        with pytest.raises(ArchivedError):
            await runtime.journal("counter/1")

    assert [each.version for each in newest] == [9]
