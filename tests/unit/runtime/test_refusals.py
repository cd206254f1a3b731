"""Refusals: by the chart, by policy, by size and shape; and keys made by `dedupe`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.assemble.charts import BoundChart
from interlock.errors import DeniedError, RejectedError, UnavailableError, UsageError
from interlock.model.event import Event
from interlock.model.journal.work import WorkId
from interlock.model.limits import PAYLOAD_BYTES_MAX, PAYLOAD_DEPTH_MAX, POLICY_AGE_MS_MAX
from interlock.ports.definitions import Edition
from interlock.runtime.charts.registry import ChartRegistry
from interlock.runtime.runtime import Runtime
from interlock.stores.memory import MemoryStore
from tests.support.audit import audit_rows
from tests.unit.runtime.scene import StillClock, runtime

PAYMENTS = {"id": "till", "roles": ["payments"]}
ADA = {"id": "ada", "roles": ["customer"]}
DEEP: Any = json.loads("[" * (PAYLOAD_DEPTH_MAX + 1) + "]" * (PAYLOAD_DEPTH_MAX + 1))


async def test_a_rejection_names_the_guard() -> None:
    doors = runtime()
    await doors.create("door/1")
    receipt = await doors.send("door/1", "locked")

    assert "rejected" == receipt.outcome
    assert receipt.failed_guards
    with pytest.raises(RejectedError):
        receipt.expect()


async def test_refusals_are_recorded_apart_from_journals() -> None:
    store = MemoryStore()
    doors = runtime(store=store)
    await doors.create("door/1")
    await doors.send("door/1", "unlocked", principal={"id": 7}, trace="t")
    await doors.send("door/1", "unlocked")
    named, nobody = await audit_rows(store)

    assert ("door/1", "unlocked", "rejected", 1_000, "7", "t") == (
        named.entity, named.event, named.outcome, named.time_ms, named.actor, named.trace
    )  # fmt: skip
    assert (None, "system") == (nobody.actor, nobody.actor_kind)


async def test_a_sender_without_the_role_is_denied() -> None:
    """No role, no principal, or the wrong one: denied, and a guessed key answers nothing."""
    orders = runtime()
    await orders.create("order/1")
    await orders.send("order/1", "payment.confirmed", {"id": "p1"}, key="k", principal=PAYMENTS)
    senders: tuple[dict[str, Any] | None, ...] = (None, {}, {"roles": []}, ADA)
    for principal in senders:
        receipt = await orders.send("order/1", "payment.confirmed", {"id": "p1"}, key="k", principal=principal)

        assert ("denied", "roles") == (receipt.outcome, receipt.reason)
        with pytest.raises(DeniedError):
            receipt.expect()


LEAVE = """\
interlock: 1
kind: leave
revision: "{revision}"
create: {{roles: [clerk]}}
events:
  noted: {{roles: [clerk]}}
  approved: {{roles: [{roles}]}}{more}
states:
  open: {{on: {{noted: {{target: open, reenter: true}}, approved: done{on}}}}}
  done: {{type: final}}
"""
CLERK, BOSS = {"id": "c", "roles": ["clerk"]}, {"id": "b", "roles": ["boss"]}


def leave(revision: str, *roles: str, more: str = "", on: str = "") -> BoundChart:
    """The chart with these roles for `approved`, and perhaps more events."""
    return interlock.loads(LEAVE.format(revision=revision, roles=", ".join(roles), more=more, on=on))


@pytest.mark.parametrize("older", ["", ", withdrawn: done"])
async def test_a_revoked_role_reaches_entities_of_older_revisions(tmp_path: Path, older: str) -> None:
    """Also where only the roles changed, which is another edition of the same revision."""
    url = f"sqlite:///{tmp_path}/x.db"
    async with interlock.open(url, charts=[leave("1.0", "clerk", "boss", on=older)], work=False) as old:
        await old.create("leave/1", principal=CLERK)
    async with interlock.open(url, charts=[leave("2.0", "boss")], work=False) as new:
        denied = await new.send("leave/1", "approved", principal=CLERK)
        rehearsed = await new.dry_run("leave/1", "approved", principal=CLERK)
        applied = await new.send("leave/1", "approved", principal=BOSS)

    assert [("denied", "roles"), ("denied", "roles"), ("applied", None)] == [
        (each.outcome, each.reason) for each in (denied, rehearsed, applied)
    ]


async def test_a_revoked_role_reaches_a_process_with_the_old_chart() -> None:
    """As soon as another process has registered the newer one, and this process looks again."""
    store, clock = MemoryStore(), StillClock()
    old, new = (
        Runtime(store, ChartRegistry([each.kernel]), clock) for each in (leave("1.0", "clerk"), leave("2.0", "boss"))
    )
    for number in (1, 2):
        await old.create(f"leave/{number}", principal=CLERK)
    await old.send("leave/1", "noted", principal=CLERK)
    await new.create("leave/3", principal=CLERK)
    clock.time_ms += POLICY_AGE_MS_MAX
    denied = await old.send("leave/1", "approved", principal=CLERK)

    assert ("denied", "roles") == (denied.outcome, denied.reason)
    assert "applied" == (await old.send("leave/2", "approved", principal=BOSS)).outcome


async def test_an_event_that_only_the_older_revision_declares_keeps_its_roles_and_permit() -> None:
    store = MemoryStore()
    withdrawn = "\n  withdrawn: {roles: [clerk], permit: \"= principal.id == 'c'\"}"
    old = leave("1.0", "clerk", more=withdrawn, on=", withdrawn: done")
    for number in (1, 2, 3):
        await Runtime(store, ChartRegistry([old.kernel]), StillClock()).create(f"leave/{number}", principal=CLERK)
    new = Runtime(store, ChartRegistry([leave("2.0", "boss").kernel]), StillClock())
    receipts = [
        await new.send("leave/1", "withdrawn", principal=BOSS),
        await new.send("leave/2", "withdrawn", principal={**CLERK, "id": "d"}),
        await new.send("leave/3", "withdrawn", principal=CLERK),
    ]

    assert ["roles", "permit", None] == [each.reason for each in receipts]


async def test_roles_stay_known_while_definitions_cannot_be_read() -> None:
    class Failing(MemoryStore):
        fails = False

        async def list_definitions(self, kind: str | None = None) -> tuple[Edition, ...]:
            if self.fails:
                raise UnavailableError("the store does not respond", code="store.test")
            return await super().list_definitions(kind)

    store, clock = Failing(), StillClock()
    leaves = Runtime(store, ChartRegistry([leave("1.0", "boss").kernel]), clock)
    await leaves.create("leave/1", principal=CLERK)
    await leaves.send("leave/1", "noted", principal=CLERK)
    store.fails = True
    clock.time_ms += POLICY_AGE_MS_MAX

    assert "denied" == (await leaves.send("leave/1", "approved", principal=CLERK)).outcome
    assert "applied" == (await leaves.send("leave/1", "approved", principal=BOSS)).outcome


async def test_an_answer_to_the_entity_itself_needs_no_role() -> None:
    """A timer brings an event that only some may send: the chart set it; from any other sender it is denied."""
    orders = runtime()
    await orders.create("order/1")
    sent = await orders.sender.deliver("order/1", Event("payment.confirmed"), key="_sent/1")
    fired = await orders.sender.deliver(
        "order/1", Event("payment.confirmed"), key="_timer/1", finishes=WorkId("timer", 1, 0)
    )

    assert [("denied", "roles"), ("applied", None)] == [(each.outcome, each.reason) for each in (sent, fired)]


async def test_a_permit_decides_by_principal_and_context() -> None:
    """The policy of the event sees both; an error in it is a no."""
    orders = runtime()
    await orders.create("order/1")
    allowed = await orders.send("order/1", "order.noted", principal=ADA)
    denied = await orders.send("order/1", "order.noted", principal={"id": "bob", "roles": ["customer"]})
    broken = await orders.send("order/1", "order.faulty", principal=ADA)

    assert "applied" == allowed.outcome
    assert ("denied", "permit") == (denied.outcome, denied.reason)
    assert ("denied", "permit.error") == (broken.outcome, broken.reason)


async def test_dedupe_makes_the_key_of_an_event() -> None:
    orders = runtime()
    await orders.create("order/1")
    first = await orders.send("order/1", "payment.confirmed", {"id": "p1"}, principal=PAYMENTS)
    again = await orders.send("order/1", "payment.confirmed", {"id": "p1"}, principal=PAYMENTS)
    long = [
        await orders.send("order/1", "payment.confirmed", {"id": "x" * 400 + tail}, principal=PAYMENTS) for tail in "ab"
    ]

    assert ("applied", "duplicate") == (first.outcome, again.outcome)
    assert [2, 2] == [first.version, again.version]
    assert {"duplicate"}.isdisjoint(each.outcome for each in long)


async def test_no_caller_can_use_the_key_of_a_dedupe() -> None:
    orders = runtime()
    await orders.create("order/1")
    await orders.send("order/1", "order.noted", key="payment.confirmed:p1", principal=ADA)
    receipt = await orders.send("order/1", "payment.confirmed", {"id": "p1"}, principal=PAYMENTS)

    assert "applied" == receipt.outcome


async def test_an_empty_dedupe_gives_no_key() -> None:
    orders = runtime()
    await orders.create("order/1")
    for payload in ({"id": ""}, {"id": None}, {}, None, "text"):
        receipt = await orders.send("order/1", "payment.confirmed", payload, principal=PAYMENTS)
        assert "duplicate" != receipt.outcome


@pytest.mark.parametrize("context", [{"openings": "many"}, {"unknown": 1}])
async def test_a_context_that_the_chart_refuses_creates_nothing(context: dict[str, Any]) -> None:
    """RejectedError, and the id is still free."""
    doors = runtime()
    with pytest.raises(RejectedError):
        await doors.create("door/1", context)

    assert "applied" == (await doors.create("door/1")).outcome


@pytest.mark.parametrize("value", [object(), float("nan"), "x" * PAYLOAD_BYTES_MAX, "\ud800", {1: 2}])
async def test_a_context_that_has_no_json_form_is_refused(value: Any) -> None:
    """At the call, and the id is still free."""
    doors = runtime()
    with pytest.raises(UsageError) as caught:
        await doors.create("door/1", {"note": value})

    assert "context.refused" == caught.value.code
    assert "applied" == (await doors.create("door/1")).outcome


@pytest.mark.parametrize("payload", [object(), float("inf"), "x" * PAYLOAD_BYTES_MAX, "\ud800", {1: 2}, DEEP])
async def test_a_payload_that_has_no_json_form_is_refused(payload: Any) -> None:
    """At the call, and the key is not used up."""
    doors = runtime()
    await doors.create("door/1")
    with pytest.raises(UsageError) as caught:
        await doors.send("door/1", "noted", payload, key="k")

    assert "event.payload" == caught.value.code
    assert "applied" == (await doors.send("door/1", "noted", {"text": "x"}, key="k")).outcome


async def test_an_entry_or_snapshot_that_is_too_large_is_rejected() -> None:
    text = """
interlock: 1
kind: heap
context: {all: {type: string, default: ""}, more: {type: string, default: ""}}
initial: a
states: {a: {}}
on:
  grown: {actions: [{assign: {all: "= context.all + context.all + event.data.text"}}]}
  copied: {actions: [{assign: {more: "= context.all"}}]}
  told: {actions: [{send: {event: heard, to: "heap/2", data: {all: "= context.all"}}}]}
"""
    heaps = runtime(text)
    await heaps.create("heap/1")
    await heaps.send("heap/1", "grown", {"text": "x" * 100_000})
    await heaps.send("heap/1", "grown", {"text": "x" * 100_000})
    with pytest.raises(RejectedError) as entry:
        await heaps.send("heap/1", "told")
    await heaps.send("heap/1", "grown", {"text": "x" * 100_000})
    with pytest.raises(RejectedError) as whole:
        await heaps.send("heap/1", "copied")

    assert ("entry.size", "snapshot.size") == (entry.value.code, whole.value.code)
    assert 4 == (await heaps.state("heap/1")).version


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ({"entity": "door"}, "entity.malformed"),
        ({"entity": "/1"}, "entity.malformed"),
        ({"entity": "door/"}, "entity.malformed"),
        ({"entity": "door/" + "x" * 200}, "entity.malformed"),
        ({"entity": "door/\0"}, "entity.malformed"),
        ({"entity": "door/\ud800"}, "entity.malformed"),
        ({"entity": 7}, "entity.malformed"),
        ({"event": ""}, "event.malformed"),
        ({"event": "_create"}, "event.reserved"),
        ({"event": "done.state.x"}, "event.reserved"),
        ({"event": "error.execution"}, "event.reserved"),
        ({"event": "after.5s"}, "event.reserved"),
        ({"event": "error"}, "event.reserved"),
        ({"event": "done"}, "event.reserved"),
        ({"event": "after"}, "event.reserved"),
        ({"event": "error\u200b.x"}, "event.reserved"),
        ({"event": "a\nb"}, "event.malformed"),
        ({"key": ""}, "key.reserved"),
        ({"key": "_x"}, "key.reserved"),
        ({"key": "x" * 201}, "key.malformed"),
        ({"key": "a\x7f"}, "key.malformed"),
        ({"principal": {"id": object()}}, "principal.malformed"),
        ({"trace": "x" * 300}, "trace.malformed"),
    ],
)
async def test_a_malformed_request_is_the_callers_mistake(call: dict[str, Any], code: str) -> None:
    """UsageError before anything is loaded, stepped or written."""
    doors = runtime()
    with pytest.raises(UsageError) as raised:
        await doors.send(**{"entity": "door/1", "event": "opened"} | call)

    assert code == raised.value.code
