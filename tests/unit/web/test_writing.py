"""Writing endpoints, and their protection."""

from pathlib import Path
from typing import Any

import pytest

from interlock.model.limits import HTTP_LOGIN_BYTES_MAX
from interlock.testing.clock import VirtualClock
from interlock.web.auth import SESSION_IDLE_MS_MAX
from tests.unit.web.consoles import KEY, ORIGIN, Client, create_orders, make_user, open_console

PAY = {"event": "payment.confirmed", "payload": {"id": "p-9"}}


async def version(client: Client, entity: str = "order/A-1") -> int:
    """Return the stored version of an entity."""
    return (await client.runtime.state(entity)).version


async def test_sent_event_is_stored_with_its_sender_and_reason() -> None:
    async with open_console() as client:
        await create_orders(client)
        response = await client.post("send/order/A-1", {**PAY, "reason": "paid at the till"})
        (entry,) = (await client.json("journal/order/A-1?after=1"))["entries"]

    receipt = response.json()
    assert (200, "applied", 2, ["paid"]) == (
        response.status_code, receipt["outcome"], receipt["version"], receipt["configuration"],
    )  # fmt: skip
    assert ("ada", "paid at the till") == (entry["principal"], entry["reason_given"])


async def test_repeated_key_is_a_duplicate() -> None:
    async with open_console() as client:
        await create_orders(client)
        answers = [(await client.post("send/order/A-1", {**PAY, "key": "k-1"})).json() for _ in range(2)]
        now = await version(client)

    assert (["applied", "duplicate"], 2) == ([each["outcome"] for each in answers], now)


@pytest.mark.parametrize("dry_run", [False, True])
async def test_key_of_another_event_is_refused(dry_run: bool) -> None:
    async with open_console() as client:
        await client.post("kinds/order/entities", {"id": "B-1", "context": {"amount": 5}, "key": "k-1"})
        response = await client.post("send/order/B-1", {**PAY, "key": "k-1", "dry_run": dry_run})
        now = await version(client, "order/B-1")

    problem = response.json()
    assert (400, "key.reused", 1) == (response.status_code, problem["code"], now)


async def test_rejected_event_is_a_problem_with_the_guard_and_its_values() -> None:
    async with open_console() as client:
        await client.runtime.create("order/B-1", {"amount": 5_000})
        response = await client.post("send/order/B-1", {"event": "order.cancelled"})

    problem = response.json()
    assert (422, "rejected.guard") == (response.status_code, problem["code"])
    assert "application/problem+json" == response.headers["content-type"]
    assert [{"guard": "context.amount < 1000", "values": {"context.amount": 5_000}, "error": None}] == problem[
        "receipt"
    ]["guards"]


async def test_denied_event_discloses_nothing() -> None:
    async with open_console(who=make_user(roles=("support",))) as client:
        await create_orders(client)
        response = await client.post("send/order/A-1", PAY)

    assert (403, "denied.roles") == (response.status_code, response.json()["code"])
    assert ([], []) == (response.json()["receipt"]["configuration"], response.json()["receipt"]["guards"])


async def test_dry_run_of_a_send_changes_nothing() -> None:
    async with open_console() as client:
        await create_orders(client)
        response = await client.post("send/order/A-1", {**PAY, "dry_run": True})
        now = await version(client)

    assert ("applied", True, 1) == (response.json()["outcome"], response.json()["dry_run"], now)


async def test_unexpected_version_is_a_conflict() -> None:
    async with open_console() as client:
        await create_orders(client)
        response = await client.post("send/order/A-2", {"event": "parcel.shipped", "expected": 1})

    assert (409, "conflict.expected") == (response.status_code, response.json()["code"])


async def test_second_creation_of_an_entity_is_rejected() -> None:
    async with open_console() as client:
        first = await client.post("kinds/order/entities", {"id": "N-1", "context": {"amount": 5}})
        second = await client.post("kinds/order/entities", {"id": "N-1", "context": {"amount": 5}})
        wrong = await client.post("kinds/order/entities", {"id": "N-2", "context": {"amount": 0}})

    assert [(200, "applied"), (422, "rejected.entity.exists"), (422, "context.refused")] == [
        (first.status_code, first.json()["outcome"]),
        (second.status_code, second.json()["code"]),
        (wrong.status_code, wrong.json()["code"]),
    ]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "body.malformed"),
        ({"event": 5}, "body.malformed"),
        ([], "body.malformed"),
        ({"event": "done.state.x"}, "event.reserved"),
        ({"event": "error"}, "event.reserved"),
        ({"event": "payment.confirmed", "key": "_mine"}, "key.reserved"),
        ({"event": "x" * 300}, "event.malformed"),
    ],
)
async def test_malformed_event_is_refused(body: Any, code: str) -> None:
    async with open_console() as client:
        await create_orders(client)
        response = await client.post("send/order/A-1", body)
        now = await version(client)

    assert (400, code, 1) == (response.status_code, response.json()["code"], now)


@pytest.mark.parametrize(
    ("body", "code", "word"),
    [
        ({"event": "payment.confirmed", "payload": {}}, "event.payload", "`id`"),
        ({"event": "payment.confirmd"}, "event.unknown", "payment.confirmd"),
    ],
)
@pytest.mark.parametrize("dry_run", [False, True])
async def test_mistake_of_the_caller_is_an_invalid_request_with_its_place(
    body: Any, code: str, word: str, dry_run: bool
) -> None:
    async with open_console() as client:
        await create_orders(client)
        response = await client.post("send/order/A-1", {**body, "dry_run": dry_run})
        now = await version(client)

    assert (400, code, 1) == (response.status_code, response.json()["code"], now)
    assert word in response.json()["detail"]


async def test_refused_event_is_explained() -> None:
    async with open_console() as client:
        await client.runtime.create("order/B-1", {"amount": 5_000})
        response = await client.post("send/order/B-1", {"event": "order.cancelled"})

    assert "context.amount = 5000" in response.json()["detail"]


# Protection


async def refused(client: Client, headers: dict[str, str]) -> tuple[int, str]:
    """Return how a send with these headers is refused, and check that nothing was written."""
    response = await client.http.post("/api/v1/send/order/A-1", json=PAY, headers=headers)
    assert await version(client) == 1
    return response.status_code, response.json()["code"]


async def test_write_by_cookie_needs_origin_and_csrf_token() -> None:
    async with open_console() as client:
        await create_orders(client)
        answers = [
            await refused(client, {}),
            await refused(client, {"X-Interlock-CSRF": client.csrf}),
            await refused(client, {"Origin": "https://evil.test", "X-Interlock-CSRF": client.csrf}),
            await refused(client, {"Origin": "null", "X-Interlock-CSRF": client.csrf}),
            await refused(client, {"Origin": ORIGIN}),
            await refused(client, {"Origin": ORIGIN, "X-Interlock-CSRF": "other"}),
        ]

    assert [(403, "origin.foreign")] * 4 + [(403, "csrf.token")] * 2 == answers


async def test_form_of_another_site_cannot_write() -> None:
    async with open_console() as client:
        await create_orders(client)
        headers = {"Origin": ORIGIN, "X-Interlock-CSRF": client.csrf, "Content-Type": "text/plain"}
        response = await client.http.post("/api/v1/send/order/A-1", content=b'{"event": "x"}', headers=headers)

    assert (400, "body.type") == (response.status_code, response.json()["code"])


async def test_api_key_writes_without_a_cookie() -> None:
    async with open_console() as client:
        await create_orders(client)
        client.http.cookies.clear()
        headers = {"Authorization": f"Bearer {KEY}"}
        response = await client.http.post("/api/v1/send/order/A-1", json=PAY, headers=headers)
        entry = (await client.http.get("/api/v1/journal/order/A-1?after=1", headers=headers)).json()["entries"][0]

    assert (200, "robot") == (response.status_code, entry["principal"])


async def test_key_has_only_its_rights() -> None:
    async with open_console() as client:
        client.http.cookies.clear()
        headers = {"Authorization": f"Bearer {KEY}"}
        codes = [
            (await client.http.get("/api/v1/refusals", headers=headers)).json()["code"],
            (await client.http.post("/api/v1/bulk", json={"kind": "order", "event": "x"}, headers=headers)).json()[
                "code"
            ],
            (await client.http.get("/api/v1/kinds", headers={"Authorization": "Bearer other"})).json()["code"],
        ]

    assert ["right.missing", "right.missing", "login.missing"] == codes


async def test_every_endpoint_needs_authentication() -> None:
    async with open_console() as client:
        client.http.cookies.clear()
        paths = ["kinds", "kinds/order", "entity/order/A-1", "work", "refusals", "jobs", "me", "streams/fleet"]
        codes = {(await client.get(path)).status_code for path in paths}
        page = await client.http.get("/")

    assert {401} == codes
    assert 200 == page.status_code


async def test_read_only_console_writes_nothing() -> None:
    async with open_console(read_only=True) as client:
        await create_orders(client)
        writes = [
            (await client.post(path, body)).json()["code"]
            for path, body in (
                ("send/order/A-1", PAY),
                ("kinds/order/entities", {"id": "Z", "context": {"amount": 1}}),
                ("bulk", {"kind": "order", "event": "order.cancelled"}),
            )
        ]
        played = await client.post("kinds/order/simulate", {"context": {"amount": 1}})
        job = await client.job("verify", {})
        now = await version(client)

    assert ["console.read_only"] * 3 == writes
    assert (200, "done", 1) == (played.status_code, job["status"], now)


@pytest.mark.parametrize("number", [2**63, -1, 1.5])
async def test_out_of_range_work_id_is_a_problem(tmp_path: Path, number: float) -> None:
    async with open_console(f"sqlite:///{tmp_path}/orders.db") as client:
        place = {"entity": "order/A-1", "lane": "effect", "version": number, "ordinal": 0, "reason": "x"}
        response = await client.post("work/drop", place)

    assert (400, "body.malformed") == (response.status_code, response.json()["code"])


async def test_logout_ends_the_session() -> None:
    async with open_console() as client:
        cookie = dict(client.http.cookies)
        await client.post("logout")
        client.http.cookies.update(cookie)
        response = await client.get("kinds")

    assert 401 == response.status_code


async def test_cookie_without_its_token_is_not_a_session() -> None:
    async with open_console() as client:
        await create_orders(client)
        paths = ["kinds", "kinds/order", "entity/order/A-1", "work", "refusals", "jobs", "me", "streams/fleet"]
        token, client.csrf = client.csrf, ""
        without = [await client.get(path) for path in paths]
        client.csrf = "0" * len(token)
        wrong = [await client.get(path) for path in paths]
        client.csrf = token
        good = await client.get("me")

    assert {(401, "login.missing")} == {(each.status_code, each.json()["code"]) for each in [*without, *wrong]}
    assert (200, token) == (good.status_code, good.json()["csrf"])
    assert not [each for each in [*without, *wrong] if token in each.text]


async def test_cookie_without_its_token_neither_ends_nor_extends_a_session() -> None:
    clock = VirtualClock(1_000_000_000_000)
    async with open_console(clock=clock) as client:
        token, cookie = client.csrf, dict(client.http.cookies)
        client.csrf = ""
        await client.post("logout")
        client.http.cookies.update(cookie)
        clock.time_ms += SESSION_IDLE_MS_MAX - 1
        await client.get("kinds")
        client.csrf = token
        still = (await client.get("kinds")).status_code
        clock.time_ms += SESSION_IDLE_MS_MAX - 1
        client.csrf = ""
        await client.get("kinds")
        clock.time_ms += 1
        client.csrf = token
        over = (await client.get("kinds")).status_code

    assert (200, 401) == (still, over)


async def test_login_body_is_limited() -> None:
    async with open_console() as client:
        client.csrf = ""
        response = await client.post("login", {"secret": "x" * HTTP_LOGIN_BYTES_MAX})

    assert (413, "body.size") == (response.status_code, response.json()["code"])
