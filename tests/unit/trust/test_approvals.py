"""Approvals: who is counted, when they end, and that they survive moves, replays and the simulation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.errors import DefinitionError, RejectedError, UsageError
from interlock.evolve.identity import behaviour_name
from interlock.model.event import Event
from interlock.model.limits import APPROVERS_MAX
from interlock.observe.acceptance import acceptances
from interlock.testing.clock import VirtualClock
from interlock.testing.simulation import Simulation

APPROVALS = "{of: pay.approve, count: 2, not: [pay.request], since: pay.request, within: 24h}"
PAYOUT = """\
interlock: 1
kind: payout
revision: "1.0"
context: {amount: {type: integer, default: 0}, bosses: {type: integer, default: 0}}
events:
  pay.request: {roles: [clerk]}
  pay.approve: {roles: [clerk, boss]}
  pay.release: {roles: [boss], approvals: APPROVALS}
  pay.noted: {roles: [clerk]}
states:
  open:
    expect: {within: forever}
    on:
      pay.request: {}
      pay.approve: {guard: "= context.amount < 100"}
      pay.release: {actions: [{assign: {amount: "= context.amount + 1"}}]}
      pay.noted: {actions: [{assign: {bosses: "= len(actors('pay.approve'))"}}]}
"""


def payout(approvals: str = APPROVALS, **changes: str) -> Any:
    text = PAYOUT.replace("APPROVALS", approvals)
    for old, new in changes.items():
        text = text.replace(old, new)
    return interlock.loads(text)


def user(name: str, **fields: Any) -> dict[str, Any]:
    return {"id": name, "kind": "user", "roles": ["clerk", "boss"], **fields}


class Desk:
    """A payout of a simulation, to which users send events."""

    def __init__(self, chart: Any | None = None) -> None:
        self.world = Simulation(chart or payout())
        self.world.create("payout/1")

    def send(self, event: str, who: dict[str, Any] | None) -> tuple[str, str | None]:
        step = self.world.send("payout/1", f"pay.{event}", principal=who)
        return step.outcome, step.reason

    def approve(self, *names: str) -> None:
        for name in names:
            assert "applied" == self.send("approve", user(name))[0]


MISSING = ("denied", "approvals")


def test_two_different_users_must_approve() -> None:
    desk = Desk()
    desk.send("request", user("ann"))
    desk.approve("bob", "bob")
    assert MISSING == desk.send("release", user("bob"))
    desk.approve("cem")
    assert ("applied", None) == desk.send("release", user("bob"))


def test_approvals_are_used_up() -> None:
    desk = Desk(payout("{of: pay.approve, count: 2}"))
    desk.approve("bob", "cem")
    assert "applied" == desk.send("release", user("bob"))[0]
    assert MISSING == desk.send("release", user("bob"))


def test_who_requested_cannot_approve() -> None:
    desk = Desk()
    desk.send("request", user("ann"))
    desk.approve("ann", "bob")
    assert MISSING == desk.send("release", user("bob"))


def test_a_new_request_starts_a_new_round() -> None:
    """Approvals of the former one do not count, and who requested that one may approve this one."""
    desk = Desk()
    desk.send("request", user("ann"))
    desk.approve("bob", "cem")
    desk.send("request", user("bob"))
    assert MISSING == desk.send("release", user("cem"))
    desk.approve("ann", "cem")
    assert "applied" == desk.send("release", user("cem"))[0]


def test_an_approval_ends_after_its_time() -> None:
    desk = Desk()
    desk.approve("bob")
    desk.world.advance(24 * 3_600_000)
    desk.approve("cem")
    assert "applied" == desk.send("release", user("bob"))[0]
    desk.approve("bob")
    desk.world.advance(24 * 3_600_000 + 1)
    desk.approve("cem")
    assert MISSING == desk.send("release", user("bob"))
    desk.approve("bob")  # again: the later time counts
    assert "applied" == desk.send("release", user("bob"))[0]


@pytest.mark.parametrize(
    "who",
    [user("robot", kind="service"), user("bus:x", kind="bus"), user("x", kind="system"), user(""), user("é" * 200)],
)
def test_only_users_with_an_id_approve(who: dict[str, Any]) -> None:
    desk = Desk(payout("{of: pay.approve}"))
    assert "applied" == desk.send("approve", who)[0]
    assert MISSING == desk.send("release", user("bob"))


def test_a_principal_without_a_kind_is_a_user() -> None:
    desk = Desk(payout("{of: pay.approve}"))
    desk.send("approve", {"id": "bob", "roles": ["boss"]})
    assert "applied" == desk.send("release", user("bob"))[0]


def test_an_approval_that_was_rejected_does_not_count() -> None:
    desk = Desk(payout("{of: pay.approve}", **{"context.amount < 100": "context.amount > 100"}))
    assert "rejected" == desk.send("approve", user("bob"))[0]
    assert MISSING == desk.send("release", user("bob"))


def test_no_approval_counts_if_those_who_cannot_approve_are_too_many_to_remember() -> None:
    approvals = APPROVALS.replace("not: [pay.request]", "not: [pay.noted]")
    desk = Desk(payout(approvals))
    for number in range(APPROVERS_MAX + 1):
        desk.send("noted", user(f"u{number}"))
    desk.approve("u0", "bob")  # u0 is no longer in the list
    assert MISSING == desk.send("release", user("bob"))


def test_the_number_of_remembered_users_is_limited() -> None:
    desk = Desk()
    desk.approve(*(f"u{number}" for number in range(3 * APPROVERS_MAX)))
    desk.send("noted", user("ann"))
    assert APPROVERS_MAX == desk.world.snapshots["payout/1"].context["bosses"]


async def test_nobody_can_bring_approvals_along() -> None:
    """Neither a creator nor a sender of the payload."""
    forged = {"pay.approve": [{"id": each, "version": 1, "time_ms": 2**50} for each in ("x", "y")]}
    async with interlock.open("memory:", charts=[payout()], work=False) as payouts:
        with pytest.raises(RejectedError) as caught:
            await payouts.create("payout/1", {"_actors": forged})
        assert "context.unknown" == caught.value.code
        assert "_actors" not in caught.value.message.partition("its fields are")[2]
        await payouts.create("payout/1")
        await payouts.send("payout/1", "pay.request", {"_actors": forged}, principal=user("ann"))
        receipt = await payouts.send("payout/1", "pay.release", {"_actors": forged}, principal=user("bob"))
        assert MISSING == (receipt.outcome, receipt.reason)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"bosses:": "_actors:"}, "name.reserved"),
        ({"assign: {amount": "assign: {_actors"}, "name.reserved"),
        ({"actors('pay.approve')": "actors('pay.noted')"}, "actors.unknown"),
        ({"of: pay.approve": "of: pay.aprove"}, "approvals.event"),
        ({"of: pay.approve": "of: pay.request"}, "approvals.event"),
        ({"count: 2": "count: 17"}, "approvals.count"),
        (
            {"  pay.noted: {roles: [clerk]}": "  pay.noted: {roles: [clerk], approvals: {of: pay.approve}}"},
            "approvals.since",
        ),
        ({" since: pay.request,": ""}, "approvals.since"),
    ],
)
def test_the_compiler_refuses(change: dict[str, str], code: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        payout(**change)
    assert code in {each.code for each in caught.value.diagnostics}


def test_what_is_recorded_is_part_of_the_revision_and_how_many_are_needed_is_not() -> None:
    def name(approvals: str) -> str:
        return behaviour_name(payout(approvals, **{"= len(actors('pay.approve'))": "= 1"}).chart.document)

    whole = name("{of: pay.approve, count: 2, within: 24h}")
    assert whole == name("{of: pay.approve, count: 3, within: 1h}")
    assert whole != name("{of: pay.request, count: 2, within: 24h}")
    assert whole != name("{of: pay.approve, count: 2, since: pay.request}")


async def test_approvals_are_replayed_and_hidden(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    async with interlock.open(url, charts=[payout()], work=False) as payouts:
        await payouts.create("payout/1")
        await payouts.send("payout/1", "pay.request", principal=user("ann"))
        for name in ("bob", "cem"):
            await payouts.send("payout/1", "pay.approve", principal=user(name))
        chart = (await payouts.revisions.newest("payout")).chart
        snapshot = await payouts.state("payout/1")
        assert {"amount": 0, "bosses": 0} == chart.visible_context(snapshot.context)
        verified = await payouts.verify("payout/1")
        assert (None, True) == (verified.problem, verified.replayed)
    async with interlock.open(url, charts=[payout()], work=False) as payouts:  # nothing is cached
        assert "applied" == (await payouts.send("payout/1", "pay.release", principal=user("bob"))).outcome


async def test_approvals_survive_a_move_to_another_revision(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    async with interlock.open(url, charts=[payout()], work=False) as old:
        for number in (1, 2):
            await old.create(f"payout/{number}")
        for name in ("bob", "cem"):
            await old.send("payout/1", "pay.approve", principal=user(name))
    changed = payout(**{'"1.0"': '"2.0"', "context.amount + 1": "context.amount + 2"})
    async with interlock.open(url, charts=[changed], work=False, upgrade="safe") as new:
        assert MISSING[0] == (await new.send("payout/2", "pay.release", principal=user("bob"))).outcome
        receipt = (await new.send("payout/1", "pay.release", principal=user("bob"))).expect()
        assert 2 == receipt.snapshot.context["amount"]


async def test_an_entity_whose_revision_records_nothing_is_denied_until_it_moves(tmp_path: Path) -> None:
    """The newest policy holds for it; without approvals it cannot be released."""
    url = f"sqlite:///{tmp_path}/x.db"
    plain = interlock.loads(PAYOUT.replace(", approvals: APPROVALS", "").replace("len(actors('pay.approve'))", "1"))
    async with interlock.open(url, charts=[plain], work=False) as old:
        await old.create("payout/1")
    newest = payout(**{'"1.0"': '"2.0"'})
    async with interlock.open(url, charts=[newest], work=False) as pinned:
        for name in ("bob", "cem"):
            await pinned.send("payout/1", "pay.approve", principal=user(name))
        receipt = await pinned.send("payout/1", "pay.release", principal=user("bob"))
        assert MISSING == (receipt.outcome, receipt.reason)
        assert "does not record" in str(receipt.explanation)
    async with interlock.open(url, charts=[newest], work=False, upgrade="safe") as moving:
        for name in ("bob", "cem"):
            await moving.send("payout/1", "pay.approve", principal=user(name))
        assert "applied" == (await moving.send("payout/1", "pay.release", principal=user("bob"))).outcome


async def test_the_runtime_and_can_say_what_is_missing() -> None:
    clock = VirtualClock()
    async with interlock.open("memory:", charts=[payout()], work=False, clock=clock) as payouts:
        await payouts.create("payout/1")
        await payouts.send("payout/1", "pay.approve", principal=user("bob"))
        receipt = await payouts.send("payout/1", "pay.release", principal=user("bob"))
        snapshot = await payouts.state("payout/1")
        kernel = await payouts.revisions.newest("payout")
        policy = await payouts.revisions.policy(kernel)
        found = {
            each.event: each for each in acceptances(kernel, snapshot, user("bob"), policy, time_ms=clock.now_ms())
        }

    assert "needs 2 approvals by `pay.approve`, and has 1 that count" in str(receipt.explanation)
    release = found["pay.release"]
    assert release.approvals is not None
    assert (False, "approvals", 2, 1) == (release.accepted, release.why, release.approvals.count, release.approvals.has)
    assert found["pay.approve"].accepted


def test_wildcards_and_outer_states_record_too() -> None:
    text = PAYOUT.replace("APPROVALS", "{of: pay.approve, count: 2}").replace(
        '      pay.approve: {guard: "= context.amount < 100"}\n', ""
    )
    desk = Desk(interlock.loads(text + 'on: {"*": {actions: [{assign: {bosses: "= context.bosses + 1"}}]}}\n'))
    desk.approve("bob")
    desk.send("noted", user("cem"))
    assert MISSING == desk.send("release", user("bob"))
    desk.approve("cem")
    assert "applied" == desk.send("release", user("bob"))[0]


def test_the_fast_and_the_plain_steps_record_alike() -> None:
    from interlock.kernel.step import Kernel

    chart = payout().chart
    steps = []
    for fast in (True, False):
        kernel = Kernel(chart, fast=fast)
        snapshot = kernel.start({}, entity="payout/1", time_ms=1).snapshot
        for number, (event, who) in enumerate(
            (("request", "ann"), ("approve", "bob"), ("approve", "bob"), ("noted", "x"))
        ):
            sent = Event(f"pay.{event}", principal=user(who), time_ms=2 + number)
            step = kernel.step(snapshot, sent)
            snapshot = step.snapshot
            steps.append((fast, step.outcome, snapshot.context))
    assert [each[1:] for each in steps if each[0]] == [each[1:] for each in steps if not each[0]]


def test_the_builder_says_the_same() -> None:
    build = interlock.build
    made = build.event(
        "pay.release",
        roles=["boss"],
        approvals=build.approvals("pay.approve", count=2, without=["pay.request"], since="pay.request", within="24h"),
    )
    events = payout().chart.events or ()
    assert made.approvals == next(each.approvals for each in events if each.name == "pay.release")
    with pytest.raises(UsageError):
        build.approvals("pay.approve", count=0)
