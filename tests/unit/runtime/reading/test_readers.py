"""What readers see who may not see hidden states: as if the entity had never been in one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import interlock
from interlock.buses.memory import MemoryBus
from interlock.errors import ConflictError, NotFoundError, UsageError
from interlock.kernel.sight import CoverKeeper
from interlock.model.journal.message import encode_message
from interlock.ports.store import EntityQuery
from interlock.runtime.history.bundle import BundleReader, export_bundle, import_bundle
from interlock.runtime.runtime import Runtime
from interlock.testing.clock import VirtualClock
from tests.support.accounts import ACCOUNT, ADA, CHIEF, EVE, account

STORES = ("memory:", "sqlite:///{0}.db", "file://{0}")
NAME = "account/1"


@asynccontextmanager
async def opened(
    url: str, folder: Path, *, text: str = ACCOUNT, bus: MemoryBus | None = None
) -> AsyncIterator[tuple[Runtime, VirtualClock]]:
    """Open a runtime with accounts on a new store."""
    clock = VirtualClock(1_000_000)
    async with interlock.open(url.format(folder), charts=[account(text)], clock=clock, bus=bus) as runtime:
        yield runtime, clock


async def deposit(runtime: Runtime, clock: VirtualClock, number: int, amount: int = 10) -> bytes:
    """Deposit as the owner of an account; return what they see."""
    clock.time_ms = 1_000_000 + 1_000 * number
    receipt = await runtime.send(NAME, "deposited", {"amount": amount}, key=f"d-{number}", principal=ADA, reader=ADA)
    return msgspec.json.encode(receipt)


async def freeze(runtime: Runtime, clock: VirtualClock, *, ends: bool) -> None:
    """Freeze an account, write a note, and unfreeze it."""
    clock.time_ms += 100
    (await runtime.send(NAME, "frozen", key=f"f-{clock.time_ms}", principal=EVE)).expect()
    (await runtime.send(NAME, "noted", {"text": "suspect"}, principal=EVE)).expect()
    if ends:
        (await runtime.send(NAME, "unfrozen", principal=EVE)).expect()


async def everything(runtime: Runtime) -> dict[str, Any]:
    """Return all that the owner can ask of a runtime about their account."""
    journal = await runtime.journal(NAME, reader=ADA)
    found: dict[str, Any] = {
        "state": await runtime.state(NAME, reader=ADA),
        "journal": journal,
        "can": await runtime.can(NAME, reader=ADA),
        "after 1": await runtime.journal(NAME, after=1, limit=1, reader=ADA),
        "after the last": await runtime.journal(NAME, after=len(journal), reader=ADA),
        "at 1": await runtime.state(NAME, at=1, reader=ADA),
        "at the last": await runtime.state(NAME, at=len(journal), reader=ADA),
    }
    for query in (
        EntityQuery(kind="account"),
        EntityQuery(kind="account", state="active", tag="usable", context=True),
        EntityQuery(kind="account", entered_before_ms=1_000_001),
        EntityQuery(kind="account", state="closed"),
        EntityQuery(kind="account", where={"balance": 20}),
    ):
        found[f"list {query}"] = await runtime.list(query, reader=ADA)
    for state in ("frozen", "odd"):
        with pytest.raises(UsageError) as unknown:
            await runtime.list(EntityQuery(kind="account", state=state), reader=ADA)
        found[f"list of {state}"] = (unknown.value.code, unknown.value.message.replace(state, "-"), unknown.value.hint)
    with pytest.raises(NotFoundError) as caught:
        await runtime.state(NAME, at=len(journal) + 1, reader=ADA)
    found["too late"] = (caught.value.code, caught.value.message, caught.value.hint)
    if runtime.store.statistics is not None:
        found["counts"] = await runtime.counts("account", reader=ADA)
    else:
        with pytest.raises(NotFoundError) as caught:
            await runtime.counts("account", reader=ADA)
        found["counts"] = (caught.value.code, caught.value.message, caught.value.hint)
    for event in ("frozen", "deposited", "closed", "unfrozen"):
        payload = {"amount": 1} if event == "deposited" else None
        found[f"dry run of {event}"] = await runtime.dry_run(NAME, event, payload, principal=ADA, reader=ADA)
    with pytest.raises(ConflictError) as conflict:
        await runtime.send(NAME, "deposited", {"amount": 1}, expected=99, principal=ADA, reader=ADA)
    found["conflict"] = conflict.value.message
    async with aclosing(runtime.watch(NAME, reader=ADA)) as entries:
        found["watch"] = [await anext(entries) for _ in journal]
    return {name: msgspec.json.encode(each) for name, each in found.items()}


@pytest.mark.parametrize("url", STORES)
async def test_a_stay_that_changed_nothing_visible_leaves_no_trace_for_others(url: str, tmp_path: Path) -> None:
    """Two worlds: the same deposits, in one of them with a freeze, a note and an unfreeze between."""
    worlds = []
    text = ACCOUNT.replace('note: "= event.data.text"', 'iban: "= event.data.text"')  # a masked field
    for name in ("without", "with"):
        async with opened(url, tmp_path / name, text=text) as (runtime, clock):
            await runtime.create(NAME, principal=ADA)
            seen: list[Any] = []
            for number in range(1, 6):
                seen.append(await deposit(runtime, clock, number))
                if name == "with" and number in (2, 4):
                    await freeze(runtime, clock, ends=True)
                    clock.time_ms = 1_000_000 + 1_000 * number
                seen.append(await everything(runtime))
            worlds.append(seen)

    assert worlds[0] == worlds[1]


@pytest.mark.parametrize("url", STORES)
async def test_a_frozen_account_looks_as_it_was_before(url: str, tmp_path: Path) -> None:
    worlds = []
    for name in ("without", "with"):
        async with opened(url, tmp_path / name) as (runtime, clock):
            await runtime.create(NAME, principal=ADA)
            await deposit(runtime, clock, 1)
            if name == "with":
                await freeze(runtime, clock, ends=False)
                assert ("frozen",) == (await runtime.state(NAME)).configuration
            worlds.append(await everything(runtime))

    assert worlds[0] == worlds[1]


async def test_what_changed_meanwhile_is_seen_as_one_change_by_the_system(tmp_path: Path) -> None:
    async with opened("memory:", tmp_path) as (runtime, clock):
        await runtime.create(NAME, principal=ADA)
        await freeze(runtime, clock, ends=True)
        entries = await runtime.journal(NAME, reader=ADA)
        shown = await runtime.state(NAME, reader=ADA)

    assert [(1, "create", "ada"), (2, "updated", "system")] == [
        (each.version, each.event, each.principal) for each in entries
    ]
    assert (("active",), ("active",), None, None) == (
        entries[1].before,
        entries[1].after,
        entries[1].data,
        entries[1].key,
    )
    assert (2, "suspect", "•••") == (shown.version, shown.context["note"], shown.context["iban"])


async def test_a_deposit_into_a_frozen_account_is_accepted_and_counts_after_it(tmp_path: Path) -> None:
    """That nothing happens until then cannot be hidden."""
    async with opened("memory:", tmp_path) as (runtime, clock):
        await runtime.create(NAME, principal=ADA)
        before = await deposit(runtime, clock, 1)
        await freeze(runtime, clock, ends=False)
        during = await deposit(runtime, clock, 2)
        frozen = await runtime.state(NAME, reader=ADA)
        await runtime.send(NAME, "unfrozen", principal=EVE)
        await clock.advance(1_000)
        after = await runtime.state(NAME, reader=ADA)

    assert (b'{"entity":"account/1","outcome":"accepted","key":"d-1"}', 10, 20) == (
        before,
        frozen.context["balance"],
        after.context["balance"],
    )
    assert before.replace(b"d-1", b"d-2") == during


async def test_fraud_sees_the_truth_by_role_and_the_chief_by_right(tmp_path: Path) -> None:
    async with opened("memory:", tmp_path) as (runtime, clock):
        await runtime.create(NAME, principal=ADA)
        await freeze(runtime, clock, ends=False)
        for reader in (EVE, CHIEF):
            state = await runtime.state(NAME, reader=reader)
            entries = await runtime.journal(NAME, reader=reader)
            assert (3, ("frozen",), "DE00") == (state.version, state.configuration, state.context["iban"])
            assert ["create", "frozen", "noted"] == [each.event for each in entries]
            assert {"frozen": 1, "active": 0, "closed": 0} == await runtime.counts("account", reader=reader)
        receipt = await runtime.send(NAME, "noted", {"text": "x"}, principal=EVE, reader=EVE)

    assert ("applied", 4) == (receipt.outcome, receipt.version)


async def test_expected_is_the_version_that_the_reader_sees(tmp_path: Path) -> None:
    async with opened("memory:", tmp_path) as (runtime, clock):
        await runtime.create(NAME, principal=ADA)
        await freeze(runtime, clock, ends=False)
        shown = await runtime.state(NAME, reader=ADA)
        receipt = await runtime.send(
            NAME, "deposited", {"amount": 1}, expected=shown.version, principal=ADA, reader=ADA
        )
        with pytest.raises(ConflictError, match=r"at version 1$"):
            await runtime.send(NAME, "deposited", {"amount": 1}, expected=3, principal=ADA, reader=ADA)

    assert (1, "accepted") == (shown.version, receipt.outcome)


async def test_a_key_of_a_hidden_entry_is_not_disclosed(tmp_path: Path) -> None:
    async with opened("memory:", tmp_path) as (runtime, clock):
        await runtime.create(NAME, principal=ADA)
        await deposit(runtime, clock, 1)
        await freeze(runtime, clock, ends=False)
        key = f"f-{clock.time_ms}"
        hidden = await runtime.send(NAME, "deposited", {"amount": 1}, key=key, principal=ADA, reader=ADA)
        with pytest.raises(UsageError) as caught:
            await runtime.send(NAME, "closed", key="d-1", principal=ADA, reader=ADA)

    assert ("accepted", "key.reused") == (hidden.outcome, caught.value.code)
    assert "version" not in caught.value.message


async def test_only_what_holds_in_every_state_is_refused(tmp_path: Path) -> None:
    """A role, a payload, an unknown event; and the permit on the cover. A permit on the real state is not disclosed."""
    text = ACCOUNT.replace(
        "closed: {roles: [customer]}", 'closed: {roles: [customer], permit: "= context.note == null"}'
    )
    async with opened("memory:", tmp_path, text=text) as (runtime, clock):
        await runtime.create(NAME, principal=ADA)
        await freeze(runtime, clock, ends=False)

        async def send(event: str, payload: Any = None) -> str:
            return (await runtime.send(NAME, event, payload, principal=ADA, reader=ADA)).outcome

        assert ["denied", "accepted"] == [await send("frozen"), await send("closed")]
        for event, payload in (("deposited", {"amount": "much"}), ("unknown", None)):
            with pytest.raises(UsageError):
                await send(event, payload)
        assert ("frozen",) == (await runtime.state(NAME)).configuration
        await runtime.send(NAME, "unfrozen", principal=EVE)
        assert "denied" == await send("closed")


async def test_a_chart_without_covers_shows_no_entity_to_others(tmp_path: Path) -> None:
    text = ACCOUNT.replace("as: active", "as: processing")
    async with opened("memory:", tmp_path, text=text) as (runtime, _):
        await runtime.create(NAME, principal=ADA)
        with pytest.raises(NotFoundError, match="unknown entity"):
            await runtime.state(NAME, reader=ADA)
        with pytest.raises(NotFoundError, match="unknown entity"):
            await runtime.send(NAME, "closed", principal=ADA, reader=ADA)
        assert 1 == (await runtime.state(NAME, reader=CHIEF)).version


@pytest.mark.parametrize("ends", [False, True])
async def test_a_bus_gets_no_message_of_a_hidden_stay_and_no_gap(ends: bool, tmp_path: Path) -> None:
    worlds = []
    text = ACCOUNT.replace('note: "= event.data.text"', 'iban: "= event.data.text"')
    for is_frozen in (False, True):
        bus = MemoryBus()
        async with opened("memory:", tmp_path, text=text, bus=bus) as (runtime, clock):
            await runtime.create(NAME, principal=ADA)
            await deposit(runtime, clock, 1)
            if is_frozen:
                await freeze(runtime, clock, ends=ends)
            if ends:
                await deposit(runtime, clock, 2)
            await clock.advance(1_000)
            worlds.append([encode_message(each) for each in bus.messages])

    assert worlds[0] == worlds[1]
    assert (5 if ends else 3) == len(worlds[0])


@pytest.mark.parametrize("is_frozen", [False, True])
async def test_a_frozen_account_moves_to_another_revision_with_its_cover(is_frozen: bool, tmp_path: Path) -> None:
    """Otherwise a migration would show which accounts are frozen."""
    url, clock = f"sqlite:///{tmp_path}/a.db", VirtualClock(1_000_000)
    async with interlock.open(url, charts=[account()], clock=clock) as runtime:
        await runtime.create(NAME, principal=ADA)
        await deposit(runtime, clock, 1)
        if is_frozen:
            await freeze(runtime, clock, ends=False)
    newer = ACCOUNT.replace("kind: account", "kind: account\nupgrade: safe").replace(
        "states:\n  active:", "states:\n  locked: {}\n  active:"
    )
    newer = newer.replace("closed: closed\n", "closed: closed\n      locked: locked\n").replace(
        "  dormant:", "  locked: {roles: [customer]}\n  dormant:"
    )
    async with interlock.open(url, charts=[account(newer)], clock=clock) as runtime:
        await deposit(runtime, clock, 2)
        state = await runtime.state(NAME, reader=ADA)
        entries = await runtime.journal(NAME, reader=ADA)
        truth = await runtime.state(NAME)
        assert runtime.charts.current("account") is not None
        assert (await runtime.verify(NAME)).problem is None

    assert truth.configuration == (("frozen",) if is_frozen else ("active",))
    assert state.revision == truth.revision == account(newer).chart.revision
    assert ["create", "deposited", "updated"] == [each.event for each in entries][:3]
    assert (3 if is_frozen else 4) == len(entries)


@pytest.mark.parametrize("ends", [False, True])
async def test_entries_of_an_earlier_release_are_not_shown_to_others(
    ends: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They do not record that they are unseen. The truth can be read, verified and exported."""
    url, clock = f"sqlite:///{tmp_path}/a.db", VirtualClock(1_000_000)
    with monkeypatch.context() as patch:  # an earlier release has no covers
        patch.setattr(CoverKeeper, "after", lambda _self, _before, step, _time_ms: step)
        async with interlock.open(url, charts=[account()], clock=clock) as runtime:
            await runtime.create(NAME, principal=ADA)
            await freeze(runtime, clock, ends=ends)
    async with interlock.open(url, charts=[account()], clock=clock) as runtime:
        assert (await runtime.state(NAME)).sight is None
        if ends:
            assert (4, ("active",)) == (
                (shown := await runtime.state(NAME, reader=ADA)).version,
                shown.configuration,
            )
        else:
            with pytest.raises(NotFoundError, match="unknown entity"):
                await runtime.state(NAME, reader=ADA)
            await runtime.send(NAME, "unfrozen", principal=EVE)
        await deposit(runtime, clock, 5)
        entries = await runtime.journal(NAME, reader=ADA)
        with pytest.raises(NotFoundError):
            await runtime.state(NAME, at=2, reader=ADA)
        assert ["deposited"] == [each.event for each in entries if each.event != "updated"]
        assert (await runtime.verify(NAME)).problem is None
        lines: list[bytes] = []
        await export_bundle(runtime.store, NAME, runtime.revisions, lines.append, now_ms=clock.now_ms())
    async with interlock.open("memory:", charts=[account()], clock=clock, work=False) as other:
        await import_bundle(other.store, BundleReader(lambda: lines), other.revisions, now_ms=clock.now_ms())
        with pytest.raises(NotFoundError):
            await other.state(NAME, at=2, reader=ADA)
        assert entries == (await other.journal(NAME, reader=ADA))[-len(entries) :]


async def test_the_log_does_not_name_an_entity_in_a_hidden_state(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An error in the step of a visible state is logged with the entity and the version that others see."""
    text = ACCOUNT.replace('note: "= event.data.text"', 'note: "= 1 / 0"').replace(
        "context.balance + event", "1 / 0 + event"
    )
    async with opened("memory:", tmp_path, text=text) as (runtime, clock):
        await runtime.create(NAME, principal=ADA)
        for event, payload in (("frozen", None), ("noted", {"text": "x"}), ("unfrozen", None)):
            await runtime.send(NAME, event, payload, principal=EVE)
        hidden = [each for each in caplog.records if each.name == "interlock.runtime"]
        await deposit(runtime, clock, 1)
        shown = [each for each in caplog.records if each.name == "interlock.runtime"][len(hidden) :]

    assert [("account", None)] == [(getattr(each, "kind", None), getattr(each, "entity_id", None)) for each in hidden]
    assert [(NAME, 2)] == [(getattr(each, "entity_id", None), getattr(each, "version", None)) for each in shown]
