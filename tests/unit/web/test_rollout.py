"""The page of a kind shows its rollout."""

from __future__ import annotations

from interlock.operate.rollout import abort_rollout, start_rollout
from tests.unit.web.consoles import ORDER, open_console, order

OLD, NEW = ORDER.replace("2.0.0", "1.0.0").replace("48h", "24h"), ORDER


async def test_a_kind_shows_its_rollout() -> None:
    async with open_console("memory:", charts=(order(OLD), order(NEW))) as client:
        await client.runtime.create("order/1", {"amount": 1})
        before = (await client.get("kinds/order")).json()["rollout"]
        row = await start_rollout(client.runtime, "order", to="2.0.0", share=1_250, by="ada", why="canary")
        active = (await client.get("kinds/order")).json()["rollout"]
        await abort_rollout(client.runtime, "order", by="ada", why="refunds fail")
        aborted = (await client.get("kinds/order")).json()["rollout"]

    assert before is None
    assert ("active", 12.5, row.revision, row.base, "canary") == tuple(
        active[each] for each in ("state", "percent", "revision", "base", "why")
    )
    assert ("aborted", 0, "refunds fail") == (aborted["state"], aborted["percent"], aborted["why"])
