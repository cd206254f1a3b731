"""Jobs: verification, bulk send and their limits."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from interlock.errors import UnavailableError
from interlock.model.limits import JOBS_OPEN_PER_USER_MAX, JOBS_RUNNING_MAX, JOBS_RUNNING_PER_USER_MAX
from interlock.operate.jobs.job import BULK_ADVICE
from interlock.ports.clock import SystemClock
from interlock.testing.clock import VirtualClock
from interlock.trust.api_keys import key_digest
from interlock.web.app import application
from interlock.web.auth import Authentication
from tests.unit.web.consoles import ORIGIN, Client, create_orders, make_user, open_console

CANCEL = {"kind": "order", "event": "order.cancelled", "filter": {"state": "unpaid"}}


async def after_dry_run(client: Client, body: dict[str, Any]) -> dict[str, Any]:
    """Return the body of a run after its dry run."""
    job = await client.job("bulk", {**body, "dry_run": True})
    return {**body, "dry_run": False, "rehearsal": job["id"], "reason": "season is over", "per_second": 1_000}


async def test_verify_counts_every_entity() -> None:
    async with open_console() as client:
        await create_orders(client)
        job = await client.job("verify", {})

    assert ("done", 3, {"proven": 3}, []) == (job["status"], job["seen"], job["outcomes"], job["problems"])


async def test_verify_names_the_tampered_entry(tmp_path: Path) -> None:
    async with open_console(f"sqlite:///{tmp_path}/o.db") as client:
        await create_orders(client)
        for number in range(3):
            await client.runtime.send(
                "order/A-2", "order.cancelled", key=f"k{number}", principal={"id": "x", "roles": ["support"]}
            )
        await client.runtime.send("order/A-2", "parcel.shipped", principal={"id": "w", "roles": ["warehouse"]})
    tampered = sqlite3.connect(tmp_path / "o.db")
    tampered.execute(
        "UPDATE journal SET record = CAST(replace(record, 'p-1', 'p-2') AS BLOB) WHERE id = 'A-2' AND version = 2"
    )
    tampered.commit()
    tampered.close()
    async with open_console(f"sqlite:///{tmp_path}/o.db") as client:
        job = await client.job("verify", {})
        one = await client.job("verify", {"entity": "order/A-2"})
        page = await client.json("entity/order/A-2")
        journal = await client.json("journal/order/A-2")

    (problem,) = job["problems"]
    assert ("order/A-2", "journal.chain", 2, 1) == tuple(
        problem[each] for each in ("entity", "code", "version", "proven")
    )
    assert {"proven": 2, "damaged": 1} == job["outcomes"]
    assert one["problems"] == job["problems"]
    assert "damaged at version 2" in page["damage"]
    assert ([1], 2) == ([each["version"] for each in journal["entries"]], journal["damage"]["version"])


async def test_dry_run_counts_and_changes_nothing() -> None:
    async with open_console() as client:
        await create_orders(client, 4)
        await client.runtime.create("order/B-1", {"amount": 5_000})
        job = await client.job("bulk", CANCEL)
        page = await client.json("kinds/order/entities?state=unpaid")

    assert (4, {"applied": 3, "rejected": 1}, {"unpaid": 4}) == (job["seen"], job["outcomes"], job["states"])
    assert {"order/B-1"} == {each["entity"] for each in job["samples"] if each["outcome"] == "rejected"}
    assert 4 == len(page["rows"])


async def test_bulk_sends_once_to_each_matching_entity() -> None:
    async with open_console(clock=SystemClock()) as client:
        await create_orders(client, 4)
        job = await client.job("bulk", await after_dry_run(client, CANCEL))
        entry = (await client.json("journal/order/A-1?after=1"))["entries"][0]
        paid = await client.json("entity/order/A-2")

    assert {"applied": 3} == job["outcomes"]
    assert ("season is over", f"_bulk/{job['id']}/order/A-1") == (entry["reason_given"], entry["key"])
    assert ["paid"] == paid["configuration"]


WRONG: tuple[dict[str, Any], ...] = (
    {"reason": " "},
    {"rehearsal": None},
    {"rehearsal": "none"},
    {"event": "parcel.shipped"},
    {"filter": {}},
    {"payload": {"x": 1}},
    {"filter": {"after": "x"}},
    {"per_second": 0},
    {"kind": "none"},
)


async def test_bulk_without_reason_or_matching_dry_run_is_refused() -> None:
    async with open_console() as client:
        await create_orders(client)
        body = await after_dry_run(client, CANCEL)
        codes = [(await client.post("bulk", {**body, **wrong})).json()["code"] for wrong in WRONG]
        page = await client.json("kinds/order/entities?state=unpaid")

    assert [
        "bulk.reason",
        "bulk.rehearsal",
        "job.unknown",
        "bulk.rehearsal",
        "bulk.rehearsal",
        "bulk.rehearsal",
        "bulk.filter",
        "body.malformed",
        "kind.unknown",
    ] == codes
    assert 2 == len(page["rows"])


async def test_large_bulk_needs_the_number_of_entities(monkeypatch: Any) -> None:
    monkeypatch.setattr("interlock.web.api.jobs.CONFIRM_ABOVE", 1)
    async with open_console(clock=SystemClock()) as client:
        await create_orders(client)
        body = await after_dry_run(client, CANCEL)
        answers = [await client.post("bulk", {**body, "count": count}) for count in (None, 3, 2)]
        await client.ended(answers[2].json()["id"])

    assert ["bulk.count", "bulk.count"] == [each.json()["code"] for each in answers[:2]]
    assert 200 == answers[2].status_code


async def test_entity_that_changed_since_it_was_listed_is_skipped(monkeypatch: Any) -> None:
    async with open_console(clock=SystemClock()) as client:
        await create_orders(client)
        body = await after_dry_run(client, CANCEL)
        find = client.runtime.store.find

        async def find_then_move(query: Any) -> Any:
            page = await find(query)
            payer = {"id": "till", "roles": ["payments"]}
            await client.runtime.send("order/A-3", "payment.confirmed", {"id": "p"}, key="k", principal=payer)
            return page

        monkeypatch.setattr(client.runtime.store, "find", find_then_move)
        job = await client.job("bulk", body)
        moved = await client.json("entity/order/A-3")

    assert ({"applied": 1, "skipped": 1}, ["paid"]) == (job["outcomes"], moved["configuration"])


async def test_entity_that_matches_later_is_not_sent_to() -> None:
    clock = VirtualClock(1_000_000_000_000)
    async with open_console(clock=clock) as client:
        await create_orders(client)
        body = await after_dry_run(client, CANCEL)
        clock.time_ms += 1_000
        await client.runtime.create("order/Z-9", {"amount": 1})
        clock.time_ms -= 500
        job = (await client.post("bulk", body)).json()
        for _ in range(10):
            await clock.advance(10)
        ended = await client.ended(job["id"])
        late = await client.json("entity/order/Z-9")

    assert ({"applied": 2}, ["unpaid"]) == (ended["outcomes"], late["configuration"])


async def test_job_is_paused_resumed_and_cancelled() -> None:
    clock = VirtualClock(1_000_000_000_000)
    async with open_console(clock=clock) as client:
        await create_orders(client, 6)
        clock.time_ms += 1
        body = {**await after_dry_run(client, CANCEL), "per_second": 1}
        job = (await client.post("bulk", body)).json()["id"]
        await clock.advance(1_000)
        paused = (await client.post(f"jobs/{job}/pause")).json()
        await clock.advance(60_000)
        resting = await client.json(f"jobs/{job}")
        resumed = (await client.post(f"jobs/{job}/resume")).json()
        await clock.advance(1_000)
        going = await client.json(f"jobs/{job}")
        await client.post(f"jobs/{job}/cancel")
        ended = await client.ended(job)
        wrong = await client.post(f"jobs/{job}/explode")

    assert ("paused", "running", "cancelled") == (paused["status"], resumed["status"], ended["status"])
    assert resting["seen"] - paused["seen"] <= 1
    assert going["seen"] > resting["seen"]
    assert ended["seen"] < 5
    assert "job.act" == wrong.json()["code"]


async def test_bulk_waits_for_an_unavailable_store(monkeypatch: Any) -> None:
    clock = VirtualClock(1_000_000_000_000)
    keys: list[str] = []
    async with open_console(clock=clock) as client:
        await create_orders(client, 4)
        clock.time_ms += 1
        body = await after_dry_run(client, CANCEL)
        real, look = client.runtime.submit, client.runtime.store.find
        looks: list[Any] = []

        async def away(entity: str, event: str, *rest: Any, **more: Any) -> Any:
            keys.append(more["key"].key)
            if len(keys) <= 3:
                raise UnavailableError("the disk is full", code="store.away")
            return await real(entity, event, *rest, **more)

        async def blind(query: Any) -> Any:
            looks.append(query)
            if len(looks) == 1:
                raise UnavailableError("the disk is full", code="store.away")
            return await look(query)

        monkeypatch.setattr(client.runtime, "submit", away)
        monkeypatch.setattr(client.runtime.store, "find", blind)
        job = (await client.post("bulk", body)).json()["id"]
        await clock.advance(60_000)
        ended = await client.ended(job)

    assert ("done", {"applied": 3}) == (ended["status"], ended["outcomes"])
    assert (6, 3) == (len(keys), len(set(keys)))


async def test_bulk_is_interrupted_when_its_store_stays_unavailable(monkeypatch: Any) -> None:
    clock = VirtualClock(1_000_000_000_000)

    async def away(*rest: Any, **more: Any) -> Any:
        raise UnavailableError("the disk is full", code="store.away")

    async with open_console(clock=clock) as client:
        await create_orders(client, 4)
        clock.time_ms += 1
        body = await after_dry_run(client, CANCEL)
        with monkeypatch.context() as patch:
            patch.setattr(client.runtime, "send", away)
            patch.setattr(client.runtime, "submit", away)
            job = (await client.post("bulk", body)).json()["id"]
            await clock.advance(600_000)
        stopped = await client.json(f"jobs/{job}")
        await client.post(f"jobs/{job}/resume")
        await clock.advance(60_000)
        ended = await client.ended(job)

    assert ("interrupted", 0, None) == (stopped["status"], stopped["seen"], stopped["ended_ms"])
    assert stopped["advice"] == BULK_ADVICE
    assert ("done", {"applied": 3}) == (ended["status"], ended["outcomes"])


async def by_key(client: Client, name: str, path: str, body: Any = None) -> Any:
    """Return the response to a POST with the key of a user, which is their name."""
    client.http.headers["Authorization"] = f"Bearer {name}"
    return await client.post(path, body)


@asynccontextmanager
async def shared(*names: str) -> AsyncIterator[tuple[Client, dict[str, Any]]]:
    """Yield a console with keys for these users, and for each the body of a bulk that does not end."""
    clock = VirtualClock(1_000_000_000_000)
    async with open_console(clock=clock) as client:
        await create_orders(client, 20)
        clock.time_ms += 1
        doors = Authentication(clock, keys={key_digest(name): make_user(name) for name in names})
        client.app, console = application(client.runtime, doors, origins=[ORIGIN])
        transport = httpx.ASGITransport(app=client.app)
        async with httpx.AsyncClient(transport=transport, base_url=ORIGIN) as client.http:
            bodies = {}
            for name in names:
                client.http.headers["Authorization"] = f"Bearer {name}"
                bodies[name] = {**await after_dry_run(client, CANCEL), "per_second": 1}
            try:
                yield client, bodies
            finally:
                await console.close()


async def test_running_jobs_are_limited() -> None:
    async with shared("ada", "bob") as (client, bodies):
        ada = [await by_key(client, "ada", "bulk", bodies["ada"]) for _ in range(JOBS_RUNNING_PER_USER_MAX + 1)]
        left = JOBS_RUNNING_MAX - JOBS_RUNNING_PER_USER_MAX
        bob = [await by_key(client, "bob", "bulk", bodies["bob"]) for _ in range(left + 1)]

    assert [200] * JOBS_RUNNING_PER_USER_MAX + [429] == [each.status_code for each in ada]
    assert [200] * left + [503] == [each.status_code for each in bob]
    refused = (ada[-1], bob[-1])
    assert [("job.full", "1")] * 2 == [(each.json()["code"], each.headers["retry-after"]) for each in refused]


async def test_paused_jobs_take_no_running_slot() -> None:
    async with shared("ada", "bob") as (client, bodies):
        paused = list[str]()
        for _ in range(JOBS_OPEN_PER_USER_MAX):
            job = (await by_key(client, "ada", "bulk", bodies["ada"])).json()["id"]
            assert "paused" == (await by_key(client, "ada", f"jobs/{job}/pause")).json()["status"]
            paused.append(job)
        more = await by_key(client, "ada", "bulk", bodies["ada"])
        bob = await by_key(client, "bob", "bulk", bodies["bob"])
        resumed = [await by_key(client, "ada", f"jobs/{job}/resume") for job in paused]
        again = await client.json(f"jobs/{paused[-1]}")

    assert (429, "job.full", 200) == (more.status_code, more.json()["code"], bob.status_code)
    running = JOBS_RUNNING_PER_USER_MAX
    assert [200] * running + [429] * (len(paused) - running) == [each.status_code for each in resumed]
    assert "paused" == again["status"]


async def test_refusals_are_listed_newest_first_and_by_principal(tmp_path: Path) -> None:
    async with open_console(f"sqlite:///{tmp_path}/o.db") as client:
        await create_orders(client)
        for who in ("eve", "mallory", "eve"):
            await client.runtime.send("order/A-1", "parcel.shipped", principal={"id": who, "roles": []})
        found = await eventually(client, "refusals", 3)
        mine = await client.json("refusals?principal=eve")
        newest = await client.json("refusals?limit=1")
        older = await client.json(f"refusals?limit=1&before={newest['before']}")
        oldest = await client.json(f"refusals?limit=1&before={older['before']}")
        foreign = await client.get("refusals?principal=eve&before=" + newest["before"])
        proof = await client.json("refusals/proof")

    # Row 1 is the log-in.
    assert [4, 3, 2] == [each["sequence"] for each in found["rows"]]
    assert [("eve", "denied", "roles")] * 2 == [
        (each["principal"], each["outcome"], each["reason"]) for each in mine["rows"]
    ]
    assert [3] == [each["sequence"] for each in older["rows"]]
    assert ([2], None) == ([each["sequence"] for each in oldest["rows"]], oldest["before"])
    assert "cursor.foreign" == foreign.json()["code"]
    assert {"holds": True, "linked": 4, "broken": None} == proof


async def eventually(client: Client, path: str, rows: int) -> Any:
    """Return the list of refusals once it has this number of rows: they are written later."""
    for _ in range(1_000):
        found = await client.json(path)
        if len(found["rows"]) == rows:
            return found
        await client.runtime.clock.sleep_ms(0)
    raise AssertionError("they do not come")


async def test_jobs_of_other_users_need_read_sensitive() -> None:
    async with open_console(who=make_user(rights=("read", "bulk"))) as client:
        await create_orders(client)
        mine = await client.job("bulk", CANCEL)
        other = await client.console.jobs.start_verify("eve", None, may_see=lambda _: True)
        listed = await client.json("jobs")
        answers = [await client.get(f"jobs/{other.id}"), await client.post(f"jobs/{other.id}/cancel")]

    assert [mine["id"]] == [each["id"] for each in listed["jobs"]]
    assert ["job.unknown", "job.unknown"] == [each.json()["code"] for each in answers]


async def test_audit_needs_its_own_right() -> None:
    async with open_console(who=make_user(rights=("read", "send"))) as client:
        codes = [(await client.get("refusals")).status_code, (await client.post("verify", {})).status_code]

    assert [403, 403] == codes
