"""What others read of several accounts, through the library: the same with and without random stays."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import interlock
from interlock.ports.reading.visible_names import visible_names
from interlock.ports.store import EntityQuery
from interlock.runtime.listed_states import ListedStates
from interlock.runtime.runtime import Runtime
from interlock.testing.clock import VirtualClock
from tests.support.accounts import ACCOUNT, ADA, account
from tests.support.stays import ACCOUNTS, Action, actions, live

CHART = account(ACCOUNT.replace('note: "= event.data.text"', 'iban: "= event.data.text"'))
QUERIES = (
    EntityQuery(kind="account"),
    EntityQuery(kind="account", limit=1),
    EntityQuery(kind="account", state="active", context=True),
    EntityQuery(kind="account", state="closed"),
    EntityQuery(kind="account", tag="usable"),
    EntityQuery(kind="account", entered_before_ms=1_008_000),
    EntityQuery(kind="account", by_id=True, state="active"),
    EntityQuery(kind="account", where={"balance": 1}),
)


async def seen(runtime: Runtime) -> list[Any]:
    """Return what the owner can read of all accounts."""
    found: list[Any] = [await runtime.list(each, reader=ADA) for each in QUERIES]
    found.append(await runtime.counts("account", reader=ADA))
    for name in ACCOUNTS:
        found.append(await runtime.state(f"account/{name}", reader=ADA))
        found.append(await runtime.journal(f"account/{name}", reader=ADA))
        found.append(await runtime.can(f"account/{name}", reader=ADA))
    return found


async def worlds(script: list[Action], others: list[Action]) -> tuple[list[Any], list[Any], dict[str, int]]:
    """Return what the owner reads without and with the stays, and the true counts with them."""
    found, counts = [], {}
    for is_frozen in (False, True):
        clock = VirtualClock(1_000_000)
        async with interlock.open("memory:", charts=[CHART], clock=clock, work=False) as runtime:
            for name in ACCOUNTS:
                clock.time_ms += 1_000
                await runtime.create(f"account/{name}", principal=ADA)
            await live(runtime, clock, script, is_frozen=is_frozen)
            first = await seen(runtime)
            await live(runtime, clock, others, is_frozen=is_frozen)
            found.append([first, await seen(runtime)])
            counts = await runtime.counts("account")
    return found[0], found[1], counts


@settings(max_examples=60)
@given(actions(), st.data())
def test_random_stays_leave_no_trace_for_others(script: list[Action], data: st.DataObject) -> None:
    middle = data.draw(st.integers(0, len(script)))
    without, with_stays, counts = asyncio.run(worlds(script[:middle], script[middle:]))

    assert without == with_stays
    frozen = {each.account for each in script if each.what == "frozen"}
    for name in ACCOUNTS:
        own = [each.what for each in script if each.account == name and each.what in ("frozen", "unfrozen")]
        frozen -= {name} if own[-1:] != ["frozen"] else set()
    assert len(frozen) == counts["frozen"]


def test_the_comparison_notices_rows_of_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    real = ListedStates.others

    def truth(self: ListedStates, kernel: Any, snapshot: Any) -> tuple[str, ...]:
        return visible_names(*self.active(kernel, snapshot)) if real(self, kernel, snapshot) else ()

    monkeypatch.setattr(ListedStates, "others", truth)
    without, with_stays, _ = asyncio.run(worlds([Action("2", "frozen")], [Action("2", "unfrozen")]))

    assert without != with_stays
