"""Lists by indexed context fields in the HTTP API; masked fields cannot be searched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from interlock.trust.users import RIGHTS
from tests.unit.web.consoles import ORDER, make_user, open_console, order

FIELDS = """context:
  amount: {type: integer, min: 1, required: true, index: true}
  card: {type: string, default: none, index: true}
  payment: {type: string, nullable: true}
"""
INDEXED = "\n".join(FIELDS.strip() if each.startswith("context:") else each for each in ORDER.splitlines())
SECRET = INDEXED.replace("  unpaid:\n", "  unpaid:\n    sensitive: [card]\n")
WITHOUT = tuple(each for each in RIGHTS if each != "read:sensitive")


async def _filled(client: Any) -> None:
    for number in range(1, 5):
        await client.runtime.create(f"order/{number}", {"amount": number, "card": f"c-{number % 2}"})


@pytest.mark.parametrize("url", ["memory:", "sqlite:///{folder}/x.db"])
@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("card=c-1", ["1", "3"]),
        ("amount>=3", ["3", "4"]),
        ("amount>=2; card=c-0", ["2", "4"]),
        ("amount>1;amount<3", ["2"]),
        ("card=other", []),
    ],
)
async def test_a_list_is_filtered_by_fields(url: str, where: str, found: list[str], tmp_path: Path) -> None:
    async with open_console(url.format(folder=tmp_path), charts=(order(INDEXED),)) as client:
        await _filled(client)
        response = await client.get("kinds/order/entities", params={"where": where})
        paged = await client.get("kinds/order/entities", params={"where": where, "limit": 1})

    rows = response.json()["rows"]
    assert found == sorted(each["entity"].partition("/")[2] for each in rows)
    assert min(1, len(found)) == len(paged.json()["rows"])
    assert {None} >= {each["context"] for each in rows}


@pytest.mark.parametrize(
    ("where", "code"),
    [
        ("payment=x", "index.unknown"),
        ("card", "where.malformed"),
        ("amount=many", "where.value"),
        ("card=c-1&error=any", "where.malformed"),
    ],
)
async def test_a_condition_that_cannot_be_answered_is_refused(where: str, code: str, tmp_path: Path) -> None:
    async with open_console(f"sqlite:///{tmp_path}/x.db", charts=(order(INDEXED),)) as client:
        await _filled(client)
        where, _, error = where.partition("&error=")
        response = await client.get(
            "kinds/order/entities", params={"where": where} | ({"error": error} if error else {})
        )

    assert (400, code) == (response.status_code, response.json()["code"])


async def test_a_masked_field_cannot_be_searched(tmp_path: Path) -> None:
    """The list would disclose the values that the context hides: the answer is that of a field without an index."""
    user = make_user(rights=WITHOUT)
    async with open_console(f"sqlite:///{tmp_path}/x.db", charts=(order(SECRET),), who=user) as client:
        await _filled(client)
        masked = await client.get("kinds/order/entities", params={"where": "card=c-1"})
        other = await client.get("kinds/order/entities", params={"where": "amount=1"})
        detail = await client.json("kinds/order")

    assert (400, "index.unknown") == (masked.status_code, masked.json()["code"])
    assert 1 == len(other.json()["rows"])
    assert ["amount"] == [each["field"] for each in detail["indexes"]]
