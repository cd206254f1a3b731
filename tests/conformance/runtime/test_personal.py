"""Personal data on memory, files and SQLite: sealed wherever it is stored, and unreadable after an erasure."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.buses.memory import MemoryBus
from interlock.errors import RejectedError, UnavailableError, UsageError
from interlock.model.journal.work import ERASE_WORK
from interlock.model.limits import CIPHER_AGE_MS_MAX
from interlock.model.personal_token import ERASED
from interlock.ports.clock import SystemClock
from interlock.ports.work import WorkQuery
from interlock.runtime.charts.registry import ChartRegistry
from interlock.runtime.key_rotation import rotate_epoch
from interlock.runtime.runtime import Runtime
from interlock.runtime.worker.worker import Worker
from interlock.stores.registry import open_store
from interlock.trust.keyrings import FileKeyring
from tests.conformance.runtime.personal_life import (
    CANARIES,
    EMAIL,
    INVITATION,
    PARTNER,
    Services,
    charts,
    found_in,
    key_of,
    live,
)
from tests.support.eventually import eventually

STORES = ("memory:", "file:{}/shop", "sqlite:///{}/shop.db")
DURABLE = STORES[1:]
REASON = "request 2026-118"


@pytest.fixture
def keyring(tmp_path: Path) -> str:
    """The address of a keyring outside the folder of the store."""
    path = tmp_path / "keyring.json"
    FileKeyring.create(path)
    return f"file:{path}"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("address", STORES)
async def test_no_plain_value_is_stored_or_logged_anywhere(
    address: str, place: Path, keyring: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    services, bus, url = Services(), MemoryBus(), address.format(place)
    async with interlock.open(url, charts=charts(services), keyring=keyring, bus=bus) as runtime:
        await live(runtime, services, bus)
        for entity in ("customer/c-1", "partner/p-1"):
            lines = b"".join(record.line for record in await runtime.store.read(entity))
            assert [each for each in CANARIES if each in lines] == []
        assert found_in(place, *CANARIES) == []
        _, key = await key_of(runtime, "customer/c-1")
        assert found_in(place, key) == []

    assert found_in(place, *CANARIES, key) == []
    assert [each for each in CANARIES if each.decode() in caplog.text] == []


@pytest.mark.parametrize("address", STORES)
async def test_after_an_erasure_nothing_is_readable_and_everything_still_holds(
    address: str, place: Path, keyring: str
) -> None:
    services, bus, url = Services(), MemoryBus(), address.format(place)
    entity = "customer/c-1"
    async with interlock.open(url, charts=charts(services), keyring=keyring, bus=bus) as runtime:
        await live(runtime, services, bus)
        row, key = await key_of(runtime, entity)
        before = await runtime.verify(entity)
        done = await runtime.erase(entity, reason=REASON, principal={"id": "dpo"}, live=True)

        assert (done.destroyed, done.targets) == ("final", ("partner/p-1",))
        assert [topic for topic, _ in done.messages] == ["customer.welcomed"]
        assert found_in(place, key, row.wrapped, *CANARIES) == []
        after = await runtime.verify(entity)
        assert (after.problem, after.replayed, after.entries) == (None, True, before.entries + 1)
        assert [each async for each in runtime.verify_all() if each.problem is not None] == []
        then = await runtime.state(entity, at=before.entries)
        assert (then.context["email"], then.context["adult"]) == (ERASED, True)
        last = (await runtime.journal(entity))[-1]
        assert (last.event.name, last.reason_given, last.event.principal) == ("_erase", REASON, {"id": "dpo"})
        assert (await runtime.state("partner/p-1")).context["email"] == EMAIL
        page = await runtime.store.work.list_work(WorkQuery(entity=entity))  # type: ignore[union-attr]  # they all keep work
        assert [each.work.name for each in page.rows if each.work.name == ERASE_WORK] == []
        again = await runtime.erase(entity, reason=REASON)
        assert (again.version, again.erased_ms) == (done.version, done.erased_ms)
        assert (await runtime.verify(entity)).entries == after.entries

    if not url.startswith("memory:"):
        assert found_in(place, key, row.wrapped, *CANARIES) == []


async def _erased(runtime: Any, entity: str = "customer/c-1") -> None:
    await runtime.create(entity)
    payload = {"email": EMAIL, "home": {"city": "x", "land": "DE"}, "adult": True}
    await runtime.send(entity, "signup", payload)


async def test_an_erased_entity_lives_on_without_personal_data() -> None:
    services = Services()
    async with interlock.open("memory:", charts=charts(services)) as runtime:
        await _erased(runtime)
        await eventually(lambda: _in(runtime, "active"))
        await runtime.erase("customer/c-1", reason=REASON, live=True)

        refused = await runtime.send("customer/c-1", "change", {"email": "new@example.org"})
        assert (refused.outcome, refused.reason) == ("rejected", "personal.erased")
        assert "new@example.org" not in str(refused.explanation)
        assert (await runtime.send("customer/c-1", "close")).outcome == "applied"


async def _in(runtime: Any, state: str, entity: str = "customer/c-1") -> bool:
    return state in (await runtime.state(entity)).configuration


async def test_an_effect_that_has_not_started_fails_and_the_chart_goes_on() -> None:
    """It certainly did nothing."""
    services = Services()
    async with interlock.open("memory:", charts=charts(services), work=False) as runtime:
        await _erased(runtime)
        done = await runtime.erase("customer/c-1", reason=REASON, live=True)
        assert [each.partition(" ")[0] for each in done.pending] == ["bank.lookup"]
        store, vault = runtime.store, runtime.vault
        bound = charts(services)
        second = Runtime(store, ChartRegistry([each.kernel for each in bound]), runtime.clock, vault=vault)
        worker = Worker(second, dict(bound[0].handlers))
        await worker.start()
        try:
            await eventually(lambda: _in(second, "active"))
        finally:
            await worker.stop()

        last = (await runtime.journal("customer/c-1"))[-1]
        assert (last.event.data["code"], last.event.data["done"]) == ("personal.erased", "no")
        assert services.inputs == []


async def test_the_late_result_of_an_erased_entity_counts_without_its_personal_fields() -> None:
    services, started, free = Services(), asyncio.Event(), asyncio.Event()
    bound = charts(services)

    async def slow(attempt: Any) -> Any:
        started.set()
        await free.wait()
        return {"iban": "DE-late-result", "ok": "late"}

    bound[0].handlers["bank.lookup"] = slow
    async with interlock.open("memory:", charts=bound) as runtime:
        await _erased(runtime)
        await started.wait()
        await runtime.erase("customer/c-1", reason=REASON, live=True)
        free.set()
        await eventually(lambda: _in(runtime, "active"))

        context = (await runtime.state("customer/c-1")).context
        assert (context["iban"], context["ok"]) == (ERASED, "late")
        lines = b"".join(record.line for record in await runtime.store.read("customer/c-1"))
        assert b"DE-late-result" not in lines
        assert (await runtime.verify("customer/c-1")).problem is None


@pytest.mark.parametrize("address", DURABLE)
async def test_an_erasure_in_one_process_is_complete_in_another_within_a_minute(
    address: str, place: Path, keyring: str
) -> None:
    class Moved:
        """The system's clock, moved by the test."""

        def __init__(self) -> None:
            self._clock, self.ahead_ms = SystemClock(), 0

        def now_ms(self) -> int:
            return self._clock.now_ms() + self.ahead_ms

        def __getattr__(self, name: str) -> Any:
            return getattr(self._clock, name)

    clock, url = Moved(), address.format(place)
    one = interlock.open(url, charts=charts(Services()), keyring=keyring, work=False)
    other = interlock.open(url, charts=charts(Services()), keyring=keyring, work=False, clock=clock)
    async with one as first, other as second:
        await _erased(first)
        assert (await second.state("customer/c-1")).context["email"] == EMAIL
        await first.erase("customer/c-1", reason=REASON, live=True)
        clock.ahead_ms = CIPHER_AGE_MS_MAX

        assert (await second.state("customer/c-1", at=2)).context["email"] == ERASED


@pytest.mark.parametrize("address", DURABLE)
async def test_a_chart_with_personal_data_needs_a_keyring(address: str, place: Path) -> None:
    with pytest.raises(UsageError) as caught:
        async with interlock.open(address.format(place), charts=charts(Services())):
            pass

    assert caught.value.code == "keyring.missing"


async def test_a_process_without_a_keyring_shows_what_is_sealed_and_sends_nothing(place: Path, keyring: str) -> None:
    url = f"sqlite:///{place}/shop.db"
    async with interlock.open(url, charts=charts(Services()), keyring=keyring, work=False) as runtime:
        await _erased(runtime)
    kernels = [each.kernel for each in charts(Services())]
    reader = Runtime(await open_store(url), ChartRegistry(kernels), SystemClock())
    try:
        context = (await reader.state("customer/c-1")).context
        assert list(context["email"]) == ["$personal"]
        assert (await reader.verify("customer/c-1")).replayed
        with pytest.raises(UnavailableError) as caught:
            await reader.send("customer/c-1", "close")
        assert caught.value.code == "keyring.missing"
    finally:
        await reader.close()


@pytest.mark.parametrize("value", [{"$personal": "AUx"}, {"a": [{"$personal": 1}]}])
async def test_the_reserved_key_is_refused_at_every_entrance(value: Any) -> None:
    """Otherwise a sender could paste a token that it saw into a field that is shown to it."""
    services = Services()
    bound = charts(services)

    async def tokens(attempt: Any) -> Any:
        services.inputs.append(attempt.input)
        return {"iban": value}

    bound[0].handlers["bank.lookup"] = tokens
    async with interlock.open("memory:", charts=bound) as runtime:
        calls: tuple[Callable[[], Awaitable[Any]], ...] = (
            lambda: runtime.create("customer/c-2", {"ok": value}),
            lambda: runtime.create("customer/c-2", {"_personal": "00" * 8}),
            lambda: runtime.send("customer/c-1", "change", {"email": value}),
            lambda: runtime.dry_run("customer/c-1", "change", {"email": value}),
            lambda: runtime.send("customer/c-1", "close", principal={"id": "x", "more": value}),
        )
        for call in calls:
            with pytest.raises(UsageError) as caught:
                await call()
            assert caught.value.code == "payload.reserved"
        await _erased(runtime)
        await eventually(lambda: _in(runtime, "active"))
        assert (await runtime.state("customer/c-1")).context["failed"] == "result.malformed"


async def test_a_function_cannot_write_a_plain_value() -> None:
    chart = interlock.loads("""
interlock: 1
kind: member
context: {email: {type: string, nullable: true, personal: true}}
events: {join: {payload: {email: {type: string, personal: true}}}, leave: {}}
states:
  out: {on: {join: {target: in, actions: [{assign: normalize}]}, leave: {target: in, actions: [{assign: steal}]}}}
  in: {}
""")
    chart.assign("normalize")(lambda context, event: {"email": "plain@example.org"})
    chart.assign("steal")(lambda context, event: {"email": None})
    async with interlock.open("memory:", charts=[chart]) as runtime:
        await runtime.create("member/1")

        refused = await runtime.send("member/1", "join", {"email": EMAIL})

        assert (refused.outcome, refused.reason) == ("rejected", "personal.unsealed")
        assert "plain@example.org" not in str(refused.explanation)
        assert (await runtime.send("member/1", "leave")).outcome == "applied"


async def test_a_malformed_personal_value_is_a_mistake_of_the_program() -> None:
    async with interlock.open("memory:", charts=charts(Services()), work=False) as runtime:
        await _erased(runtime)
        for payload in ({"email": 7}, {"email": "x" * 41}, {}):
            with pytest.raises(UsageError) as caught:
                await runtime.send("customer/c-1", "change", payload)
            assert caught.value.code == "event.payload"
        with pytest.raises(RejectedError) as refused:
            await runtime.create("customer/c-9", {"phone": 12})
        assert refused.value.code == "context.refused"


async def test_who_has_not_ended_a_child_and_who_has_no_data_are_not_erased(place: Path) -> None:
    bound = [*charts(Services()), interlock.loads("{interlock: 1, kind: lamp, states: {on: {}}}", format="yaml")]
    async with interlock.open("memory:", charts=bound) as runtime:
        await _erased(runtime)
        await runtime.create("lamp/1")
        for entity, code in (("customer/c-1", "personal.live"), ("lamp/1", "personal.none")):
            with pytest.raises(RejectedError) as caught:
                await runtime.erase(entity, reason=REASON)
            assert caught.value.code == code
        await eventually(lambda: _in(runtime, "active"))
        await runtime.send("customer/c-1", "invite")
        await eventually(lambda: _child(runtime))
        child = await _child(runtime)
        with pytest.raises(RejectedError) as caught:
            await runtime.erase(child, reason=REASON, live=True)
        assert (caught.value.code, "customer/c-1" in str(caught.value.hint)) == ("personal.child", True)


async def _child(runtime: Any) -> Any:
    page = await runtime.store.find(interlock.EntityQuery(kind="invitation"))
    return page.rows[0].entity if page.rows else None


async def test_an_entity_of_a_plain_chart_stays_on_it(place: Path, keyring: str) -> None:
    """Its journal has plain values, which no erasure would reach."""
    plain = interlock.loads(
        PARTNER.replace(", personal: true", "").replace("kind: partner", "kind: partner\nrevision: '1'")
    )
    marked = interlock.loads(PARTNER.replace("kind: partner", "kind: partner\nrevision: '2'"))
    url = f"sqlite:///{place}/shop.db"
    async with interlock.open(url, charts=[plain], work=False) as runtime:
        await runtime.create("partner/old")
    async with interlock.open(url, charts=[plain, marked], keyring=keyring, work=False, upgrade="safe") as runtime:
        await runtime.send("partner/old", "told", {"email": EMAIL})
        await runtime.create("partner/new")
        await runtime.send("partner/new", "told", {"email": EMAIL})

        old, new = [await runtime.state(f"partner/{each}") for each in ("old", "new")]
        assert old.revision == plain.chart.revision
        assert new.revision == marked.chart.revision
        with pytest.raises(RejectedError) as caught:
            await runtime.erase("partner/old", reason=REASON, live=True)
        assert caught.value.code == "personal.none"
        assert (await runtime.erase("partner/new", reason=REASON, live=True)).destroyed == "final"


@pytest.mark.parametrize("address", DURABLE)
async def test_an_epoch_ends_while_entities_live(address: str, place: Path, keyring: str) -> None:
    url = address.format(place)
    async with interlock.open(url, charts=charts(Services()), keyring=keyring, work=False) as runtime:
        await _erased(runtime)
        assert runtime.vault is not None
        row, _ = await key_of(runtime, "customer/c-1")
        done = await rotate_epoch(runtime.vault.keys, runtime.vault.keyring)
        assert (done.epoch, done.destroyed, done.rewrapped) == (2, (1,), 64)
        assert found_in(place, row.wrapped) == []
        await runtime.create("customer/c-2", {"phone": EMAIL})
    async with interlock.open(url, charts=charts(Services()), keyring=keyring, work=False) as runtime:
        assert (await runtime.state("customer/c-1")).context["email"] == EMAIL
        assert (await runtime.state("customer/c-2")).context["phone"] == EMAIL
        assert set(await runtime.vault.keys.count_keys()) == {2}  # type: ignore[union-attr]  # it has one


def test_a_send_in_a_blocking_transaction_of_the_caller_is_sealed(place: Path, keyring: str) -> None:
    url = f"sqlite:///{place}/shop.db"
    with interlock.connect(url, charts=charts(Services()), keyring=keyring) as runtime:
        connection = sqlite3.connect(place / "shop.db", isolation_level=None)
        connection.execute("PRAGMA synchronous = FULL")
        payload = {"email": EMAIL, "home": {"city": "x", "land": "DE"}, "adult": True}
        calls: tuple[Callable[[Any], Any], ...] = (
            lambda joined: joined.create("customer/c-1", {"phone": EMAIL}),
            lambda joined: joined.send("customer/c-1", "signup", payload),
        )
        for call in calls:
            connection.execute("BEGIN IMMEDIATE")
            call(runtime.join(connection)).expect()
            connection.execute("COMMIT")
        connection.close()

        context = runtime.state("customer/c-1").context
        assert (context["phone"], context["email"]) == (EMAIL, EMAIL)
    assert found_in(place, EMAIL.encode()) == []


async def test_messages_and_children_of_a_plain_chart_carry_no_token() -> None:
    child = interlock.loads(INVITATION.replace(", personal: true", "").replace("output: = context.mail", "output: 1"))
    services = Services()
    async with interlock.open("memory:", charts=[services.chart(), child]) as runtime:
        await _erased(runtime)
        await eventually(lambda: _in(runtime, "active"))
        await runtime.send("customer/c-1", "invite")
        await eventually(lambda: _in(runtime, "active"))

        async def failed() -> Any:
            return (await runtime.state("customer/c-1")).context["failed"]

        assert await eventually(failed) == "personal.undeclared"


async def test_many_creations_at_once_share_the_pools_of_keys() -> None:
    async with interlock.open("memory:", charts=charts(Services()), work=False) as runtime:
        await asyncio.gather(*(runtime.create(f"customer/{number}", {"phone": EMAIL}) for number in range(300)))
        kids = {(await runtime.preview_erasure(f"customer/{number}")).kid for number in range(300)}

        assert len(kids) == 300
        assert runtime.vault is not None
        assert sum((await runtime.vault.keys.count_keys()).values()) <= 300 + 64


async def test_parts_of_a_value_are_sealed_again_as_a_whole() -> None:
    """A mapping with tokens in it, which the receiver declares personal as a whole: one key opens all of it."""
    sender = interlock.loads("""
interlock: 1
kind: sender
context: {zip: {nullable: true, personal: true}, answer: {nullable: true, personal: true}}
states:
  a:
    entry: [{send: {event: told, to: receiver/1, data: {home: {zip: = context.zip, land: DE}}}}]
    invoke:
      type: chart
      src: child
      input: {zip: = context.zip}
      personal: true
      onDone: {target: b, actions: [{assign: {answer: = event.data}}]}
      onError: b
  b: {}
""")
    receiver = interlock.loads("""
interlock: 1
kind: receiver
context: {home: {type: object, nullable: true, personal: true}}
events: {told: {payload: {home: {type: object, personal: true}}}}
states: {a: {on: {told: {actions: [{assign: {home: = event.data.home}}]}}}}
""")
    child = interlock.loads("""
interlock: 1
kind: child
context: {zip: {nullable: true, personal: true}}
states: {a: {type: final, output: {zip: = context.zip, ok: true}}}
""")
    async with interlock.open("memory:", charts=[sender, receiver, child]) as runtime:
        await runtime.create("receiver/1")
        await runtime.create("sender/1", {"zip": "10115"})

        async def told() -> Any:
            return (await runtime.state("receiver/1")).context["home"]

        async def answered() -> Any:
            return (await runtime.state("sender/1")).context["answer"]

        assert await eventually(told) == {"zip": "10115", "land": "DE"}
        assert await eventually(answered) == {"zip": "10115", "ok": True}
        await runtime.erase("sender/1", reason=REASON, live=True)
        assert await told() == {"zip": "10115", "land": "DE"}
        assert await answered() == ERASED


async def test_an_operator_without_a_role_of_the_chart_may_erase() -> None:
    chart = interlock.loads(
        """
interlock: 1
kind: member
create: {roles: [clerk]}
context: {email: {type: string, nullable: true, default: null, personal: true}}
events: {leave: {roles: [clerk]}}
states:
  active: {on: {leave: gone}}
  gone: {type: final}
"""
    )
    clerk, operator = {"id": "ada", "roles": ["clerk"]}, {"id": "dpo"}
    async with interlock.open("memory:", charts=[chart]) as runtime:
        await runtime.create("member/1", {"email": "ada@example.org"}, principal=clerk)
        refused = await runtime.send("member/1", "leave", principal=operator)
        await runtime.send("member/1", "leave", principal=clerk)
        done = await runtime.erase("member/1", reason="asked", principal=operator)
        after = await runtime.state("member/1")

    assert ("denied", "final", {"email": {"$personal": ""}}) == (refused.outcome, done.destroyed, after.context)
