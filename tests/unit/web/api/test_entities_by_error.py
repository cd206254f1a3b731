"""Lists of entities with dead letters."""

from pathlib import Path

import pytest

import interlock
from interlock.assemble.charts import BoundChart
from interlock.ports.work import Settlement
from tests.unit.web.consoles import Client, open_console

KIND = """
interlock: 1
kind: {kind}
revision: 1.0.0
events: {{paid: {{}}}}
initial: unpaid
states:
  unpaid: {{expect: {{within: forever}}, on: {{paid: paid}}}}
  paid: {{entry: [send_receipt, tell_bank, count_it], expect: {{within: forever}}}}
"""


def chart(kind: str) -> BoundChart:
    """Return a chart whose entities request three effects when they are paid."""
    return interlock.loads(KIND.format(kind=kind))


async def died(client: Client, *entities: str) -> None:
    """Create entities whose work becomes dead letters."""
    for entity in entities:
        await client.runtime.create(entity)
        await client.runtime.send(entity, "paid")
    store = client.runtime.store
    assert store.work is not None
    now_ms = client.runtime.clock.now_ms()
    claims = await store.work.claim("effect", None, owner="me", now_ms=now_ms, until_ms=now_ms + 1_000, limit=1_000)
    await store.work.settle(tuple(Settlement(each, "dead", error="no") for each in claims), now_ms=now_ms)


async def listed(client: Client, query: str) -> list[list[str]]:
    """Return the pages of a list."""
    pages: list[list[str]] = []
    after = ""
    while not pages or after:
        page = await client.json(f"kinds/order/entities?{query}&after={after}")
        pages, after = [*pages, [each["entity"] for each in page["rows"]]], page["after"]
    return pages


@pytest.mark.parametrize(
    ("url", "limit"),
    [
        *(("sqlite:///{}/o.db", limit) for limit in (1, 2, 7, 200)),
        ("memory:", 1),
        ("memory:", 7),
        ("file:{}/orders", 7),
    ],
)
async def test_entity_with_dead_letters_is_listed_once(tmp_path: Path, url: str, limit: int) -> None:
    names = [f"order/{number}" for number in (1, *range(10, 20), 2, 20)]
    async with open_console(url.format(tmp_path), charts=(chart("order"),)) as client:
        await died(client, *names)
        await client.runtime.create("order/100")
        any_error = await listed(client, f"error=any&limit={limit}")
        named = await listed(client, f"error=tell_bank&limit={limit}")
        elsewhere = await listed(client, f"error=any&state=unpaid&limit={limit}")
        unknown = await listed(client, f"error=nobody&limit={limit}")

    assert sorted(names) == [each for page in any_error for each in page]
    assert sorted(names) == [each for page in named for each in page]
    assert [] == [each for page in elsewhere + unknown for each in page]


@pytest.mark.parametrize("url", ["sqlite:///{}/o.db", "memory:"])
async def test_dead_letters_of_other_kinds_are_not_scanned(tmp_path: Path, url: str) -> None:
    crowd = [f"{kind}/{number}" for kind in ("aaa", "zzz") for number in range(20)]
    async with open_console(url.format(tmp_path), charts=(chart("aaa"), chart("order"), chart("zzz"))) as client:
        await died(client, *crowd, "order/1")
        pages = await listed(client, "error=any&limit=2")

    assert ["order/1"] == [each for page in pages for each in page]
    assert 1 == len(pages)
