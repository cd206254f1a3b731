"""Known keys: the same event again is a duplicate, whatever is refused now; another event is an error."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.errors import ConflictError, RejectedError, UsageError
from interlock.model.event import Event
from interlock.model.journal.record import JournalRecord
from interlock.model.snapshot import Parent
from interlock.runtime.runtime import Runtime
from interlock.stores.memory import MemoryStore
from tests.support.audit import audit_rows
from tests.support.postgres_server import store_or_skip
from tests.unit.runtime.scene import DOOR, ORDER, Interrupted, kernel, runtime

HEAP = """
interlock: 1
kind: heap
revision: 1.0.0
context: {all: {type: string, default: ""}, more: {type: string, default: ""}}
initial: a
states: {a: {expect: {within: forever}}}
on:
  grown: {actions: [{assign: {all: "= context.all + context.all + event.data.text"}}]}
  copied: {actions: [{assign: {more: "= context.all"}}]}
  emptied: {actions: [{assign: {all: "= ''"}}]}
  told: {actions: [{send: {event: heard, to: "heap/2", data: {all: "= context.all"}}}]}
"""
LOAN = """
interlock: 1
kind: loan
revision: 1.0.0
context: {owner: {type: string, required: true}, count: {type: integer, default: 0}}
create: {roles: [customer]}
events: {approved: {roles: [customer], permit: "= principal.id == context.owner"}}
initial: a
states: {a: {expect: {within: forever}, on: {approved: {actions: [{assign: {count: "= context.count + 1"}}]}}}}
"""
STRICT_DOOR = DOOR.replace("revision: 1.0.0", "revision: 2.0.0").replace("default: 0}", "default: 0, max: 5}")
LARGE = {"text": "x" * 100_000}
PAYMENTS = {"id": "till", "roles": ["payments"]}
ADA, BOB = ({"id": each, "roles": ["customer"]} for each in ("ada", "bob"))
STRANGER = {"id": "eve", "roles": []}
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


class Counted(MemoryStore):
    """A memory store that counts the reads of journals."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    async def read(self, entity: str, *, after: int = 0, limit: int = 1_000) -> tuple[JournalRecord, ...]:
        """As the memory store."""
        self.reads += 1
        return await super().read(entity, after=after, limit=limit)


# Refusals that raise


@ADDRESSES
async def test_a_recorded_event_is_a_duplicate_even_if_it_would_be_too_large_now(address: str, tmp_path: Path) -> None:
    async with opened(address, tmp_path, HEAP) as heaps:
        await heaps.create("heap/1")
        await heaps.send("heap/1", "grown", {"text": "x"})
        for event in ("copied", "told"):
            await heaps.send("heap/1", event, key=event)
        for _ in range(3):
            await heaps.send("heap/1", "grown", LARGE)
        again = [await heaps.send("heap/1", event, key=event) for event in ("copied", "told")]
        codes = []
        for event in ("copied", "told"):
            with pytest.raises(RejectedError) as raised:
                await heaps.send("heap/1", event, key=f"{event}/new")
            codes.append(raised.value.code)

        assert [("duplicate", 3), ("duplicate", 4)] == [(each.outcome, each.version) for each in again]
        assert ["snapshot.size", "entry.size"] == codes
        assert 7 == (await heaps.state("heap/1")).version


async def test_a_step_is_too_large_only_on_a_fresh_snapshot() -> None:
    store = MemoryStore()
    mine, theirs = runtime(HEAP, store=store), runtime(HEAP, store=store)
    await mine.create("heap/1")
    for _ in range(3):
        await mine.send("heap/1", "grown", LARGE)
    await theirs.send("heap/1", "emptied")
    receipt = await mine.send("heap/1", "copied")

    assert ("applied", 6) == (receipt.outcome, receipt.version)
    assert [] == await audit_rows(store)


async def test_a_step_that_is_too_large_is_recorded_as_a_refusal() -> None:
    store = MemoryStore()
    heaps = runtime(HEAP, store=store)
    await heaps.create("heap/1")
    for _ in range(3):
        await heaps.send("heap/1", "grown", LARGE)
    with pytest.raises(RejectedError):
        await heaps.send("heap/1", "copied", principal={"id": "ada"}, trace="t")
    (refusal,) = await audit_rows(store)

    assert ("heap/1", "copied", "rejected", "snapshot.size", 1_000, "ada", "t") == (
        refusal.entity, refusal.event, refusal.outcome, refusal.reason, refusal.time_ms, refusal.actor,
        refusal.trace,
    )  # fmt: skip


@ADDRESSES
async def test_a_recorded_creation_is_a_duplicate_even_if_its_context_would_be_refused_now(
    address: str, tmp_path: Path
) -> None:
    async with opened(address, tmp_path, DOOR) as doors:
        await doors.create("door/1", {"openings": 9}, key="c")
        unknown = await doors.create("door/1", {"openings": 9, "no": 1}, key="c")
        wrong = await doors.create("door/1", {"openings": "many"}, key="c")
        newer = await runtime(STRICT_DOOR, store=doors.store).create("door/1", {"openings": 9}, key="c")

    assert [("duplicate", 1)] * 3 == [(each.outcome, each.version) for each in (unknown, wrong, newer)]


@pytest.mark.parametrize("context", [{"no": 1}, {"openings": "many"}])
async def test_a_refused_creation_is_recorded_as_a_refusal(context: dict[str, Any]) -> None:
    store = MemoryStore()
    doors = runtime(store=store)
    with pytest.raises(RejectedError):
        await doors.create("door/1", context, principal={"id": "ada"})
    await doors.create("door/1", key="mine")
    with pytest.raises(RejectedError) as raised:
        await doors.create("door/1", context, key="other")

    assert [("door/1", "_create", "rejected", raised.value.code)] * 2 == [
        (each.entity, each.event, each.outcome, each.reason) for each in await audit_rows(store)
    ]
    assert ["ada", None] == [each.actor for each in await audit_rows(store)]


async def test_an_existing_child_is_a_duplicate_even_if_it_would_be_refused_now() -> None:
    store = MemoryStore()
    doors = runtime(store=store)
    parent = Parent("order/1", "door", "order/1/2/0")
    first = await doors.sender.create("door/1", kernel(DOOR), {"openings": 9}, parent=parent)
    again = await doors.sender.create("door/1", kernel(STRICT_DOOR), {"openings": 9}, parent=parent)
    with pytest.raises(RejectedError):
        await doors.sender.create("door/2", kernel(STRICT_DOOR), {"openings": 9}, parent=parent)

    assert ("applied", "duplicate", []) == (first.outcome, again.outcome, await audit_rows(store))


# One key, two events


@ADDRESSES
async def test_a_key_of_another_event_is_an_error(address: str, tmp_path: Path) -> None:
    async with opened(address, tmp_path, DOOR) as doors:
        await doors.create("door/1", key="request")
        await doors.send("door/1", "opened", key="second")
        reuses = [
            doors.send("door/1", "noted", {"text": "x"}, key="request"),  # the chart would take it
            doors.send("door/1", "unlocked", key="second"),  # the chart would refuse it
            doors.send("door/1", "closed", key="second", expected=1),  # the sender saw another version
            doors.create("door/1", key="second"),
            doors.create("door/1", {"no": 1}, key="second"),
            doors.dry_run("door/1", "noted", {"text": "x"}, key="request"),
        ]
        told = []
        for reuse in reuses:
            with pytest.raises(UsageError) as raised:
                await reuse
            assert ("key.reused", "use one key per event, such as `<request>/<event>`") == (
                raised.value.code, raised.value.hint
            )  # fmt: skip
            told.append(raised.value.message)

        assert 2 == (await doors.state("door/1")).version
    assert [
        "the key `request` of `door/1` belongs to its creation, version 1, not to `noted`",
        "the key `second` of `door/1` belongs to `opened`, version 2, not to `unlocked`",
        "the key `second` of `door/1` belongs to `opened`, version 2, not to `closed`",
        "the key `second` of `door/1` belongs to `opened`, version 2, not to its creation",
        "the key `second` of `door/1` belongs to `opened`, version 2, not to its creation",
        "the key `request` of `door/1` belongs to its creation, version 1, not to `noted`",
    ] == told


async def test_a_repeated_event_may_carry_another_payload() -> None:
    doors = runtime()
    await doors.create("door/1", {"note": "a"}, key="c")
    await doors.send("door/1", "noted", {"text": "a"}, key="k")
    again = [
        await doors.create("door/1", {"note": "b"}, key="c"),
        await doors.send("door/1", "noted", {"text": "b"}, key="k"),
        await doors.dry_run("door/1", "noted", {"text": "b"}, key="k"),
    ]

    assert [("duplicate", 1), ("duplicate", 2), ("duplicate", 2)] == [(each.outcome, each.version) for each in again]
    assert "a" == (await doors.state("door/1")).context["note"]


@ADDRESSES
async def test_the_key_of_another_principal_is_an_error(address: str, tmp_path: Path) -> None:
    """Also where the chart would deny the event: who guesses a key learns no outcome, and no approval is lost."""
    async with opened(address, tmp_path, LOAN) as loans:
        await loans.create("loan/1", {"owner": "ada"}, principal=ADA, key="c")
        await loans.send("loan/1", "approved", principal=ADA, key="a")
        again = await loans.send("loan/1", "approved", principal={**ADA, "roles": ["customer", "other"]}, key="a")
        reuses = [
            loans.create("loan/1", {"owner": "bob"}, principal=BOB, key="c"),
            loans.send("loan/1", "approved", principal=BOB, key="a"),  # the `permit` denies it
            loans.send("loan/1", "approved", principal=BOB, key="a", expected=9),
            loans.dry_run("loan/1", "approved", principal=BOB, key="a"),
        ]
        for reuse in reuses:
            with pytest.raises(UsageError) as raised:
                await reuse
            assert ("key.reused", True) == (raised.value.code, "ada" not in raised.value.message)

        assert ("duplicate", 2) == (again.outcome, again.version)
        assert ["bob"] * 3 == [each.actor for each in await audit_rows(loans.store)]


async def test_the_program_itself_may_repeat_the_event_of_a_principal() -> None:
    doors = runtime()
    await doors.create("door/1", key="c", principal=ADA)
    await doors.send("door/1", "opened", key="k", principal=ADA)
    again = [await doors.create("door/1", key="c"), await doors.send("door/1", "opened", key="k")]

    assert [("duplicate", 1), ("duplicate", 2)] == [(each.outcome, each.version) for each in again]


async def test_a_key_that_another_process_used_meanwhile_is_an_error() -> None:
    store = Interrupted()
    mine, theirs = runtime(store=store), runtime(store=store)
    await mine.create("door/1")
    store.before.append(lambda: theirs.send("door/1", "opened", key="k"))
    with pytest.raises(UsageError) as raised:
        await mine.send("door/1", "noted", {"text": "x"}, key="k")

    assert "key.reused" == raised.value.code
    assert "applied" == (await mine.send("door/1", "noted", {"text": "x"}, key="k/noted")).outcome


@ADDRESSES
async def test_a_key_whose_entry_is_archived_is_a_duplicate(address: str, tmp_path: Path) -> None:
    async with opened(address, tmp_path, DOOR) as doors:
        await doors.create("door/1", key="c")
        await doors.send("door/1", "smashed", key="k")
        released = await doors.store.release_journal("door/1", version=2, archive="file:///elsewhere")  # type: ignore[attr-defined]  # these stores let go
        again = [await doors.send("door/1", "opened", key=each) for each in ("c", "k")]

    assert released
    assert [("duplicate", 1), ("duplicate", 2)] == [(each.outcome, each.version) for each in again]


async def test_the_journal_is_read_only_for_a_duplicate_under_a_callers_key() -> None:
    store = Counted()
    doors = runtime(store=store)
    await doors.create("door/1", key="c")
    await doors.create("order/1")
    await doors.send("door/1", "opened", key="k")
    await doors.send("door/1", "unlocked", key="refused")
    for _ in range(2):
        await doors.send("order/1", "payment.confirmed", {"id": "p"}, principal=PAYMENTS)
        await doors.sender.deliver("door/1", Event("noted", {"text": "x"}), key="_sent/a")
    other = await doors.sender.deliver("door/1", Event("closed"), key="_sent/a")
    assert ("duplicate", 0) == (other.outcome, store.reads)

    await doors.send("door/1", "opened", key="k")
    assert 1 == store.reads


# Who may not send at all


async def test_roles_are_checked_before_the_expected_version() -> None:
    store = MemoryStore()
    orders = runtime(store=store)
    await orders.create("order/1")
    await orders.send("order/1", "payment.confirmed", {"id": "p"}, key="secret", principal=PAYMENTS)
    for key in ("secret", "other"):
        for expected in (1, 2, 99):
            receipt = await orders.send(
                "order/1", "payment.confirmed", {"id": "p"}, key=key, expected=expected, principal=STRANGER
            )
            assert ("denied", "roles") == (receipt.outcome, receipt.reason)

    assert [("order/1", "denied", "roles", "eve")] * 6 == [
        (each.entity, each.outcome, each.reason, each.actor) for each in await audit_rows(store)
    ]


async def test_a_permit_is_evaluated_on_the_expected_version() -> None:
    orders = runtime(ORDER)
    await orders.create("order/1")
    with pytest.raises(ConflictError) as raised:
        await orders.send("order/1", "order.noted", expected=7, principal=BOB)
    meant = await orders.send("order/1", "order.noted", expected=1, principal=BOB)
    allowed = await orders.send("order/1", "order.noted", expected=1, principal=ADA)

    assert "conflict.expected" == raised.value.code
    assert ("denied", "permit") == (meant.outcome, meant.reason)
    assert ("applied", 2) == (allowed.outcome, allowed.version)
