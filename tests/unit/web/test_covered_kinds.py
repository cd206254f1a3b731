"""The page of a kind with hidden states, for users who may not see those: counts, ages and drawing of what they see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from interlock.testing.clock import VirtualClock
from interlock.trust.users import RIGHTS
from tests.support.accounts import ACCOUNT, EVE, account
from tests.unit.web.consoles import Client, make_user, open_console

WITHIN = ACCOUNT.replace("    tags: [usable]", "    expect: {within: 1m}\n    tags: [usable]")
OTHERS = tuple(each for each in RIGHTS if each != "read:sensitive")


async def freeze(client: Client, clock: VirtualClock) -> None:
    """Create three accounts; freeze the first one and close the second one after two minutes."""
    for number in (1, 2, 3):
        await client.post("kinds/account/entities", {"id": str(number)})
    clock.time_ms += 120_000
    (await client.runtime.send("account/1", "frozen", principal=EVE)).expect()
    (await client.runtime.send("account/2", "closed", principal={"id": "ada", "roles": ["customer"]})).expect()


def shown(view: dict[str, Any]) -> tuple[Any, ...]:
    """Return what a page shows of a kind: its number of entities, those of each state, and how many are stuck."""
    return view["entities"], {each["id"]: (each["entities"], each["stuck"]) for each in view["states"]}, view["stuck"]


@pytest.mark.parametrize("store", ["memory:", "sqlite:///{0}/a.db"])
async def test_a_kind_is_counted_and_drawn_as_its_viewer_sees_it(tmp_path: Path, store: str) -> None:
    clock = VirtualClock(1_000_000_000_000)
    ada = make_user("ada", roles=("customer",), rights=OTHERS)
    url = store.format(tmp_path)
    async with open_console(url, charts=(account(WITHIN),), who=ada, clock=clock) as client:
        await freeze(client, clock)
        kind, overview = await client.json("kinds/account"), await client.json("kinds")
        drawing = await client.get("kinds/account/chart.svg")
        again = await client.get("kinds/account/chart.svg", headers={"If-None-Match": drawing.headers["etag"]})
        refused = [
            (await client.get(path)).status_code for path in ("work?entity=account/1", "kinds/account/diff?from=a&to=b")
        ]
        stuck = await client.runtime.counts("account")

    assert (3, {"active": (2, 2), "closed": (1, None)}, 2) == shown(kind["kind"])
    assert [(3, {"active": (2, 2), "closed": (1, None)}, 2)] == [shown(each) for each in overview["kinds"]]
    assert ([], None) == (kind["kind"]["minutes"], kind["kind"]["steps_per_second"])
    assert [{"active": 2, "closed": 1}] == [each["states"] for each in kind["kind"]["revisions"]]
    assert ("active" in drawing.text, "closed" in drawing.text, "frozen" in drawing.text) == (True, True, False)
    assert 304 == again.status_code
    assert (1, 1) == (stuck["active"], stuck["frozen"])
    assert 404 == refused[1]


async def test_who_sees_everything_gets_all_states(tmp_path: Path) -> None:
    clock = VirtualClock(1_000_000_000_000)
    for who in (make_user("eve", roles=("fraud", "customer"), rights=OTHERS), make_user("ada", roles=("customer",))):
        async with open_console("memory:", charts=(account(WITHIN),), who=who, clock=clock) as client:
            await freeze(client, clock)
            kind, drawing = await client.json("kinds/account"), await client.get("kinds/account/chart.svg")

        assert (3, {"active": (1, 1), "frozen": (1, None), "closed": (1, None)}, 1) == shown(kind["kind"]), who.name
        assert "frozen" in drawing.text
        assert kind["kind"]["minutes"]


@pytest.mark.parametrize("store", ["file://{0}/a"])
async def test_a_store_without_counters_shows_no_page_of_the_kind(tmp_path: Path, store: str) -> None:
    ada = make_user("ada", roles=("customer",), rights=OTHERS)
    async with open_console(store.format(tmp_path), charts=(account(),), who=ada) as client:
        await client.post("kinds/account/entities", {"id": "1"})
        answers = [await client.get(f"kinds/account{path}") for path in ("", "/chart.svg", "/entities")]
        overview = await client.json("kinds")

    assert [404, 404, 200] == [each.status_code for each in answers]
    assert [] == overview["kinds"]
