"""Authorization on every store: who may send, create and read, and what a refusal discloses."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import interlock
from interlock.buses.memory import MemoryBus
from interlock.errors import DeniedError, InterlockError, NotFoundError, UsageError
from interlock.model.encoding.codec import to_builtins
from interlock.model.journal.message import Message
from interlock.runtime.charts.registry import ChartRegistry
from interlock.runtime.consumer import Consumer, Delivery
from interlock.runtime.runtime import Runtime
from interlock.testing.clock import VirtualClock
from tests.support.eventually import eventually
from tests.support.postgres_server import store_or_skip

LEAVE = """\
interlock: 1
kind: leave
revision: "1.0"
context: {owner: {type: string, default: ada}}
events:
  approved: {roles: [boss]}
  noted: {roles: [clerk, boss], permit: "= principal.id == context.owner", dedupe: "= event.data.id"}
states:
  open: {on: {noted: {}, approved: done}}
  done: {type: final}
"""
OLD_LEAVE = LEAVE.replace('"1.0"', '"0.9"').replace("  noted", "  withdrawn: {roles: [auditor]}\n  noted")
OLD_LEAVE = OLD_LEAVE.replace("approved: done}", "approved: done, withdrawn: done}")
CLERK, BOSS = {"id": "ada", "roles": ["clerk"]}, {"id": "bob", "roles": ["boss"]}
EVE = {"id": "eve", "kind": "user", "roles": ["visitor"]}
ADDRESSES = pytest.mark.parametrize(
    "address",
    ["memory:", "sqlite:///{}/x.db", "file://{}/x", "postgresql:"],
    ids=["memory", "sqlite", "file", "postgresql"],
)


@asynccontextmanager
async def opened(address: str, folder: Path, *texts: str) -> AsyncGenerator[Runtime, None]:
    """Return a runtime for these charts on a store of this kind, without a worker."""
    charts = [interlock.loads(each) for each in texts]
    url = store_or_skip() if address == "postgresql:" else address.format(folder)
    async with interlock.open(url, charts=charts, work=False) as found:
        yield found


async def answer(runtime: Runtime, entity: str, event: str, payload: Any = None, **options: Any) -> Any:
    """Return what a sender gets, with the id of the entity replaced: a receipt as plain data, or an error."""
    try:
        found = to_builtins(await runtime.send(entity, event, payload, **options))
    except InterlockError as error:
        found = {"error": type(error).__name__, "code": error.code, "message": error.message, "hint": error.hint}
    return {name: value.replace(entity, "ENTITY") if type(value) is str else value for name, value in found.items()}


@ADDRESSES
@pytest.mark.parametrize(
    ("event", "payload", "options"),
    [
        ("approved", None, {}),
        ("approved", None, {"key": "known"}),
        ("approved", None, {"expected": 1}),
        ("approved", None, {"expected": 7}),
        ("noted", {"id": "n1"}, {}),
        ("unheard.of", None, {}),
    ],
)
@pytest.mark.parametrize("principal", [EVE, {"id": "eve"}, None])
async def test_a_sender_without_the_role_learns_nothing_of_the_entity(
    tmp_path: Path, address: str, event: str, payload: Any, options: dict[str, Any], principal: dict[str, Any] | None
) -> None:
    """Not even whether it exists: whatever the event, the key and the expected version."""
    async with opened(address, tmp_path, LEAVE) as leaves:
        await leaves.create("leave/1", {"owner": "ada"})
        await leaves.send("leave/1", "noted", {"id": "n1"}, principal=CLERK, key="known")
        found = await answer(leaves, "leave/1", event, payload, principal=principal, **options)
        missing = await answer(leaves, "leave/2", event, payload, principal=principal, **options)
        rehearsed = [
            to_builtins(await leaves.dry_run(each, "approved", principal=principal)) for each in ("leave/1", "leave/2")
        ]

    assert found == missing
    assert found.get("version", 0) == 0
    assert "snapshot" not in found
    assert rehearsed[0].pop("explanation").replace("leave/1", "leave/2") == rehearsed[1].pop("explanation")
    assert rehearsed[0].pop("entity") != rehearsed[1].pop("entity")
    assert rehearsed[0] == rehearsed[1]


@ADDRESSES
async def test_a_sender_with_the_role_learns_that_an_entity_is_unknown(tmp_path: Path, address: str) -> None:
    async with opened(address, tmp_path, LEAVE) as leaves:
        with pytest.raises(NotFoundError):
            await leaves.send("leave/2", "approved", principal=BOSS)
        with pytest.raises(UsageError):
            await leaves.send("leave/2", "unheard.of", principal=EVE)


@ADDRESSES
async def test_an_outsider_learns_nothing_through_an_event_of_an_older_revision(tmp_path: Path, address: str) -> None:
    """Only the revision of the entity says who may send it; an unknown entity answers as one that denies it."""
    auditor = {"id": "kim", "roles": ["auditor"]}
    async with opened(address, tmp_path, OLD_LEAVE) as old:
        await old.create("leave/1")
        new = Runtime(old.store, ChartRegistry([interlock.loads(LEAVE).kernel]), old.clock)
        denied = [await answer(new, each, "withdrawn", principal=EVE) for each in ("leave/1", "leave/2")]
        both = Runtime(
            old.store, ChartRegistry([interlock.loads(each).kernel for each in (OLD_LEAVE, LEAVE)]), old.clock
        )
        denied += [await answer(both, each, "withdrawn", principal=EVE) for each in ("leave/1", "leave/2")]
        applied = await both.send("leave/1", "withdrawn", principal=auditor)

    assert denied[0]["code"] == "event.unknown"
    assert denied[2]["outcome"] == "denied"
    assert (denied[0], denied[2]) == (denied[1], {**denied[3], "explanation": denied[2]["explanation"]})
    assert "applied" == applied.outcome


# Creating

ACCOUNT = """\
interlock: 1
kind: account
context: {owner: {type: string, required: true, index: true}, limit: {type: integer, default: 0}}
create: {roles: [customer, clerk], permit: "= event.data.context.owner == principal.id or 'clerk' in principal.roles"}
read: {roles: [clerk], owner: owner}
events:
  limit.raised: {roles: [clerk], payload: {limit: {type: integer, required: true}}}
  account.closed: {roles: [customer, clerk], permit: "= principal.id == context.owner"}
states:
  open: {on: {limit.raised: {actions: [{assign: {limit: "= event.data.limit"}}]}, account.closed: closed}}
  closed: {type: final}
"""
ADA, BOB = ({"id": each, "kind": "user", "roles": ["customer"]} for each in ("ada", "bob"))
KIM = {"id": "kim", "kind": "user", "roles": ["clerk"]}


@ADDRESSES
async def test_a_creation_needs_the_roles_and_the_permit_of_create(tmp_path: Path, address: str) -> None:
    async with opened(address, tmp_path, ACCOUNT, LEAVE) as accounts:
        own = await accounts.create("account/1", {"owner": "ada"}, principal=ADA)
        foreign = await accounts.create("account/2", {"owner": "bob"}, principal=ADA)
        existing = await accounts.create("account/1", {"owner": "bob"}, principal=ADA)
        clerk = await accounts.create("account/2", {"owner": "bob"}, principal=KIM)
        outsider = await accounts.create("account/3", {"owner": "eve"}, principal=EVE)
        unsaid = await accounts.create("leave/1", principal=BOSS)
        program = await accounts.create("leave/1")
        missing = await accounts.store.load("account/3")

    assert ["applied", "denied", "denied", "applied", "denied", "denied", "applied"] == [
        each.outcome for each in (own, foreign, existing, clerk, outsider, unsaid, program)
    ]
    assert ["permit", "permit", "roles", "roles"] == [each.reason for each in (foreign, existing, outsider, unsaid)]
    assert {0} == {each.version for each in (foreign, existing, outsider, unsaid)}
    assert "no `create`" in str(unsaid.explanation)
    assert missing is None


@ADDRESSES
async def test_a_refused_creation_is_the_same_whether_the_entity_exists_or_not(tmp_path: Path, address: str) -> None:
    async with opened(address, tmp_path, ACCOUNT) as accounts:
        await accounts.create("account/1", {"owner": "ada"}, key="k")
        for options in ({}, {"key": "k"}, {"key": "other"}):
            found, missing = [
                to_builtins(await accounts.create(each, {"owner": "ada"}, principal=EVE, **options))
                for each in ("account/1", "account/2")
            ]

            assert found.pop("entity") != missing.pop("entity")
            assert found.pop("explanation").replace("account/1", "account/2") == missing.pop("explanation")
            assert found == missing


PARENT = """\
interlock: 1
kind: parent
events: {go: {roles: [clerk]}}
states:
  idle: {on: {go: busy}}
  busy: {invoke: {src: child, id: helper, type: chart, onDone: done, onError: failed}}
  done: {type: final}
  failed: {type: final}
"""
CHILD = """\
interlock: 1
kind: child
create: {roles: [nobody]}
events: {end: {roles: [nobody]}}
states: {working: {after: {1s: done}, on: {end: done}}, done: {type: final}}
"""


async def test_an_invoke_creates_its_child_whoever_may_create() -> None:
    async with interlock.open("memory:", charts=[interlock.loads(each) for each in (PARENT, CHILD)]) as parents:
        await parents.create("parent/1")
        (await parents.send("parent/1", "go", principal=KIM)).expect()
        async for entry in parents.watch("parent/1"):
            if entry.event.name.startswith("done.invoke"):
                break
        (child,) = (await parents.list(interlock.EntityQuery(kind="child"))).rows
        with pytest.raises(UsageError) as caught:
            await parents.create(f"child/helper-{'0' * 16}", principal=KIM)
        free = await parents.create(f"child/other-{'0' * 16}")

    assert child.entity.startswith("child/helper-")
    assert "entity.reserved" == caught.value.code
    assert "applied" == free.outcome


# Reading


@ADDRESSES
async def test_a_reader_reads_what_the_chart_lets_it_read(tmp_path: Path, address: str) -> None:
    async with opened(address, tmp_path, ACCOUNT) as accounts:
        for number, owner in enumerate(("ada", "bob", "ada"), start=1):
            await accounts.create(f"account/{number}", {"owner": owner})
        query = interlock.EntityQuery(kind="account")

        async def listed(reader: Any, **more: Any) -> list[str]:
            page = await accounts.list(msgspec.structs.replace(query, **more), reader=reader)
            return sorted(each.entity for each in page.rows)

        assert ["account/1", "account/2", "account/3"] == await listed(None) == await listed(KIM)
        assert ["account/1", "account/3"] == await listed(ADA)
        assert ["account/3"] == await listed(ADA, prefix="3")
        assert [] == await listed(ADA, where={"owner": "bob"})
        assert ["account/2"] == await listed(BOB, where={"owner": "bob"})
        with pytest.raises(UsageError):
            await listed(ADA, where={"owner": interlock.Range(at_least="a")})
        with pytest.raises(DeniedError) as caught:
            await listed({"roles": ["visitor"]})
        assert "read.denied" == caught.value.code

        assert "ada" == (await accounts.state("account/1", reader=ADA)).context["owner"]
        assert 1 == len(await accounts.journal("account/1", reader=ADA))
        assert 1 == len(await accounts.journal("account/2", reader=KIM))
        assert await accounts.can("account/1", reader=ADA)
        assert 3 == (await accounts.counts("account", reader=KIM))["open"]
        with pytest.raises(DeniedError):
            await accounts.counts("account", reader=ADA)
        async for entry in accounts.watch("account/1", reader=ADA):
            assert 1 == entry.version
            break


@ADDRESSES
async def test_to_a_reader_of_own_entities_others_do_not_exist(tmp_path: Path, address: str) -> None:
    async with opened(address, tmp_path, ACCOUNT) as accounts:
        await accounts.create("account/1", {"owner": "ada"})

        async def refusals(entity: str, reader: Any) -> list[tuple[str, str, str | None]]:
            found = []
            for read in (
                accounts.state(entity, reader=reader),
                accounts.state(entity, at=1, reader=reader),
                accounts.journal(entity, reader=reader),
                accounts.can(entity, reader=reader),
                anext(accounts.watch(entity, reader=reader)),
            ):
                with pytest.raises(InterlockError) as caught:
                    await read
                found.append((caught.value.code, caught.value.message.replace(entity, "ENTITY"), caught.value.hint))
            return found

        assert await refusals("account/1", BOB) == await refusals("account/2", BOB)
        assert {"entity.unknown"} == {code for code, _, _ in await refusals("account/1", BOB)}
        stranger = {"id": 7, "roles": ["visitor"]}
        assert await refusals("account/1", stranger) == await refusals("account/2", stranger)
        assert {"read.denied"} == {code for code, _, _ in await refusals("account/1", stranger)}


async def test_a_reader_under_a_permit_gets_no_lists() -> None:
    """A permit cannot be checked for each row."""
    text = ACCOUNT.replace("owner: owner}", 'permit: "= context.limit < 10"}')
    async with interlock.open("memory:", charts=[interlock.loads(text)], work=False) as accounts:
        await accounts.create("account/1", {"owner": "ada", "limit": 5})
        await accounts.create("account/2", {"owner": "ada", "limit": 50})
        assert 1 == (await accounts.state("account/1", reader=KIM)).version
        with pytest.raises(NotFoundError):
            await accounts.state("account/2", reader=KIM)
        with pytest.raises(DeniedError):
            await accounts.list(interlock.EntityQuery(kind="account"), reader=KIM)


async def test_create_and_read_follow_the_newest_revision(tmp_path: Path) -> None:
    """Also for entities that are pinned to an older revision, and although no revision changes its name by it."""
    url = f"sqlite:///{tmp_path}/x.db"
    closed = ACCOUNT.replace("read: {roles: [clerk], owner: owner}", "read: {roles: [auditor]}")
    closed = closed.replace("create: {roles: [customer, clerk]", "create: {roles: [auditor]")
    async with interlock.open(url, charts=[interlock.loads(ACCOUNT)], work=False) as old:
        await old.create("account/1", {"owner": "ada"}, principal=ADA)
        revision = (await old.state("account/1", reader=ADA)).revision
    async with interlock.open(url, charts=[interlock.loads(closed)], work=False) as new:
        with pytest.raises(DeniedError):
            await new.state("account/1", reader=ADA)
        assert "denied" == (await new.create("account/2", {"owner": "ada"}, principal=ADA)).outcome
        assert revision == (await new.state("account/1", reader={"id": "o", "roles": ["auditor"]})).revision


# Who acts

RELAY = """\
interlock: 1
kind: relay
events:
  go: {roles: [boss]}
  later: {roles: [boss]}
states:
  idle:
    expect: {within: forever}
    on:
      go: {actions: [{send: {event: approved, to: "leave/1"}}]}
      later: {actions: [{send: {event: approved, to: "leave/1", delay: 1s, id: later}}]}
"""


@pytest.mark.parametrize("event", ["go", "later"])
async def test_what_an_entity_sends_has_none_of_the_roles_of_its_sender(event: str) -> None:
    """Neither immediately nor when a timer is over: it acts as the system."""
    clock = VirtualClock()
    open_leave = LEAVE.replace("{roles: [boss]}", "{roles: [boss, system]}")
    for text, wanted in ((LEAVE, "open"), (open_leave, "done")):
        charts = [interlock.loads(each) for each in (RELAY, text)]
        async with interlock.open("memory:", charts=charts, clock=clock) as runtime:
            await runtime.create("relay/1")
            await runtime.create("leave/1")
            (await runtime.send("relay/1", event, principal=BOSS)).expect()
            await clock.advance(10_000)
            assert (wanted,) == (await runtime.state("leave/1")).configuration


async def test_no_user_and_no_service_acts_as_the_system() -> None:
    text = LEAVE.replace("{roles: [boss]}", "{roles: [system]}")
    async with interlock.open("memory:", charts=[interlock.loads(text)], work=False) as leaves:
        await leaves.create("leave/1")
        for kind in ("user", "service", "bus"):
            principal = {"id": "x", "kind": kind, "roles": ["system"]}
            assert "denied" == (await leaves.send("leave/1", "approved", principal=principal)).outcome


async def test_a_role_ends_at_its_time() -> None:
    clock = VirtualClock(1_000_000)
    ends = {"name": "boss", "until": "1970-01-01T00:30:00Z"}
    async with interlock.open("memory:", charts=[interlock.loads(LEAVE)], work=False, clock=clock) as leaves:
        for number in (1, 2):
            await leaves.create(f"leave/{number}")
        applied = await leaves.send("leave/1", "approved", principal={"id": "b", "roles": ["visitor", ends]})
        (entry,) = await leaves.journal("leave/1", after=1)
        await clock.advance(1_800_000)
        denied = await leaves.send("leave/2", "approved", principal={"id": "b", "roles": [ends]})
        with pytest.raises(UsageError) as caught:
            await leaves.send("leave/2", "approved", principal={"id": "b", "roles": [{**ends, "until": "2030-01-01"}]})

    assert ("applied", "denied") == (applied.outcome, denied.outcome)
    assert ["visitor", "boss"] == entry.event.principal["roles"]
    assert "principal.malformed" == caught.value.code


# A bus


@pytest.mark.parametrize(("roles", "counts"), [(["clerk"], {"applied": 1}), (["teller"], {"dead": 1})])
async def test_an_intake_creates_only_what_its_principal_may_create(roles: list[str], counts: dict[str, int]) -> None:
    """A creation that is denied is a dead letter: the intake does not try again without end."""
    text = ACCOUNT.replace("limit.raised: {roles: [clerk]", "limit.raised: {roles: [clerk, teller]")
    bus = MemoryBus()
    message = Message(id="m-1", source="/shop/order", subject="account/1", type="limit.raised", sequence="1")

    def raised(found: Message) -> Delivery:
        return Delivery("account/1", "limit.raised", {"limit": 7}, create={"owner": found.id})

    async with (
        interlock.open("memory:", charts=[interlock.loads(text)], work=False) as accounts,
        Consumer(bus, accounts, raised, principal={"id": "till", "kind": "service", "roles": roles}) as intake,
    ):
        await bus.publish(message)
        await eventually(lambda: intake.counts.total() == 1)
        assert counts == intake.counts
        assert (await accounts.store.load("account/1") is None) == ("dead" in counts)
