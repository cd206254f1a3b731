"""Lists and counts for readers who may not see hidden states: from rows of their own, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.errors import NotFoundError
from interlock.ports.reading.visible_names import VISIBLE
from interlock.ports.store import EntityQuery
from interlock.runtime.listed_states import ListedStates
from interlock.runtime.runtime import Runtime
from interlock.testing.clock import VirtualClock
from tests.support.accounts import ACCOUNT, ADA, CHIEF, EVE, account
from tests.support.postgres_server import store_or_skip

URLS: dict[str, Callable[[Path], str]] = {
    "memory": lambda _: "memory:",
    "sqlite": lambda folder: f"sqlite:///{folder}/accounts.db",
    "postgres": lambda _: store_or_skip(),
}
BEGAN_MS = 1_000_000
ACCOUNTS = 40
MASKED = ACCOUNT.replace('note: "= event.data.text"', 'iban: "= event.data.text"')
PLAIN = ACCOUNT.replace("    sensitive: {as: active, roles: [fraud]}\n", "")


@pytest.fixture(params=sorted(URLS))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store with counters."""
    return URLS[request.param](tmp_path)


@asynccontextmanager
async def opened(url: str, text: str = MASKED) -> AsyncIterator[tuple[Runtime, VirtualClock]]:
    """A runtime with accounts."""
    clock = VirtualClock(BEGAN_MS)
    async with interlock.open(url, charts=[account(text)], clock=clock, work=False) as runtime:
        yield runtime, clock


async def create(runtime: Runtime, clock: VirtualClock, *, accounts: int = ACCOUNTS) -> None:
    """Create accounts one second after the other, the highest number first."""
    for number in range(accounts):
        clock.time_ms += 1_000
        await runtime.create(f"account/{accounts - number:02}", principal=ADA)


async def freeze(runtime: Runtime, clock: VirtualClock, *numbers: int, ends: bool = False) -> None:
    """Freeze accounts, and write a note about each."""
    for number in numbers:
        for event in ("frozen", "noted", *(("unfrozen",) if ends else ())):
            clock.time_ms += 7
            payload = {"text": "x"} if event == "noted" else None
            (await runtime.send(f"account/{number:02}", event, payload, principal=EVE)).expect()


async def listed(runtime: Runtime, reader: Any = ADA, **filters: Any) -> list[str]:
    """Return the numbers of the accounts of a list, page by page."""
    found: list[str] = []
    limit, after = filters.pop("limit", 7), None
    while True:  # ends with the last page
        page = await runtime.list(EntityQuery(kind="account", limit=limit, after=after, **filters), reader=reader)
        found += [each.entity.removeprefix("account/") for each in page.rows]
        after = page.after
        if after is None:
            return found


async def questions(runtime: Runtime) -> list[Any]:
    """Return the answers to all lists and counts of the owner."""
    first = await runtime.list(EntityQuery(kind="account", limit=3), reader=ADA)
    return [
        await listed(runtime),
        await listed(runtime, limit=50),
        await listed(runtime, state="active"),
        await listed(runtime, state="closed"),
        await listed(runtime, tag="usable"),
        await listed(runtime, state="active", tag="usable"),
        await listed(runtime, entered_before_ms=BEGAN_MS + 20_000),
        await listed(runtime, prefix="1"),
        await listed(runtime, by_id=True, state="active"),
        (first.rows, first.after),
        await runtime.counts("account", reader=ADA),
        await runtime.visible_counts("account", ADA),
    ]


async def test_lists_and_counts_are_the_same_in_two_worlds(url: str) -> None:
    """In one of them accounts are frozen: some still are, some were; one before it was closed."""
    worlds = []
    for is_frozen in (False, True):
        async with opened(url) as (runtime, clock):
            await create(runtime, clock)
            if is_frozen:
                await freeze(runtime, clock, 1, 5, 17)
                await freeze(runtime, clock, 2, 6, ends=True)
            clock.time_ms = BEGAN_MS + 100_000
            (await runtime.send("account/02", "closed", principal=ADA)).expect()
            worlds.append(await questions(runtime))
            if is_frozen:
                assert (
                    3
                    == (await runtime.counts("account"))["frozen"]
                    == len(await listed(runtime, CHIEF, state="frozen"))
                )
                assert [] == [each async for each in runtime.verify_all() if each.problem is not None]
        if url != "memory:":
            url = url.replace("accounts.db", "other.db") if url.startswith("sqlite") else store_or_skip()

    assert worlds[0] == worlds[1]
    oldest_first = [f"{number:02}" for number in range(ACCOUNTS, 0, -1) if number != 2]
    assert [*oldest_first, "02"] == worlds[1][0]
    assert {"active": ACCOUNTS - 1, "closed": 1} == worlds[1][10]


async def test_a_page_reads_as_many_entities_as_it_has_rows(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(url) as (runtime, clock):
        await create(runtime, clock)
        await freeze(runtime, clock, 39)
        loaded: list[str] = []
        load = runtime.store.load

        async def counted(entity: str, *, key: str | None = None) -> Any:
            loaded.append(entity)
            return await load(entity, key=key)

        monkeypatch.setattr(runtime.store, "load", counted)
        page = await runtime.list(EntityQuery(kind="account", state="active", limit=5), reader=ADA)

    assert ["account/40", "account/39", "account/38", "account/37", "account/36"] == loaded
    assert loaded == [each.entity for each in page.rows]
    assert {("active",)} == {each.configuration for each in page.rows}


async def test_entities_without_rows_for_others_are_still_listed(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier release wrote them. Until each has an entry of this release, lists are in the order of ids."""
    async with opened(url) as (runtime, clock):
        with monkeypatch.context() as earlier:
            earlier.setattr(ListedStates, "others", lambda *_: ())
            await create(runtime, clock, accounts=3)
        await freeze(runtime, clock, 2)
        before = await listed(runtime, limit=2), await listed(runtime, state="active")
        with pytest.raises(NotFoundError) as unknown:
            await runtime.counts("account", reader=ADA)
        for number in (1, 3):
            (await runtime.send(f"account/0{number}", "deposited", {"amount": 1}, principal=ADA)).expect()
        after = await listed(runtime, limit=2), await runtime.counts("account", reader=ADA)

    assert (["01", "02", "03"], ["01", "02", "03"]) == before
    assert "kind.unknown" == unknown.value.code
    assert ["02", "01", "03"] == after[0]  # the times of 01 and 03 are those of their new entries
    assert {"active": 3, "closed": 0} == after[1]


async def test_entities_of_a_revision_without_hidden_states_are_still_listed(url: str) -> None:
    async with opened(url, PLAIN) as (runtime, clock):
        await create(runtime, clock, accounts=2)
    if url == "memory:":
        return
    async with opened(url) as (runtime, clock):
        await runtime.create("account/00", principal=ADA)
        assert ["00", "01", "02"] == await listed(runtime)
        with pytest.raises(NotFoundError):
            await runtime.counts("account", reader=ADA)


async def test_kinds_without_hidden_states_have_no_rows_for_others(url: str) -> None:
    async with opened(url, PLAIN) as (runtime, clock):
        await create(runtime, clock, accounts=1)
        assert runtime.store.statistics is not None
        assert () == (await runtime.store.statistics.visible_counts("account")).visible
        assert () == (await runtime.store.find(EntityQuery(kind="account", state=VISIBLE))).rows
        assert await runtime.visible_counts("account", ADA) is None
