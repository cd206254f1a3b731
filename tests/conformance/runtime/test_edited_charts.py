"""The newcomer's story: a chart is edited while entities live. After each edit old and new entities answer `send`,
`show`, `can`, the console and the worker, on each store; nothing is locked, and `diff` names the class of the edit.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.assemble.charts import BoundChart
from interlock.effects.handlers import Attempt
from interlock.ports.store import EntityQuery
from interlock.runtime.charts.registry import ChartRegistry
from interlock.runtime.runtime import Runtime
from interlock.runtime.worker.worker import Worker
from interlock.stores.memory import MemoryStore
from interlock.testing.clock import VirtualClock
from tests.support.cli import Caller
from tests.support.postgres_server import store_or_skip
from tests.unit.web.consoles import Client, console_of

CHART = """
interlock: 1
kind: invoice
description: An invoice that is paid or expires.
revision: 1.0.0
context:
  amount: {type: integer, default: 10}
  paid: {type: integer, default: 0}
initial: open
states:
  open:
    on:
      pay:
        guard: "= event.data.sum >= context.amount"
        target: closing
        actions: [{assign: {paid: "= event.data.sum"}}]
    after: {14d: expired}
  closing:
    invoke: {id: book, src: book, onDone: closed}
  closed: {type: final}
  expired: {type: final}
"""

CLASSES = {
    "a timer": (0, "with care  timer.delay"),
    "a guard": (0, "with care  transition.guard"),
    "a description": (0, "same       text.changed"),
    "a state name": (11, "breaking   state.removed"),
    "a context field": (0, "safe       field.added"),
}
"""The exit code of `diff`, and the line by which it names the edit."""

EDITS: dict[str, Callable[[str], str]] = {
    "a timer": lambda text: text.replace("14d", "15d"),
    "a guard": lambda text: text.replace(">= context.amount", ">= context.amount / 2"),
    "a description": lambda text: text.replace("or expires.", "or expires after some time."),
    "a state name": lambda text: text.replace("open", "due"),
    "a context field": lambda text: text.replace("  paid: {", "  currency: {type: string, default: EUR}\n  paid: {"),
}
DAY_MS = 86_400_000
STORES: dict[str, Callable[[Path], str | MemoryStore]] = {
    "memory": lambda _: MemoryStore(),
    "files": lambda folder: f"file://{folder}/invoices",
    "sqlite": lambda folder: f"sqlite:///{folder}/invoices.db",
    "postgresql": lambda _: store_or_skip(),
}

pytestmark = pytest.mark.conformance


def invoices(text: str, booked: list[str]) -> BoundChart:
    """The chart with its handler."""
    chart = interlock.loads(text)

    @chart.handler("book")
    async def book(effect: Attempt) -> None:
        booked.append(effect.key.rsplit("/", 2)[0])

    return chart


@asynccontextmanager
async def opened(
    place: str | MemoryStore, text: str, clock: VirtualClock, booked: list[str]
) -> AsyncIterator[interlock.Runtime]:
    """A process with this chart, which also runs its work."""
    chart = invoices(text, booked)
    if isinstance(place, str):
        async with interlock.open(place, charts=[chart], clock=clock) as runtime:
            yield runtime
        return
    runtime = Runtime(place, ChartRegistry([chart.kernel]), clock)
    worker = Worker(runtime, chart.handlers)
    await worker.start()
    yield runtime
    await worker.stop()


async def ended(runtime: interlock.Runtime, clock: VirtualClock, entity: str) -> tuple[str, ...]:
    """The configuration of an entity once it has ended."""
    for _ in range(200):
        snapshot = await runtime.state(entity)
        if snapshot.ended is not None:
            return snapshot.configuration
        await clock.advance(1_000)
    raise AssertionError(f"{entity} has not ended")


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("store", STORES)
async def test_after_an_edit_old_and_new_entities_go_on(store: str, edit: str, tmp_path: Path) -> None:
    place, clock, booked = STORES[store](tmp_path), VirtualClock(), list[str]()
    edited = EDITS[edit](CHART)
    assert edited != CHART
    began_ms = clock.now_ms()
    async with opened(place, CHART, clock, booked) as runtime:
        for name in ("paid", "late", "shown"):
            await runtime.create(f"invoice/old-{name}")
    async with opened(place, edited, clock, booked) as runtime:
        for name in ("paid", "late", "shown"):
            await runtime.create(f"invoice/new-{name}")
        await _answers_in_the_console(runtime)
        can = [[each.event for each in await runtime.can(f"invoice/{age}-late")] for age in ("old", "new")]
        small = {}
        for age in ("old", "new"):
            small[age] = (await runtime.send(f"invoice/{age}-paid", "pay", {"sum": 9})).outcome
            if small[age] == "rejected":
                await runtime.send(f"invoice/{age}-paid", "pay", {"sum": 10})
        paid = [await ended(runtime, clock, f"invoice/{age}-paid") for age in ("old", "new")]
        late = [(await runtime.state(f"invoice/{age}-late")).timers[0] for age in ("old", "new")]
        days = [(each.due_ms - began_ms) // DAY_MS for each in late]
        expired = [] if store == "postgresql" else await _expire(runtime, clock)  # its timers follow the server's clock
        problems = [each.problem async for each in runtime.verify_all()]
        revisions = {each.revision for each in (await runtime.store.find(EntityQuery(kind="invoice"))).rows}

    assert [("closed",)] * 2 == paid
    assert [f"invoice/{age}-{name}" for age in ("new", "old") for name in ("paid", "shown")] == sorted(booked)
    assert ["pay", "pay"] == [names[-1] for names in can]
    assert {"old": "rejected", "new": "applied" if edit == "a guard" else "rejected"} == small
    assert [14, 15 if edit == "a timer" else 14] == days
    if store != "postgresql":
        assert [None, None, "done", None if edit == "a timer" else "done", "done"] == expired
    assert {None} == set(problems)
    assert (1 if edit == "a description" else 2) == len(revisions)


async def _expire(runtime: interlock.Runtime, clock: VirtualClock) -> list[str | None]:
    """How the late invoices have ended before 14 days, after 14 and after 15: old, new; old, new; new."""

    async def now(*ages: str) -> list[str | None]:
        return [(await runtime.state(f"invoice/{age}-late")).ended for age in ages]

    await clock.advance(14 * DAY_MS - 1_000_000)
    before = await now("old", "new")
    await clock.advance(2_000_000)
    at_14 = await now("old", "new")
    await clock.advance(DAY_MS)
    return [*before, *at_14, *await now("new")]


async def _answers_in_the_console(runtime: interlock.Runtime) -> None:
    """Each entity has its page, its drawing and its journal, in its own revision."""
    async with console_of(runtime) as client:
        for age in ("old", "new"):
            await _is_shown(client, f"invoice/{age}-shown")
        kind = (await client.json("kinds/invoice"))["kind"]
        assert 6 == kind["entities"]
        for age in ("old", "new"):
            await _is_sent_to(client, f"invoice/{age}-shown")


async def _is_shown(client: Client, entity: str) -> None:
    page: dict[str, Any] = await client.json(f"entity/{entity}")
    state = (await client.runtime.state(entity)).configuration[0]
    drawing = await client.get(f"kinds/invoice/chart.svg?revision={page['revision']}")
    journal = await client.json(f"journal/{entity}")

    assert [state] == page["configuration"]
    assert ["pay"] == [each["event"] for each in page["accepted"] if each["why"] in (None, "guard")]
    assert 200 == drawing.status_code
    assert f's-{state}"' in drawing.text
    assert 1 == len(journal["entries"])


async def _is_sent_to(client: Client, entity: str) -> None:
    """The console sends to it, in its own revision."""
    refused = await client.post(f"send/{entity}", {"event": "pay", "payload": {"sum": 1}, "dry_run": True})
    sent = await client.post(f"send/{entity}", {"event": "pay", "payload": {"sum": 10}})

    assert (422, "rejected.guard") == (refused.status_code, refused.json()["code"])
    assert (200, "applied", ["closing"]) == (sent.status_code, sent.json()["outcome"], sent.json()["configuration"])


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("url", ["file:invoices", "sqlite:///invoices.db"])
def test_after_an_edit_commands_answer_for_old_and_new_entities(
    call: Caller, folder: Path, url: str, edit: str
) -> None:
    (folder / "invoice.yaml").write_text(CHART)
    assert 0 == call("create", url, "invoice/old", "--chart", "invoice.yaml").code
    (folder / "old.yaml").write_text(CHART)
    (folder / "invoice.yaml").write_text(EDITS[edit](CHART))
    diff = call("diff", "-q", "old.yaml", "invoice.yaml")
    code, line = CLASSES[edit]
    assert code == diff.code
    assert line in diff.out
    assert 0 == call("create", url, "invoice/new", "--chart", "invoice.yaml").code
    for age in ("old", "new"):
        sent = call("send", url, f"invoice/{age}", "pay", '{"sum": 10}', "--chart", "invoice.yaml")
        shown = call("show", url, f"invoice/{age}")

        able = call("can", url, f"invoice/{age}")

        assert (0, 0, 0) == (sent.code, shown.code, able.code), sent.err + shown.err + able.err
        assert "● closing" in shown.out
    assert 0 == call("verify", url).code
    assert 0 == call("doctor", url, "--chart", "invoice.yaml").code
