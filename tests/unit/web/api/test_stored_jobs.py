"""Durable jobs: their stored state, who may resume them, and that no event is sent twice."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.errors import ConflictError, UsageError
from interlock.model.keys import OwnKey, bulk_key
from interlock.operate.jobs import walk
from interlock.operate.jobs.job import ALREADY_APPLIED, VERIFY_ADVICE
from interlock.operate.jobs.store import OWNER_TIMEOUT_MS
from interlock.operate.jobs.walk import SAVE_INTERVAL_MS
from interlock.ports.clock import SystemClock
from interlock.ports.store import EntityQuery
from interlock.runtime.charts.registry import JOB_FILE, JOB_KIND
from tests.support.eventually import PATIENCE_SECONDS, eventually
from tests.unit.web.api.test_jobs import CANCEL, after_dry_run
from tests.unit.web.consoles import ORDER, Client, create_orders, make_user, open_console, order


class ShiftedClock(SystemClock):
    """The real clock with an offset in milliseconds."""

    def __init__(self, ahead_ms: int = 0) -> None:
        self.ahead_ms = ahead_ms

    def now_ms(self) -> int:
        """Return the shifted time."""
        return super().now_ms() + self.ahead_ms


class Gate:
    """Let a bulk send a number of events; the next one waits until the gate is opened."""

    def __init__(self, client: Client, monkeypatch: Any, *, passes: int = 2) -> None:
        self.opened, self.reached = asyncio.Event(), asyncio.Event()
        self._left, self._real = passes, client.runtime.submit
        monkeypatch.setattr(client.runtime, "submit", self._submit)

    async def _submit(self, entity: str, event: str, *given: Any, **named: Any) -> Any:
        if not self._left:
            self.reached.set()
            await self.opened.wait()
        self._left = max(0, self._left - 1)
        return await self._real(entity, event, *given, **named)


async def start_bulk(client: Client, monkeypatch: Any, *, orders: int = 6) -> tuple[str, Gate]:
    """Return the id of a bulk that has sent two events, and the gate before its third."""
    await create_orders(client, orders)
    body = await after_dry_run(client, CANCEL)
    gate = Gate(client, monkeypatch)
    job: str = (await client.post("bulk", body)).json()["id"]
    async with asyncio.timeout(PATIENCE_SECONDS):
        await gate.reached.wait()
    return job, gate


async def cancelled(client: Client) -> dict[str, int]:
    """Return how often each order applied the event."""
    page = await client.runtime.store.find(EntityQuery(kind="order", limit=100))
    found = {}
    for row in page.rows:
        entries = await client.runtime.journal(row.entity)
        found[row.entity] = sum(each.event.name == "order.cancelled" for each in entries)
    return found


ONCE = {"order/A-1": 1, "order/A-2": 0, "order/A-3": 1, "order/A-4": 1, "order/A-5": 1, "order/A-6": 1}


async def test_uncounted_event_is_not_sent_twice_after_resume(tmp_path: Path, monkeypatch: Any) -> None:
    url = f"sqlite:///{tmp_path}/o.db"
    async with open_console(url, clock=ShiftedClock()) as client:
        job, _ = await start_bulk(client, monkeypatch)
        monkeypatch.setattr(client.console.jobs._store, "save_progress", vanished)
    async with open_console(url, clock=ShiftedClock(OWNER_TIMEOUT_MS)) as client:
        found = await client.json(f"jobs/{job}")
        await client.post(f"jobs/{job}/resume")
        ended = await client.ended(job)
        taken = await cancelled(client)

    assert ("interrupted", 2, {"applied": 2}) == (found["status"], found["seen"], found["outcomes"])
    assert (5, {"applied": 5}) == (ended["seen"], ended["outcomes"])
    assert [ALREADY_APPLIED] * 2 + [None] * 3 == [each["reason"] for each in ended["samples"]]
    assert ONCE == taken


async def test_event_sent_by_an_earlier_release_is_not_sent_twice(tmp_path: Path, monkeypatch: Any) -> None:
    url = f"sqlite:///{tmp_path}/o.db"
    with monkeypatch.context() as patch:
        patch.setattr(walk, "bulk_key", former_key)
        async with open_console(url, clock=ShiftedClock()) as client:
            job, _ = await start_bulk(client, patch)
            patch.setattr(client.console.jobs._store, "save_progress", vanished)
    async with open_console(url, clock=ShiftedClock(OWNER_TIMEOUT_MS)) as client:
        found = await client.json(f"jobs/{job}")
        await client.post(f"jobs/{job}/resume")
        ended = await client.ended(job)
        taken = await cancelled(client)

    assert (2, {"applied": 2}) == (found["seen"], found["outcomes"])
    assert (5, {"applied": 5}) == (ended["seen"], ended["outcomes"])
    assert ONCE == taken


async def test_foreign_use_of_a_former_key_does_not_suppress_the_event(tmp_path: Path, monkeypatch: Any) -> None:
    url = f"sqlite:///{tmp_path}/o.db"
    async with open_console(url, clock=ShiftedClock()) as client:
        job, gate = await start_bulk(client, monkeypatch)
        squat, eve = f"bulk/{job}/order/A-6", {"id": "eve", "roles": ["payments"]}
        await client.runtime.send("order/A-6", "payment.confirmed", {"id": "p"}, key=squat, principal=eve)
        gate.opened.set()
        ended = await client.ended(job)

    assert {"applied": 4, "skipped": 1} == ended["outcomes"]


async def test_job_saved_with_a_wrong_clock_can_be_resumed(tmp_path: Path, monkeypatch: Any) -> None:
    url = f"sqlite:///{tmp_path}/o.db"
    async with open_console(url, clock=ShiftedClock(86_400_000)) as client:
        job, _ = await start_bulk(client, monkeypatch)
        monkeypatch.setattr(client.console.jobs._store, "save_progress", vanished)
    async with open_console(url, clock=ShiftedClock()) as client:
        found = await client.json(f"jobs/{job}")
        await client.post(f"jobs/{job}/resume")
        ended = await client.ended(job)
        taken = await cancelled(client)

    assert ("interrupted", "done") == (found["status"], ended["status"])
    assert ONCE == taken


def former_key(job: str, entity: str) -> OwnKey:
    """Return the key of an earlier release."""
    key = bulk_key(job, entity)
    return OwnKey(key.name, key.name)


async def vanished(*given: Any, **named: Any) -> None:
    """Save nothing, like a killed process."""


async def test_job_of_a_live_server_cannot_be_resumed_elsewhere(tmp_path: Path, monkeypatch: Any) -> None:
    url = f"sqlite:///{tmp_path}/o.db"
    async with (
        open_console(url, clock=ShiftedClock()) as client,
        open_console(url, clock=ShiftedClock(-60_000)) as other,
    ):
        job, _ = await start_bulk(client, monkeypatch)
        seen = await other.json(f"jobs/{job}")
        refused = await other.post(f"jobs/{job}/resume")

    assert ("running", 409, "job.elsewhere") == (seen["status"], refused.status_code, refused.json()["code"])


async def test_former_owner_of_a_job_stops(tmp_path: Path, monkeypatch: Any) -> None:
    url = f"sqlite:///{tmp_path}/o.db"
    clock = ShiftedClock()
    async with (
        open_console(url, clock=clock) as client,
        open_console(url, clock=ShiftedClock(OWNER_TIMEOUT_MS)) as other,
    ):
        job, gate = await start_bulk(client, monkeypatch)
        resumed = (await other.post(f"jobs/{job}/resume")).json()
        ended = await other.ended(job)
        clock.ahead_ms = SAVE_INTERVAL_MS
        gate.opened.set()
        reported = await client.ended(job)
        taken = await cancelled(other)

    assert "running" == resumed["status"]
    assert ("done", {"applied": 5}) == (ended["status"], ended["outcomes"])
    assert (ended, ONCE) == (reported, taken)


async def test_only_one_of_two_servers_takes_over_a_job(tmp_path: Path, monkeypatch: Any) -> None:
    url = f"sqlite:///{tmp_path}/o.db"
    who: Any = {"who": "ada", "principal": make_user().principal, "may_see": lambda _: True}
    async with open_console(url, clock=ShiftedClock()) as client:
        job, _ = await start_bulk(client, monkeypatch)
    async with open_console(url, clock=ShiftedClock()) as one, open_console(url, clock=ShiftedClock()) as other:
        looked = await other.console.jobs._store.get(job)

        async def before(name: str) -> Any:
            return looked

        await one.post(f"jobs/{job}/resume")
        with monkeypatch.context() as patch:
            patch.setattr(other.console.jobs._store, "get", before)
            with pytest.raises(ConflictError):
                await other.console.jobs.resume(job, **who)
        ended = await one.ended(job)
        taken = await cancelled(one)

    assert ({}, "done", ONCE) == (other.console.jobs._runs, ended["status"], taken)


@pytest.mark.parametrize(("act", "status"), [("pause", "paused"), ("cancel", "cancelled")])
async def test_job_is_paused_and_cancelled_from_another_server(
    tmp_path: Path, monkeypatch: Any, act: str, status: str
) -> None:
    url = f"sqlite:///{tmp_path}/o.db"
    clock = ShiftedClock()
    async with open_console(url, clock=clock) as client, open_console(url, clock=ShiftedClock()) as other:
        job, gate = await start_bulk(client, monkeypatch)
        steered = (await other.post(f"jobs/{job}/{act}")).json()
        clock.ahead_ms = SAVE_INTERVAL_MS
        gate.opened.set()
        there = await until(client, job, status)
        taken = await cancelled(other)

    assert (status, status) == (steered["status"], there["status"])
    assert 3 == sum(taken.values())


async def until(client: Client, job: str, status: str) -> Any:
    """Return a job once it has this status."""

    async def found() -> Any:
        row = await client.json(f"jobs/{job}")
        return row if row["status"] == status else None

    return await eventually(found, f"a job that is {status}")


async def test_paused_job_stays_paused_after_a_restart(tmp_path: Path, monkeypatch: Any) -> None:
    url = f"sqlite:///{tmp_path}/o.db"
    async with open_console(url, clock=ShiftedClock()) as client:
        job, gate = await start_bulk(client, monkeypatch)
        await client.post(f"jobs/{job}/pause")
        gate.opened.set()
    async with open_console(url, clock=ShiftedClock(2 * OWNER_TIMEOUT_MS)) as client:
        resting = await client.json(f"jobs/{job}")
        await client.post(f"jobs/{job}/resume")
        ended = await client.ended(job)
        over = await client.post(f"jobs/{job}/resume")
        taken = await cancelled(client)

    assert ("paused", "done", "job.over") == (resting["status"], ended["status"], over.json()["code"])
    assert ONCE == taken


async def test_paused_job_saves_nothing_until_it_is_resumed(monkeypatch: Any) -> None:
    clock = ShiftedClock()
    async with open_console(clock=clock) as client:
        job, gate = await start_bulk(client, monkeypatch)
        paused = (await client.post(f"jobs/{job}/pause")).json()
        clock.ahead_ms = SAVE_INTERVAL_MS
        gate.opened.set()
        for _ in range(50):
            await asyncio.sleep(0)
        resting = await client.json(f"jobs/{job}")
        resumed = (await client.post(f"jobs/{job}/resume")).json()
        ended = await client.ended(job)
        taken = await cancelled(client)

    assert ["paused", "paused", "running", "done"] == [each["status"] for each in (paused, resting, resumed, ended)]
    assert ({"applied": 5}, ONCE) == (ended["outcomes"], taken)


async def test_old_job_is_listed_while_open_and_where_it_ended(tmp_path: Path, monkeypatch: Any) -> None:
    url = f"sqlite:///{tmp_path}/o.db"
    async with open_console(url, clock=ShiftedClock()) as client:
        job, _ = await start_bulk(client, monkeypatch)
    async with open_console(url, clock=ShiftedClock(100 * 86_400_000)) as client:
        before = (await client.json("jobs"))["jobs"]
        await client.post(f"jobs/{job}/resume")
        jobs = client.console.jobs
        await eventually(lambda: not jobs._runs)
        after = (await client.json("jobs"))["jobs"]
    async with open_console(url, clock=ShiftedClock(100 * 86_400_000)) as client:
        elsewhere = (await client.json("jobs"))["jobs"]
        still = await client.json(f"jobs/{job}")

    assert [[(job, "interrupted")], [(job, "done")], []] == [
        [(each["id"], each["status"]) for each in some] for some in (before, after, elsewhere)
    ]
    assert "done" == still["status"]


async def test_paused_job_is_cancelled(monkeypatch: Any) -> None:
    async with open_console(clock=ShiftedClock()) as client:
        job, _ = await start_bulk(client, monkeypatch)
        await client.post(f"jobs/{job}/pause")
        ended = (await client.post(f"jobs/{job}/cancel")).json()
        over = await client.post(f"jobs/{job}/resume")

    assert ("cancelled", 409) == (ended["status"], over.status_code)
    assert ended["ended_ms"] is not None


async def test_resumed_bulk_runs_with_the_rights_of_the_resuming_user(tmp_path: Path, monkeypatch: Any) -> None:
    url = f"sqlite:///{tmp_path}/o.db"
    async with open_console(url, clock=ShiftedClock()) as client:
        job, _ = await start_bulk(client, monkeypatch)
    async with open_console(url, clock=ShiftedClock(), who=make_user("bob", roles=())) as client:
        await client.post(f"jobs/{job}/resume")
        ended = await client.ended(job)
        entries = await client.runtime.journal(f"{JOB_KIND}/{job}")

    assert ("ada", {"applied": 2, "denied": 3}) == (ended["who"], ended["outcomes"])
    assert ["bob"] == [(each.event.principal or {})["id"] for each in entries if each.event.name == "job.resumed"]


async def test_interrupted_verification_restarts(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/o.db"
    async with open_console(url, clock=ShiftedClock()) as client:
        await create_orders(client)
        job = await client.console.jobs.start_verify("ada", None, may_see=lambda _: True)
    async with open_console(url, clock=ShiftedClock()) as client:
        found = await client.json(f"jobs/{job.id}")
        await client.post(f"jobs/{job.id}/resume")
        ended = await client.ended(job.id)

    assert "interrupted" == found["status"]
    assert found["advice"] == VERIFY_ADVICE
    assert ("done", 3, {"proven": 3}) == (ended["status"], ended["seen"], ended["outcomes"])


async def test_verification_of_everything_is_stored_with_its_result(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/o.db"
    async with open_console(url) as client:
        await create_orders(client)
        await client.job("verify", {"entity": "order/A-1"})
        job = await client.job("verify", {})
    async with open_console(url) as client:
        listed = (await client.json("jobs"))["jobs"]
        again = await client.job("verify", {})

    assert [job] == listed
    assert {"proven": 4} == again["outcomes"]  # the first job is an entity, too


async def test_read_only_console_stores_no_jobs(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/o.db"
    async with open_console(url) as client:
        await create_orders(client)
    async with open_console(url, read_only=True) as client:
        job = await client.job("verify", {})
        kinds = await client.runtime.store.kinds()

    assert (False, {"proven": 3}, ("order",)) == (job["stored"], job["outcomes"], kinds)


async def test_job_entities_are_not_listed_and_not_writable() -> None:
    async with open_console() as client:
        await create_orders(client)
        job = await client.job("verify", {})
        fleet = await client.json("kinds")
        page = await client.json(f"entity/{JOB_KIND}/{job['id']}")
        answers = [
            await client.post(f"kinds/{JOB_KIND}/entities", {"id": "x", "context": {}}),
            await client.post(f"send/{JOB_KIND}/{job['id']}", {"event": "job.cancelled"}),
            await client.post("bulk", {"kind": JOB_KIND, "event": "job.cancelled"}),
        ]
    async with open_console(who=make_user(rights=("read", "send"))) as client:
        closed = await client.get(f"entity/{JOB_KIND}/x")

    assert ["order"] == [each["kind"] for each in fleet["kinds"]]
    assert ["done"] == page["configuration"]
    assert [(403, "kind.own")] * 3 == [(each.status_code, each.json()["code"]) for each in answers]
    assert (404, "kind.unknown") == (closed.status_code, closed.json()["code"])


async def test_event_of_a_job_needs_the_console_role() -> None:
    async with open_console() as client:
        job = await client.job("verify", {})
        receipt = await client.runtime.send(f"{JOB_KIND}/{job['id']}", "job.resumed", {"owner": "me"})

    assert ("denied", "roles") == (receipt.outcome, receipt.reason)


async def test_chart_with_the_name_of_a_builtin_kind_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        async with open_console(charts=(order(ORDER.replace("kind: order", f"kind: {JOB_KIND}")),)):
            pass

    assert "kind.reserved" == caught.value.code


def test_chart_of_jobs_has_no_findings() -> None:
    # A job is hidden on purpose, from its start: nobody else sees jobs.
    assert ["sensitive.cover"] == [each.code for each in interlock.load(JOB_FILE).diagnostics]


async def test_page_that_is_too_long_to_save_is_shortened(monkeypatch: Any) -> None:
    monkeypatch.setattr(walk, "PAGE_BYTES_MAX", 90)
    async with open_console(clock=ShiftedClock()) as client:
        job, gate = await start_bulk(client, monkeypatch)
        gate.opened.set()
        ended = await client.ended(job)
        entries = (await client.runtime.journal(f"{JOB_KIND}/{job}"))[1:-1]
        taken = await cancelled(client)

    assert ("done", {"applied": 5}) == (ended["status"], ended["outcomes"])
    assert [1] * 5 == [len(each.event.data["page"]["items"]) for each in entries]
    assert ONCE == taken


async def test_job_is_reported_as_ended_after_its_end_is_stored(monkeypatch: Any) -> None:
    async with open_console(clock=ShiftedClock()) as client:
        job, gate = await start_bulk(client, monkeypatch)
        real, keeping, kept = client.console.jobs._store.save_progress, asyncio.Event(), asyncio.Event()

        async def slow(*given: Any, **named: Any) -> None:
            keeping.set()
            await kept.wait()
            await real(*given, **named)

        monkeypatch.setattr(client.console.jobs._store, "save_progress", slow)
        gate.opened.set()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await keeping.wait()
        before = await client.json(f"jobs/{job}")
        kept.set()
        after = await client.ended(job)

    assert ("running", 5, "done") == (before["status"], before["seen"], after["status"])


async def test_job_whose_end_cannot_be_stored_can_be_resumed(monkeypatch: Any) -> None:
    clock = ShiftedClock()

    async def broken(*given: Any, **named: Any) -> None:
        raise interlock.UnavailableError("away", code="store.away")

    async with open_console(clock=clock) as client:
        job, _ = await start_bulk(client, monkeypatch)
        with monkeypatch.context() as patch:
            patch.setattr(client.console.jobs._store, "save_progress", broken)
            await client.post(f"jobs/{job}/cancel")
        clock.ahead_ms = OWNER_TIMEOUT_MS
        found = await client.json(f"jobs/{job}")

    assert "interrupted" == found["status"]
