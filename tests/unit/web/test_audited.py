"""What the HTTP interface refuses is in the audit: with a row for a known user, and counted for a stranger."""

from __future__ import annotations

from interlock.errors import UnavailableError
from interlock.model.audit import FLOOD, LOGIN, LOGOUT, AuditRow
from interlock.model.limits import AUDIT_BURST
from interlock.trust.audit import Attempt
from tests.support.audit import audit_rows
from tests.unit.web.consoles import KEY, Client, create_orders, open_console

HEADERS = {"Authorization": f"Bearer {KEY}"}


def _short(row: AuditRow) -> tuple[str, str | None, str, str, str]:
    return row.entity, row.actor, row.event, row.outcome, row.reason


async def refusals(client: Client) -> list[AuditRow]:
    """The rows of the audit, without the log-in of the client."""
    return [each for each in await audit_rows(client.runtime.store) if each.event != LOGIN]


async def test_refusals_of_the_interface_are_recorded_once() -> None:
    """A missing right, on a read, too; a missing token; an invalid body; and what the runtime refuses."""
    async with open_console() as client:
        await create_orders(client)
        me = (await client.json("me"))["id"]
        await client.post("send/order/A-1", {"event": 7})
        await client.post("send/order/A-1", {"event": "parcel.shipped"})
        await client.get("entity/order/A-404")
        token, client.csrf = client.csrf, ""
        await client.post("send/order/A-1", {"event": "order.cancelled"})
        client.csrf = token
        client.http.cookies.clear()
        await client.http.get("/api/v1/refusals", headers=HEADERS)
        rows = await refusals(client)

    assert [
        ("order/A-1", me, "_http POST /send/{entity:path}", "rejected", "body.malformed"),
        ("order/A-1", me, "parcel.shipped", "rejected", "no_transition"),
        ("order/A-1", me, "_http POST /send/{entity:path}", "denied", "csrf.token"),
        ("", "robot", "_http GET /refusals", "denied", "right.missing"),
    ] == [_short(each) for each in rows]
    assert [("unpaid",), ("unpaid",), ("unpaid",), None] == [each.state_from for each in rows]


async def test_a_read_only_console_records_what_it_refuses() -> None:
    async with open_console(read_only=True) as client:
        await create_orders(client)
        await client.post("kinds/order/entities", {"id": "Z", "context": {"amount": 1}})
        (row,) = await refusals(client)

    assert ("order", "console.read_only", "denied") == (row.entity, row.reason, row.outcome)


async def test_strangers_are_counted_and_have_no_rows_of_their_own() -> None:
    async with open_console() as client:
        client.http.cookies.clear()
        for _ in range(5):
            await client.http.get("/api/v1/kinds", headers={"Authorization": "Bearer guess"})
        await client.runtime.audit.close()
        rows = await refusals(client)

    assert {("login.missing", True)} == {(each.reason, each.is_summary) for each in rows}
    assert 5 == sum(each.count for each in rows)


async def test_a_user_who_is_refused_without_end_gets_429() -> None:
    async with open_console() as client:
        await create_orders(client)
        answers = [await client.post("send/order/A-1", {"event": "nothing"}) for _ in range(AUDIT_BURST + 20)]
        await client.runtime.audit.close()
        rows = await refusals(client)
    stopped = [each for each in answers if each.status_code == 429]

    assert stopped
    assert {(FLOOD, "1")} == {(each.json()["code"], each.headers["retry-after"]) for each in stopped}
    assert AUDIT_BURST + 20 == sum(each.count for each in rows)


async def test_a_refusal_that_cannot_be_recorded_is_not_given() -> None:
    async with open_console() as client:
        await create_orders(client)

        async def full(rows: object) -> None:
            raise UnavailableError("no space left", code="store.full")

        client.runtime.store.append_audit = full  # type: ignore[attr-defined]  # a disk that is full
        answer = await client.post("send/order/A-1", {"event": 7})

    assert (503, "store.full") == (answer.status_code, answer.json()["code"])


async def test_sessions_are_recorded() -> None:
    """Who signed in and how, who signed out; a log-in with a wrong key is counted."""
    async with open_console() as client:
        me = (await client.json("me"))["id"]
        await client.post("logout", {})
        await client.post("logout", {})  # without a session, nothing ends
        await client.post("login", {"secret": KEY})
        client.http.cookies.clear()
        for _ in range(3):
            await client.post("login", {"secret": "ilk_guess"})
        await client.runtime.audit.close()
        rows = await audit_rows(client.runtime.store)

    assert [
        ("", me, LOGIN, "applied", "link"),
        ("", me, LOGOUT, "applied", "session"),
        ("", "robot", LOGIN, "applied", "key"),
    ] == [_short(each) for each in rows if not each.is_summary]
    assert ({"login.refused"}, 3) == (
        {each.reason for each in rows if each.is_summary},
        sum(each.count for each in rows if each.is_summary),
    )


async def test_a_session_without_its_row_does_not_start() -> None:
    """The disk is full: the answer is 503, and its cookie would open nothing."""
    async with open_console() as client:
        cookie = client.http.cookies

        async def full(rows: object) -> None:
            raise UnavailableError("no space left", code="store.full")

        client.runtime.store.append_audit = full  # type: ignore[attr-defined]  # a disk that is full
        before = dict(cookie)
        answer = await client.post("login", {"secret": KEY})

    assert (503, "store.full") == (answer.status_code, answer.json()["code"])
    assert before == dict(cookie)


async def test_many_log_ins_stop_nobody() -> None:
    async with open_console() as client:
        await create_orders(client)
        for _ in range(AUDIT_BURST + 5):
            principal = {"id": "robot", "kind": "user", "roles": []}
            await client.runtime.audit.record(Attempt("", LOGIN, principal), outcome="applied", reason="key")
        await client.runtime.audit.close()
        rows = await audit_rows(client.runtime.store)

    assert not client.runtime.audit.throttled
    assert AUDIT_BURST + 5 == sum(each.count for each in rows if each.actor == "robot")
