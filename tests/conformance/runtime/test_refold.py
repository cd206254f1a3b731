"""A refold gives recorded events to a corrected chart, and corrects what differs: on every store, next to clients.

The example is the one of the seed: a wrong sign in the balance of an account.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.assemble.charts import BoundChart
from interlock.errors import NotFoundError, UsageError
from interlock.evolve.refold import RefoldReport
from interlock.model.journal.entry import MOVED
from interlock.ports.clock import Clock
from interlock.runtime.charts.registry import ChartRegistry
from interlock.runtime.runtime import Runtime
from interlock.runtime.trials.refold import Refold, RefoldSettings
from tests.support.cli import Caller
from tests.support.postgres_server import store_or_skip
from tests.unit.runtime.scene import StillClock

WRONG = """
interlock: 1
kind: account
context: {balance: {type: integer, default: 0}}
events: {deposited: {payload: {amount: integer}}, withdrawn: {payload: {amount: integer}}, closed: {}, reviewed: {}}
states:
  open:
    after: {30d: dormant}
    on:
      deposited: {actions: [{assign: {balance: "= context.balance + event.data.amount"}}]}
      withdrawn: {actions: [{assign: {balance: "= context.balance + event.data.amount"}}]}
      reviewed: [{guard: "= context.balance > 120", target: rich}]
      closed: done
  rich: {expect: {within: forever}, on: {reviewed: open}}
  dormant: {expect: {within: forever}, on: {deposited: open}}
  done: {type: final}
"""
SIGN = 'withdrawn: {actions: [{assign: {balance: "= context.balance '
FIXED = WRONG.replace(f"{SIGN}+", f"{SIGN}-")
STORES = {"memory": "memory:", "sqlite": "sqlite:///{}/x.db", "file": "file://{}/x", "postgresql": "postgresql:"}
ADA = {"id": "ada"}

Process = Callable[..., Runtime]


@pytest.fixture(params=STORES)
async def process(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Process]:
    """Return a function that opens a runtime with some charts, as another process would, on one store."""
    address = STORES[request.param]
    url = store_or_skip() if address == "postgresql:" else address.format(tmp_path)
    clock: Clock = StillClock()
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(
            interlock.open(url, charts=[interlock.loads(WRONG)], clock=clock, work=False)
        )

        def opened(*charts: str | BoundChart, upgrade: Any = "pinned") -> Runtime:
            bound = [interlock.loads(each) if isinstance(each, str) else each for each in charts]
            return Runtime(first.store, ChartRegistry(each.kernel for each in bound), clock, upgrade=upgrade)

        yield opened


async def fill(runtime: Runtime, count: int = 3) -> None:
    """Create accounts with a deposit of 100; all but the first have a withdrawal, too."""
    for number in range(count):
        await runtime.create(f"account/{number}")
        await runtime.send(f"account/{number}", "deposited", {"amount": 100})
        if number:
            await runtime.send(f"account/{number}", "withdrawn", {"amount": 10 * number})


async def balances(runtime: Runtime, count: int = 3) -> list[int]:
    """The balance of each account."""
    return [(await runtime.state(f"account/{number}")).context["balance"] for number in range(count)]


def refold_of(runtime: Runtime, settings: RefoldSettings) -> Refold:
    """The refold of the accounts."""
    return Refold(runtime.entities, runtime.mover, "account", settings)


def counts(report: RefoldReport) -> tuple[int, int, int, int]:
    """Entities that are the same, can be corrected, were corrected, and need attention."""
    return report.same, report.correctable, report.corrected, report.blocked


async def verified(runtime: Runtime) -> bool:
    """Whether every journal is replayed without a problem."""
    return all([each.problem is None and each.replayed async for each in runtime.verify_all()])


async def test_a_corrected_sign_is_reported_and_then_written(process: Process) -> None:
    await fill(process(WRONG))
    fixed = process(FIXED)
    preview = await fixed.preview_refold("account")
    before = await balances(fixed)
    editions = [] if fixed.store.definitions is None else await fixed.store.definitions.list_definitions("account")
    report = await fixed.refold("account", reason="wrong sign", principal=ADA)
    entries = await fixed.journal("account/2")
    state = await fixed.state("account/2")
    again = await fixed.refold("account", reason="wrong sign", principal=ADA)

    assert ([100, 110, 120], 1) == (before, len({each.revision for each in editions}))
    assert ((1, 2, 0, 0), (1, 0, 2, 0), (3, 0, 0, 0)) == (counts(preview), counts(report), counts(again))
    (group,) = preview.groups
    assert (("open",), ("context.balance",), (), "withdrawn", 2) == (
        group.state,
        group.parts,
        group.reasons,
        group.event,
        group.count,
    )
    assert [
        ("account/1", 3, 3, ("context.balance: 110 -> 90",)),
        ("account/2", 3, 3, ("context.balance: 120 -> 80",)),
    ] == [(each.entity, each.version, each.first_version, each.differences) for each in group.samples]
    assert (preview.entries, 3) == (8, preview.entities)
    assert [100, 90, 80] == await balances(fixed)
    assert (MOVED, "refold", "wrong sign", ADA) == (
        entries[-1].event.name,
        entries[-1].reason,
        entries[-1].reason_given,
        entries[-1].event.principal,
    )
    assert "deposited withdrawn" == " ".join(each.event.name for each in entries[1:-1])
    (timer,) = state.timers
    assert (1, "after.30d.open") == (timer.version, timer.event)  # it was not set again
    assert () == entries[-1].effects
    assert await verified(fixed)
    sent = await fixed.send("account/2", "withdrawn", {"amount": 1})
    assert sent.snapshot is not None
    assert 79 == sent.snapshot.context["balance"]


async def test_what_a_person_must_decide_is_reported_and_not_written(process: Process) -> None:
    """An end, and another state."""
    wrong = process(WRONG)
    await fill(wrong, 4)
    await wrong.send("account/1", "closed")
    await wrong.send("account/3", "reviewed")
    fixed = process(FIXED)
    report = await fixed.refold("account", reason="wrong sign")

    assert (1, 0, 1, 2) == counts(report)
    reasons = {each.samples[0].entity: each.reasons for each in report.groups}
    assert ("the entity has ended (done)",) == reasons["account/1"]
    assert any("outcome" in each for each in reasons["account/3"])
    assert any("configuration" in each for each in reasons["account/3"])
    assert [100, 110, 80, 130] == await balances(fixed, 4)


async def test_an_effect_that_was_performed_with_another_value_forbids_the_correction(process: Process) -> None:
    states = "  rich: {expect: {within: forever}, invoke: {src: bank, input: {sum: '= context.balance'}}, on: {"
    wrong, fixed = (each.replace("  rich: {expect: {within: forever}, on: {", states) for each in (WRONG, FIXED))
    wrong, fixed = (each.replace("> 120", "> 0") for each in (wrong, fixed))
    first = process(wrong)
    await fill(first, 2)
    await first.send("account/1", "reviewed")
    await first.send("account/0", "reviewed")
    report = await process(fixed).refold("account", reason="wrong sign")

    assert (1, 0, 0, 1) == counts(report)
    assert any("effect that was performed" in each for each in report.groups[0].reasons)


async def test_clients_that_send_meanwhile_lose_nothing(process: Process) -> None:
    """Every step of a client is in the corrected balance, whichever chart ran it."""
    older, fixed = process(WRONG), process(FIXED)
    await fill(older, 12)
    sent = [0] * 12

    async def client(runtime: Runtime, first: int) -> None:
        for turn in range(12):
            number = (first + turn) % 12
            receipt = await runtime.send(f"account/{number}", "withdrawn", {"amount": 1})
            sent[number] += receipt.outcome == "applied"

    first, *_ = await asyncio.gather(
        fixed.refold("account", reason="wrong sign"), client(older, 0), client(older, 5), client(fixed, 3)
    )
    last = await fixed.refold("account", reason="wrong sign")

    assert 12 == first.entities == last.entities
    assert (0, 0, []) == (last.blocked, last.correctable, list(last.gaps))
    assert [3] * 12 == sent
    assert [100 - 10 * number - 3 for number in range(12)] == await balances(fixed, 12)
    assert await verified(fixed)


async def test_a_step_between_the_fold_and_the_write_is_folded_too(process: Process) -> None:
    """The correction is written under compare-and-swap: the entity that changed is decided again."""
    older, fixed = process(WRONG), process(FIXED)
    await fill(older, 2)
    refold = refold_of(fixed, RefoldSettings(writes=True, reason="wrong sign"))
    write, writes = refold._write, []

    async def late(entity: str, answer: Any) -> Any:
        writes.append(entity)
        if len(writes) == 1:
            await older.send(entity, "withdrawn", {"amount": 5})
        return await write(entity, answer)

    refold._write = late  # type: ignore[method-assign]  # a client between the fold and the write
    async for _ in refold.run():
        pass

    assert ["account/1", "account/1"] == writes
    assert (1, 0, 1, 0) == counts(refold.report())
    assert [100, 85] == await balances(fixed, 2)


async def test_an_interrupted_refold_continues(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.runtime.trials.refold.PAGE_MAX", 4)
    await fill(process(WRONG), 10)
    settings = RefoldSettings(writes=True, reason="wrong sign")
    walk = refold_of(process(FIXED), settings).run()
    await anext(walk)
    await anext(walk)  # the first page is complete
    await walk.aclose()
    second = refold_of(process(FIXED), settings)
    async for _ in second.run():
        pass
    third = refold_of(process(FIXED), settings)
    async for _ in third.run():
        pass

    assert (True, False) == (second.is_continued, third.is_continued)
    assert (6, 10, 10) == (second.report().entities, third.report().entities, third.report().same)
    assert [100 - 10 * number for number in range(10)] == await balances(process(FIXED), 10)


async def test_an_interrupted_refold_starts_again_if_asked_to(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.runtime.trials.refold.PAGE_MAX", 2)
    await fill(process(WRONG), 4)
    walk = refold_of(process(FIXED), RefoldSettings(writes=True, reason="sign")).run()
    await anext(walk)
    await anext(walk)
    await walk.aclose()
    again = refold_of(process(FIXED), RefoldSettings(writes=True, reason="sign", restarts=True))
    async for _ in again.run():
        pass

    assert (False, 4) == (again.is_continued, again.report().entities)


# Revisions


async def test_a_life_over_several_revisions_is_folded_with_its_moves(process: Process) -> None:
    """The entity moved to a chart with a new field before the error was found; the move is applied again."""
    second = WRONG.replace("default: 0}}", "default: 0}, steps: {type: integer, default: 5}}").replace(
        "balance + event.data.amount", 'balance + event.data.amount", steps: "= context.steps + 1', 1
    )
    third = second.replace(f"{SIGN}+", f"{SIGN}-")
    assert len({WRONG, second, third}) == 3
    await fill(process(WRONG), 2)
    newer = process(WRONG, second, upgrade="safe")
    moved = await newer.send("account/1", "deposited", {"amount": 3})
    fixed = process(third)
    report = await fixed.refold("account", reason="wrong sign")
    state = await fixed.state("account/1")

    assert moved.snapshot is not None
    assert {"balance": 113, "steps": 6} == moved.snapshot.context
    assert (1, 0, 1, 0) == counts(report)
    assert {"balance": 93, "steps": 6} == state.context
    assert await verified(fixed)


async def test_a_second_correction_is_not_misled_by_the_first(process: Process) -> None:
    """An earlier refold is left out of the fold: its values come from a chart that was wrong, too."""
    await fill(process(WRONG), 2)
    first = await process(FIXED.replace("balance - event", "balance - 2 * event")).refold("account", reason="once")
    wrong = await balances(process(FIXED), 2)
    second = await process(FIXED).refold("account", reason="twice")

    assert (1, 1) == (first.corrected, second.corrected)
    assert ([100, 80], [100, 90]) == (wrong, await balances(process(FIXED), 2))
    assert await verified(process(FIXED))


async def test_an_entity_on_a_later_revision_stays(process: Process) -> None:
    await fill(process(WRONG), 2)
    later = WRONG.replace("30d", "40d")
    fixed = process(FIXED)
    await fixed.create("account/9")  # the corrected chart is saved
    await process(WRONG, later, upgrade="safe").send("account/1", "deposited", {"amount": 1})
    report = await process(FIXED).refold("account", reason="wrong sign")

    assert 0 == report.corrected
    assert any("saved later" in reason for each in report.groups for reason in each.reasons)


async def test_a_corrected_function_under_the_same_name_is_found(process: Process) -> None:
    """The revision is the same; the stored snapshot shows what the wrong function did."""
    text = WRONG.replace(
        'withdrawn: {actions: [{assign: {balance: "= context.balance + event.data.amount"}}]}',
        "withdrawn: {actions: [{assign: withdraw}]}",
    )
    wrong, fixed = interlock.loads(text), interlock.loads(text)
    wrong.assign("withdraw")(lambda context, event: {"balance": context["balance"] + event.data["amount"]})
    fixed.assign("withdraw")(lambda context, event: {"balance": context["balance"] - event.data["amount"]})
    await fill(process(wrong), 2)
    report = await process(fixed).refold("account", reason="wrong sign")

    assert (1, 0, 1, 0) == counts(report)
    assert [100, 90] == await balances(process(fixed), 2)


# What cannot be judged


async def test_a_changed_function_of_the_recorded_chart_is_a_gap(process: Process) -> None:
    text = WRONG.replace(
        'deposited: {actions: [{assign: {balance: "= context.balance + event.data.amount"}}]}',
        "deposited: {actions: [{assign: deposit}]}",
    )
    wrong, fixed = interlock.loads(text), interlock.loads(text.replace(f"{SIGN}+", f"{SIGN}-"))
    wrong.assign("deposit")(lambda context, event: {"balance": context["balance"] + event.data["amount"]})
    fixed.assign("deposit")(lambda context, event: {"balance": context["balance"] + 2 * event.data["amount"]})
    await fill(process(wrong), 2)
    report = await process(fixed).refold("account", reason="wrong sign")

    assert (0, 0, 0, 0) == counts(report)
    assert [("snapshot.digest", 2)] == [(each.code, each.count) for each in report.gaps]
    assert [100, 110] == await balances(process(wrong), 2)


async def test_a_function_that_is_missing_here_is_a_gap(process: Process) -> None:
    wrong = interlock.loads(WRONG.replace('guard: "= context.balance > 120"', "guard: is_rich"))
    wrong.guard("is_rich")(lambda context, event: True)
    runtime = process(wrong)
    await fill(runtime, 2)
    await runtime.send("account/1", "reviewed")
    report = await process(FIXED).preview_refold("account")

    assert (1, [("function.missing", "account/1", 1)]) == (
        report.same,
        [(each.code, each.entity, each.count) for each in report.gaps],
    )


async def test_wrong_calls_are_refused(process: Process) -> None:
    fixed = process(FIXED)
    with pytest.raises(UsageError):
        await fixed.refold("account", reason=" ")
    with pytest.raises(UsageError):
        await fixed.refold("account", reason="x", rate=0)
    with pytest.raises(NotFoundError):
        await fixed.preview_refold("order")


# The command


def test_the_command_reports_writes_and_exits_by_what_is_left(call: Caller, folder: Path) -> None:
    url = f"sqlite:///{folder}/a.db"
    Path("wrong.yaml").write_text(WRONG, encoding="utf-8")
    Path("fixed.yaml").write_text(FIXED, encoding="utf-8")
    for number in range(2):
        call("create", url, f"account/{number}", "--chart", "wrong.yaml")
        call("send", url, f"account/{number}", "withdrawn", '{"amount": 7}', "--chart", "wrong.yaml")
    same = call("refold", url, "--chart", "wrong.yaml")
    preview = call("refold", url, "--chart", "fixed.yaml")
    refused = call("refold", url, "--chart", "fixed.yaml", "--write")
    written = call("refold", url, "--chart", "fixed.yaml", "--write", "--reason", "wrong sign", "--json")
    again = call("refold", url, "--chart", "fixed.yaml")
    journal = call("journal", url, "account/1", "--json")

    assert [0, 1, 2, 0, 0] == [each.code for each in (same, preview, refused, written, again)], written
    assert "account/0 v2 since v2  context.balance: 7 -> -7" in preview.out
    assert '"corrected":2' in written.out.replace(" ", "")
    assert '"wrong sign"' in journal.out


def test_the_command_says_that_there_is_no_verdict(call: Caller, folder: Path) -> None:
    """A journal without its definition: nothing differs as far as it was folded, and that proves nothing."""
    url = f"file://{folder}/x"
    Path("wrong.yaml").write_text(WRONG, encoding="utf-8")
    Path("fixed.yaml").write_text(FIXED, encoding="utf-8")
    call("create", url, "account/1", "--chart", "wrong.yaml")
    for each in (folder / "x" / "definitions").rglob("*.json"):
        each.unlink()
    found = call("refold", url, "--chart", "fixed.yaml")

    assert 12 == found.code, found
    assert "revision.unknown" in found.out
