"""The OpenAPI document contains every endpoint, and real responses match it."""

import json
from typing import Any

import jsonschema_rs

from interlock.web.app import ENDPOINTS
from tests.unit.web.consoles import create_orders, open_console


def references(value: Any) -> list[str]:
    """Return every `$ref` in a document."""
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [one for each in value.values() for one in references(each)]
    return [one for each in value for one in references(each)] if isinstance(value, list) else []


async def test_openapi_document_contains_every_endpoint_once() -> None:
    async with open_console() as client:
        document = await client.json("openapi.json")

    operations = [one for path in document["paths"].values() for one in path.values()]
    assert "3.1.0" == document["openapi"]
    assert len(ENDPOINTS) == len(operations) == len({each["operationId"] for each in operations})
    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert set() == set(references(document)) - known


async def test_responses_match_the_openapi_document() -> None:
    wrong: list[str] = []
    async with open_console() as client:
        await create_orders(client)
        await client.job("verify", {})
        document = await client.json("openapi.json")

        def check(path: str, answer: Any, method: str = "get", status: str = "200") -> None:
            content = document["paths"][f"/api/v1/{path}"][method]["responses"][status]["content"]
            (schema,) = (each["schema"] for each in content.values())
            whole = {**schema, "components": document["components"]}
            wrong.extend(f"{path}: {error.message}" for error in jsonschema_rs.validator_for(whole).iter_errors(answer))

        for path, name in (
            ("kinds", "kinds"),
            ("kinds/{kind}", "kinds/order"),
            ("kinds/{kind}/entities", "kinds/order/entities"),
            ("entity/{entity}", "entity/order/A-2"),
            ("journal/{entity}", "journal/order/A-2"),
            ("accepted/{entity}", "accepted/order/A-2"),
            ("work", "work"),
            ("sagas", "sagas"),
            ("refusals", "refusals"),
            ("jobs", "jobs"),
            ("me", "me"),
        ):
            check(path, await client.json(name))
        receipt = await client.post("send/order/A-1", {"event": "payment.confirmed", "payload": {"id": "p"}})
        check("send/{entity}", receipt.json(), "post")
        rejected = await client.post("send/order/A-1", {"event": "payment.confirmed", "payload": {"id": "p"}})
        check("send/{entity}", rejected.json(), "post", "default")
        check("kinds/{kind}", (await client.get("kinds/none")).json(), "get", "default")
        played = await client.post("kinds/order/simulate", {"context": {"amount": 3}})
        check("kinds/{kind}/simulate", played.json(), "post")

    assert [] == wrong


async def test_openapi_document_is_deterministic() -> None:
    async with open_console() as client:
        first, second = (await client.get("openapi.json")).content, (await client.get("openapi.json")).content

    assert json.loads(first)
    assert first == second
