"""Nobody without the right learns which account is or was frozen: every endpoint is compared in two worlds.

Both worlds get the same requests of the same customer at the same times. In one of them, fraud freezes an account, and
in some cases unfreezes it. The requests are generated from the endpoint table, so a new endpoint is tested, too.
What may differ is that nothing happens while the account is frozen (ADR 0138).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from interlock.kernel.step import Kernel
from interlock.model.journal.entry import Entry, Receipt
from interlock.model.snapshot import Snapshot
from interlock.model.visible import VisibleSnapshot
from interlock.ports.reading.statistics import StateCount, VisibleCounts, visible_counts
from interlock.ports.reading.visible_names import visible_names
from interlock.ports.store import EntityRow
from interlock.runtime.listed_states import ListedStates
from interlock.runtime.requests import CallerRequests
from interlock.stores.sql import store as sql_store
from interlock.testing.clock import VirtualClock
from interlock.trust.users import RIGHTS
from interlock.trust.visibility import Lens, VisibleReceipt, VisibleRow
from interlock.web.app import ENDPOINTS
from interlock.web.http.console import Console
from tests.support.accounts import ACCOUNT, EVE, account
from tests.support.stays import ACCOUNTS, Action, actions, live
from tests.unit.web import test_hidden
from tests.unit.web.consoles import Client, make_user, open_console
from tests.unit.web.test_hidden import ORDERED, answered, requests

BEGAN_MS = 1_000_000_000_000
ALMOST_ALL = tuple(each for each in RIGHTS if each != "read:sensitive")
NOTES_MASKED = ACCOUNT.replace('note: "= event.data.text"', 'iban: "= event.data.text"')
"""Here fraud changes only what others do not see."""

LISTS = (
    "state=active",
    "state=frozen",
    "state=odd",
    "older=1m",
    "tag=usable",
    "tag=watched",
    "where=balance%3D5",
    "q=1",
)

ENTITY_DOORS = ("/entity/", "/accepted/", "/journal/", "/streams/entity/", "/send/")
"""Endpoints about one entity, which show others its cover."""


@asynccontextmanager
async def world(folder: Path) -> AsyncIterator[tuple[Client, VirtualClock]]:
    """A console with two accounts for their owner."""
    clock = VirtualClock(BEGAN_MS)
    ada = make_user("ada", roles=("customer",), rights=ALMOST_ALL)
    async with open_console(f"sqlite:///{folder}.db", charts=(account(NOTES_MASKED),), who=ada, clock=clock) as client:
        yield client, clock


async def freeze(client: Client, *, ends: bool) -> None:
    """Freeze account 1 and write a note; unfreeze it if the stay ends."""
    runtime = client.runtime
    (await runtime.send("account/1", "frozen", principal=EVE)).expect()
    (await runtime.send("account/1", "noted", {"text": "suspect"}, principal=EVE)).expect()
    if ends:
        (await runtime.send("account/1", "unfrozen", principal=EVE)).expect()


async def everything(client: Client) -> dict[str, str]:
    """Return the answers of every endpoint about accounts. Those that would change the account are refused."""
    found = {}
    for endpoint in ORDERED:
        if endpoint.path == "/logout":
            continue
        for path, query, text in requests(endpoint, "account"):
            found[f"{endpoint.method} {path} {query} {text}"] = await answered(client, endpoint, path, query, text)
    for version in (1, 2, 3, 4):
        for path in (f"entity/account/1?version={version}", f"journal/account/1?after={version}&limit=1"):
            found[path] = (await client.get(path)).text
    for words in LISTS:
        answer = await client.get(f"kinds/account/entities?{words}")
        found[f"list {words}"] = f"{answer.status_code} {answer.text}"
    for event, payload in (("deposited", {"amount": 1}), ("closed", None), ("unfrozen", None), ("odd", None)):
        asked: dict[str, Any] = {"event": event, "payload": payload, "dry_run": True}
        found[f"dry run of {event}"] = (await client.post("send/account/1", asked)).text
    for asked in (
        {"event": "deposited", "payload": {"amount": "much"}},
        {"event": "deposited", "payload": {"amount": 1}, "expected": 77},
        {"event": "frozen"},
    ):
        answer = await client.post("send/account/1", asked)
        found[f"send {asked}"] = f"{answer.status_code} {answer.text}"
    return found


async def script(client: Client, clock: VirtualClock, *, frozen_at: int | None, ends: bool) -> list[Any]:
    """Create two accounts and deposit into them, and return all answers. Freeze account 1 before a deposit."""
    seen: list[Any] = []
    for number in (1, 2):
        created = await client.post("kinds/account/entities", {"id": str(number), "key": f"c-{number}"})
        seen.append(f"{created.status_code} {created.text}")
    for number in (1, 2, 3):
        clock.time_ms = BEGAN_MS + 60_000 * number
        if number == frozen_at:
            await freeze(client, ends=ends)
        seen.append(await everything(client))
        body = {"event": "deposited", "payload": {"amount": 5}, "key": f"d-{number}"}
        for _ in range(2):  # the second is a duplicate
            answer = await client.post("send/account/1", body)
            seen.append(f"{answer.status_code} {answer.text}")
        if number == frozen_at and not ends:  # from here on, the deposit is visible in one world only
            break
    return seen


async def difference(folder: Path, *, frozen_at: int, ends: bool) -> list[str]:
    """Return the requests whose answers differ between the two worlds."""
    worlds = []
    for is_frozen in (False, True):
        async with world(folder / f"{frozen_at}-{ends}-{is_frozen}") as (client, clock):
            worlds.append(await script(client, clock, frozen_at=frozen_at if is_frozen else None, ends=ends))
            if is_frozen:
                versions = (await client.runtime.state("account/1")).version
                assert versions > 2
    found = []
    for one, two in zip(*worlds, strict=False):
        if isinstance(one, dict):
            found += [name for name in one if one[name] != two[name]]
        elif one != two:
            found.append(one)
    return found


@pytest.fixture(autouse=True)
def _events_of_accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The generated requests send an event that the role of the customer does not allow."""
    monkeypatch.setitem(test_hidden.VALUES, "event", "frozen")


@pytest.mark.parametrize(("frozen_at", "ends"), [(1, True), (3, True), (2, False)])
async def test_no_endpoint_shows_whether_an_account_is_or_was_frozen(
    tmp_path: Path, frozen_at: int, ends: bool
) -> None:
    assert [] == await difference(tmp_path, frozen_at=frozen_at, ends=ends)


async def random_world(script: list[Action], *, is_frozen: bool) -> dict[str, str]:
    """Return all answers after a script, with its stays or without."""
    clock = VirtualClock(BEGAN_MS)
    ada = make_user("ada", roles=("customer",), rights=ALMOST_ALL)
    async with open_console("memory:", charts=(account(NOTES_MASKED),), who=ada, clock=clock) as client:
        for name in ACCOUNTS:
            await client.post("kinds/account/entities", {"id": name, "key": f"c-{name}"})
        await live(client.runtime, clock, script, is_frozen=is_frozen)
        return await everything(client)


@settings(max_examples=4)
@given(actions(least=6))
def test_no_endpoint_shows_random_stays(script: list[Action]) -> None:
    """The requests are about account 1; stays of the others may show in lists, counts and streams."""
    worlds = [asyncio.run(random_world(script, is_frozen=is_frozen)) for is_frozen in (False, True)]

    assert [] == [name for name in worlds[0] if worlds[0][name] != worlds[1][name]]


async def test_every_endpoint_for_entities_works_for_their_owner(tmp_path: Path) -> None:
    """The comparison would also hold if nothing were shown."""
    async with world(tmp_path / "one") as (client, _):
        await client.post("kinds/account/entities", {"id": "1"})
        sent = await client.post("send/account/1", {"event": "deposited", "payload": {"amount": 5}, "key": "d-1"})
        await freeze(client, ends=False)
        again = await client.post("send/account/1", {"event": "deposited", "payload": {"amount": 5}, "key": "d-2"})
        shown, journal = await client.json("entity/account/1"), await client.json("journal/account/1")
        accepted = await client.json("accepted/account/1")
        lists = [(await client.get(f"kinds/account{path}")).status_code for path in ("", "/entities")]

    assert {each.path for each in ENDPOINTS if each.path.startswith(ENTITY_DOORS)} == {
        f"{each}{{entity:path}}" for each in ENTITY_DOORS
    }
    assert [(202, '{"outcome":"accepted","key":"d-1"}'), (202, '{"outcome":"accepted","key":"d-2"}')] == [
        (each.status_code, each.text) for each in (sent, again)
    ]
    assert (2, 2, ["active"], 5, "•••") == (
        shown["version"],
        shown["latest"],
        shown["configuration"],
        shown["context"]["balance"],
        shown["context"]["iban"],
    )
    assert ["create", "deposited"] == [each["event"] for each in journal["entries"]]
    assert {"deposited": True, "closed": True, "frozen": False} == {
        each["event"]: each["accepted"] for each in accepted if each["event"] in ("deposited", "closed", "frozen")
    }
    assert [200, 200] == lists


# Mutants: each breaks one rule, and the comparison must notice

real_row = Lens.row


def real_version(self: Lens, snapshot: Snapshot) -> int:
    """The version of the journal."""
    return snapshot.version


def no_cover(self: Lens, snapshot: Snapshot) -> Snapshot:
    """The truth under the visible version."""
    return snapshot


def all_entries(self: Lens, entry: Entry) -> bool:
    """Unseen entries are shown."""
    return True


def true_times(self: Lens, snapshot: Snapshot, stored: EntityRow, visible: VisibleSnapshot | None) -> VisibleRow | None:
    """The times of the store in a list."""
    found = real_row(self, snapshot, stored, visible)
    return None if found is None else replace(found, row=replace(found.row, changed_ms=stored.changed_ms))


async def true_receipt(self: CallerRequests, *args: Any, reader: Any, **options: Any) -> VisibleReceipt:
    """The outcome of the step, or its reason."""
    receipt: Receipt = await self.send(*args, **options)
    return VisibleReceipt(receipt.entity, receipt.reason or receipt.outcome, options["key"])


def open_lists(self: Console, user: Any, kind: str) -> bool:
    """True lists and counts are shown."""
    return True


real_others = ListedStates.others


def others_find_the_truth(self: ListedStates, kernel: Kernel, snapshot: Snapshot) -> tuple[str, ...]:
    """The rows for others have the true states."""
    return visible_names(*self.active(kernel, snapshot)) if real_others(self, kernel, snapshot) else ()


def others_lose_it(self: ListedStates, kernel: Kernel, snapshot: Snapshot) -> tuple[str, ...]:
    """A frozen account has no rows for others."""
    return () if snapshot.configuration == ("frozen",) else real_others(self, kernel, snapshot)


def true_counts(counts: tuple[StateCount, ...]) -> VisibleCounts:
    """Others get the true counts."""
    found = visible_counts(counts)
    every = (each for each in found.visible if not each.state)
    return VisibleCounts(found.states, (*every, *(each for each in found.states if each.state != "frozen")))


@pytest.mark.parametrize(
    ("owner", "name", "mutant", "ends"),
    [
        (Lens, "version_of", real_version, True),
        (Lens, "shown", no_cover, True),
        (Lens, "sees", all_entries, True),
        (Lens, "row", true_times, True),
        (CallerRequests, "send_for", true_receipt, False),
        (Console, "may_see", open_lists, False),
        (ListedStates, "others", others_find_the_truth, False),
        (ListedStates, "others", others_lose_it, False),
        (sql_store, "visible_counts", true_counts, False),
    ],
)
async def test_the_comparison_notices_a_broken_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, mutant: Callable[..., Any], ends: bool
) -> None:
    monkeypatch.setattr(owner, name, mutant)

    assert await difference(tmp_path, frozen_at=2, ends=ends)
