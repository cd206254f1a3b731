"""Jobs that outlive their server: what is kept of them, who may go on with them, and that nothing is sent twice."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.errors import ConflictError, UsageError
from interlock.model.keys import OwnKey, bulk_key
from interlock.ports.clock import SystemClock
from interlock.ports.store import EntityQuery
from interlock.runtime.chart_registry import JOB_FILE, JOB_KIND
from interlock.web.jobs import walk
from interlock.web.jobs.store import SILENT_MS
from interlock.web.jobs.walk import NOTE_MS
from tests.support.eventually import PATIENCE_SECONDS, eventually
from tests.support.postgres_server import store_or_skip
from tests.unit.web.consoles import ORDER, Client, opened, order, person, some_orders
from tests.unit.web.jobs.test_runner import CANCEL, rehearsed


class ShiftedClock(SystemClock):
    """The real clock, so many milliseconds ahead."""

    def __init__(self, ahead_ms: int = 0) -> None:
        self.ahead_ms = ahead_ms

    def now_ms(self) -> int:
        """What it will be then."""
        return super().now_ms() + self.ahead_ms


class Gate:
    """Lets a bulk send so many events; the next one waits until it is opened."""

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


async def begun(client: Client, monkeypatch: Any, *, orders: int = 6) -> tuple[str, Gate]:
    """Gives the id of a bulk that has sent two events, and the gate before its third."""
    await some_orders(client, orders)
    body = await rehearsed(client, CANCEL)
    gate = Gate(client, monkeypatch)
    job: str = (await client.post("bulk", body)).json()["id"]
    async with asyncio.timeout(PATIENCE_SECONDS):
        await gate.reached.wait()
    return job, gate


async def cancelled(client: Client) -> dict[str, int]:
    """Gives how often each order took the event."""
    page = await client.runtime.store.find(EntityQuery(kind="order", limit=100))
    found = {}
    for row in page.rows:
        entries = await client.runtime.journal(row.entity)
        found[row.entity] = sum(each.event.name == "order.cancelled" for each in entries)
    return found


ONCE = {"order/A-1": 1, "order/A-2": 0, "order/A-3": 1, "order/A-4": 1, "order/A-5": 1, "order/A-6": 1}


@pytest.mark.parametrize("store", ["sqlite", "file", "postgres"])
async def test_a_bulk_whose_server_ended_says_how_far_it_came_and_goes_on(
    tmp_path: Path, monkeypatch: Any, store: str
) -> None:
    """The next server shows it as interrupted; resumed there, it gives every entity its event once."""
    urls = {"sqlite": f"sqlite:///{tmp_path}/o.db", "file": f"file:{tmp_path}/orders"}
    url = urls[store] if store in urls else store_or_skip()
    async with opened(url, clock=ShiftedClock()) as client:
        job, _ = await begun(client, monkeypatch)
    async with opened(url, clock=ShiftedClock()) as client:
        listed = (await client.json("jobs"))["jobs"]
        resumed = (await client.post(f"jobs/{job}/resume")).json()
        ended = await client.ended(job)
        taken = await cancelled(client)
        proof = await client.runtime.verify(f"{JOB_KIND}/{job}")

    assert [(job, "interrupted", 2, "season is over")] == [
        (each["id"], each["status"], each["seen"], each["reason"]) for each in listed
    ]
    assert "whoever has the event already is not given it again" in listed[0]["advice"]
    assert ("running", None) == (resumed["status"], resumed["advice"])
    assert ("done", 5, {"applied": 5}) == (ended["status"], ended["seen"], ended["outcomes"])
    assert ({"unpaid": 5}, ONCE, True) == (ended["states"], taken, proof.replayed)


async def test_what_was_sent_and_not_yet_noted_is_asked_again_and_not_given_twice(
    tmp_path: Path, monkeypatch: Any
) -> None:
    """A server that vanishes with its last counts: what it did is told by the keys, and not done again."""
    url = f"sqlite:///{tmp_path}/o.db"
    async with opened(url, clock=ShiftedClock()) as client:
        job, _ = await begun(client, monkeypatch)
        monkeypatch.setattr(client.console.jobs._records, "note", vanished)
    async with opened(url, clock=ShiftedClock(SILENT_MS)) as client:
        found = await client.json(f"jobs/{job}")
        await client.post(f"jobs/{job}/resume")
        ended = await client.ended(job)
        taken = await cancelled(client)

    assert ("interrupted", 2, {"applied": 2}) == (found["status"], found["seen"], found["outcomes"])
    assert (5, {"applied": 5}) == (ended["seen"], ended["outcomes"])
    assert ["it had it already"] * 2 + [None] * 3 == [each["reason"] for each in ended["samples"]]
    assert ONCE == taken


async def test_what_a_server_of_an_earlier_release_sent_is_not_given_again(tmp_path: Path, monkeypatch: Any) -> None:
    """Its keys were in the senders' space; the job is resumed after an upgrade."""
    url = f"sqlite:///{tmp_path}/o.db"
    with monkeypatch.context() as patch:
        patch.setattr(walk, "bulk_key", former_key)
        async with opened(url, clock=ShiftedClock()) as client:
            job, _ = await begun(client, patch)
            patch.setattr(client.console.jobs._records, "note", vanished)
    async with opened(url, clock=ShiftedClock(SILENT_MS)) as client:
        found = await client.json(f"jobs/{job}")
        await client.post(f"jobs/{job}/resume")
        ended = await client.ended(job)
        taken = await cancelled(client)

    assert (2, {"applied": 2}) == (found["seen"], found["outcomes"])
    assert (5, {"applied": 5}) == (ended["seen"], ended["outcomes"])
    assert ONCE == taken


async def test_a_sender_who_takes_a_former_key_does_not_suppress_the_event_of_a_job(
    tmp_path: Path, monkeypatch: Any
) -> None:
    """The entity took another event under it, and is not counted as one that has the job's."""
    url = f"sqlite:///{tmp_path}/o.db"
    async with opened(url, clock=ShiftedClock()) as client:
        job, gate = await begun(client, monkeypatch)
        squat, eve = f"bulk/{job}/order/A-6", {"id": "eve", "roles": ["payments"]}
        await client.runtime.send("order/A-6", "payment.confirmed", {"id": "p"}, key=squat, principal=eve)
        gate.opened.set()
        ended = await client.ended(job)

    assert {"applied": 4, "skipped": 1} == ended["outcomes"]


async def test_a_job_that_a_wrong_clock_noted_last_can_be_resumed(tmp_path: Path, monkeypatch: Any) -> None:
    """Its server was a day ahead, and is gone; nobody waits a day for its silence."""
    url = f"sqlite:///{tmp_path}/o.db"
    async with opened(url, clock=ShiftedClock(86_400_000)) as client:
        job, _ = await begun(client, monkeypatch)
        monkeypatch.setattr(client.console.jobs._records, "note", vanished)
    async with opened(url, clock=ShiftedClock()) as client:
        found = await client.json(f"jobs/{job}")
        await client.post(f"jobs/{job}/resume")
        ended = await client.ended(job)
        taken = await cancelled(client)

    assert ("interrupted", "done") == (found["status"], ended["status"])
    assert ONCE == taken


def former_key(job: str, entity: str) -> OwnKey:
    """Gives the key of an earlier release."""
    key = bulk_key(job, entity)
    return OwnKey(key.name, key.name)


async def vanished(*given: Any, **named: Any) -> None:
    """Keeps nothing, as a process that was killed."""


async def test_a_job_whose_server_may_still_be_there_is_left_to_it(tmp_path: Path, monkeypatch: Any) -> None:
    """Only its silence makes it free."""
    url = f"sqlite:///{tmp_path}/o.db"
    async with opened(url, clock=ShiftedClock()) as client, opened(url, clock=ShiftedClock(-60_000)) as other:
        job, _ = await begun(client, monkeypatch)
        seen = await other.json(f"jobs/{job}")
        refused = await other.post(f"jobs/{job}/resume")

    assert ("running", 409, "job.elsewhere") == (seen["status"], refused.status_code, refused.json()["code"])
    assert "wait half a minute" in refused.json()["hint"]


async def test_a_server_that_was_taken_for_dead_stops_when_it_comes_back(tmp_path: Path, monkeypatch: Any) -> None:
    """Its notes are refused: whoever resumed the job is its owner now."""
    url = f"sqlite:///{tmp_path}/o.db"
    clock = ShiftedClock()
    async with opened(url, clock=clock) as client, opened(url, clock=ShiftedClock(SILENT_MS)) as other:
        job, gate = await begun(client, monkeypatch)
        resumed = (await other.post(f"jobs/{job}/resume")).json()
        ended = await other.ended(job)
        clock.ahead_ms = NOTE_MS
        gate.opened.set()
        told = await client.ended(job)
        taken = await cancelled(other)

    assert "running" == resumed["status"]
    assert ("done", {"applied": 5}) == (ended["status"], ended["outcomes"])
    assert (ended, ONCE) == (told, taken)


async def test_of_two_servers_that_resume_a_job_one_gets_it(tmp_path: Path, monkeypatch: Any) -> None:
    """Both looked before either had it; the later one is told, and leaves it alone."""
    url = f"sqlite:///{tmp_path}/o.db"
    who: Any = {"who": "ada", "principal": person().principal, "may_see": lambda _: True}
    async with opened(url, clock=ShiftedClock()) as client:
        job, _ = await begun(client, monkeypatch)
    async with opened(url, clock=ShiftedClock()) as one, opened(url, clock=ShiftedClock()) as other:
        looked = await other.console.jobs._records.get(job)

        async def before(name: str) -> Any:
            return looked

        await one.post(f"jobs/{job}/resume")
        with monkeypatch.context() as patch:
            patch.setattr(other.console.jobs._records, "get", before)
            with pytest.raises(ConflictError):
                await other.console.jobs.resume(job, **who)
        ended = await one.ended(job)
        taken = await cancelled(one)

    assert ({}, "done", ONCE) == (other.console.jobs._runs, ended["status"], taken)


@pytest.mark.parametrize(("act", "status"), [("pause", "paused"), ("cancel", "cancelled")])
async def test_a_job_is_steered_from_another_server(tmp_path: Path, monkeypatch: Any, act: str, status: str) -> None:
    """The server that runs it hears of it with its next note."""
    url = f"sqlite:///{tmp_path}/o.db"
    clock = ShiftedClock()
    async with opened(url, clock=clock) as client, opened(url, clock=ShiftedClock()) as other:
        job, gate = await begun(client, monkeypatch)
        steered = (await other.post(f"jobs/{job}/{act}")).json()
        clock.ahead_ms = NOTE_MS
        gate.opened.set()
        there = await until(client, job, status)
        taken = await cancelled(other)

    assert (status, status) == (steered["status"], there["status"])
    assert 3 == sum(taken.values())


async def until(client: Client, job: str, status: str) -> Any:
    """Gives a job once it has this status."""

    async def found() -> Any:
        row = await client.json(f"jobs/{job}")
        return row if row["status"] == status else None

    return await eventually(found, f"a job that is {status}")


async def test_a_paused_job_is_still_paused_after_a_restart(tmp_path: Path, monkeypatch: Any) -> None:
    """It goes on where somebody lets it."""
    url = f"sqlite:///{tmp_path}/o.db"
    async with opened(url, clock=ShiftedClock()) as client:
        job, gate = await begun(client, monkeypatch)
        await client.post(f"jobs/{job}/pause")
        gate.opened.set()
    async with opened(url, clock=ShiftedClock(2 * SILENT_MS)) as client:
        resting = await client.json(f"jobs/{job}")
        await client.post(f"jobs/{job}/resume")
        ended = await client.ended(job)
        over = await client.post(f"jobs/{job}/resume")
        taken = await cancelled(client)

    assert ("paused", "done", "job.over") == (resting["status"], ended["status"], over.json()["code"])
    assert ONCE == taken


async def test_a_job_that_rests_here_goes_on_here(monkeypatch: Any) -> None:
    """Whatever it was about to note waits until it goes on."""
    clock = ShiftedClock()
    async with opened(clock=clock) as client:
        job, gate = await begun(client, monkeypatch)
        paused = (await client.post(f"jobs/{job}/pause")).json()
        clock.ahead_ms = NOTE_MS
        gate.opened.set()
        for _ in range(50):
            await asyncio.sleep(0)
        resting = await client.json(f"jobs/{job}")
        resumed = (await client.post(f"jobs/{job}/resume")).json()
        ended = await client.ended(job)
        taken = await cancelled(client)

    assert ["paused", "paused", "running", "done"] == [each["status"] for each in (paused, resting, resumed, ended)]
    assert ({"applied": 5}, ONCE) == (ended["outcomes"], taken)


async def test_an_old_job_is_listed_until_it_is_over_and_afterwards_where_it_ended(
    tmp_path: Path, monkeypatch: Any
) -> None:
    """The list is of the last months; what somebody has just ended does not vanish before their eyes."""
    url = f"sqlite:///{tmp_path}/o.db"
    async with opened(url, clock=ShiftedClock()) as client:
        job, _ = await begun(client, monkeypatch)
    async with opened(url, clock=ShiftedClock(100 * 86_400_000)) as client:
        before = (await client.json("jobs"))["jobs"]
        await client.post(f"jobs/{job}/resume")
        jobs = client.console.jobs
        await eventually(lambda: not jobs._runs)
        after = (await client.json("jobs"))["jobs"]
    async with opened(url, clock=ShiftedClock(100 * 86_400_000)) as client:
        elsewhere = (await client.json("jobs"))["jobs"]
        still = await client.json(f"jobs/{job}")

    assert [[(job, "interrupted")], [(job, "done")], []] == [
        [(each["id"], each["status"]) for each in some] for some in (before, after, elsewhere)
    ]
    assert "done" == still["status"]


async def test_a_paused_job_is_cancelled(monkeypatch: Any) -> None:
    """What it has done stays done, and it does not come back."""
    async with opened(clock=ShiftedClock()) as client:
        job, _ = await begun(client, monkeypatch)
        await client.post(f"jobs/{job}/pause")
        ended = (await client.post(f"jobs/{job}/cancel")).json()
        over = await client.post(f"jobs/{job}/resume")

    assert ("cancelled", 409) == (ended["status"], over.status_code)
    assert ended["ended_ms"] is not None


async def test_whoever_resumes_a_bulk_does_it_with_their_own_rights(tmp_path: Path, monkeypatch: Any) -> None:
    """The roles of whoever began it are not kept, and so cannot be borrowed."""
    url = f"sqlite:///{tmp_path}/o.db"
    async with opened(url, clock=ShiftedClock()) as client:
        job, _ = await begun(client, monkeypatch)
    async with opened(url, clock=ShiftedClock(), who=person("bob", roles=())) as client:
        await client.post(f"jobs/{job}/resume")
        ended = await client.ended(job)
        entries = await client.runtime.journal(f"{JOB_KIND}/{job}")

    assert ("ada", {"applied": 2, "denied": 3}) == (ended["who"], ended["outcomes"])
    assert ["bob"] == [(each.event.principal or {})["id"] for each in entries if each.event.name == "job.resumed"]


async def test_an_interrupted_check_begins_anew(tmp_path: Path) -> None:
    """It changes nothing, so there is nothing to remember but that it did not end."""
    url = f"sqlite:///{tmp_path}/o.db"
    async with opened(url, clock=ShiftedClock()) as client:
        await some_orders(client)
        job = await client.console.jobs.begin_verify("ada", None, may_see=lambda _: True)
    async with opened(url, clock=ShiftedClock()) as client:
        found = await client.json(f"jobs/{job.id}")
        await client.post(f"jobs/{job.id}/resume")
        ended = await client.ended(job.id)

    assert "interrupted" == found["status"]
    assert "begins anew" in found["advice"]
    assert ("done", 3, {"proven": 3}) == (ended["status"], ended["seen"], ended["outcomes"])


async def test_a_check_of_everything_is_kept_with_what_it_found(tmp_path: Path) -> None:
    """Later servers tell of it; a check of one entity is not kept."""
    url = f"sqlite:///{tmp_path}/o.db"
    async with opened(url) as client:
        await some_orders(client)
        await client.job("verify", {"entity": "order/A-1"})
        job = await client.job("verify", {})
    async with opened(url) as client:
        listed = (await client.json("jobs"))["jobs"]
        again = await client.job("verify", {})

    assert [job] == listed
    assert {"proven": 4} == again["outcomes"]  # the first check is an entity, too


async def test_a_console_that_only_shows_keeps_no_job(tmp_path: Path) -> None:
    """It writes nothing at all."""
    url = f"sqlite:///{tmp_path}/o.db"
    async with opened(url) as client:
        await some_orders(client)
    async with opened(url, read_only=True) as client:
        job = await client.job("verify", {})
        kinds = await client.runtime.store.kinds()

    assert (False, {"proven": 3}, ("order",)) == (job["kept"], job["outcomes"], kinds)


async def test_jobs_are_no_kind_of_the_fleet_and_nobody_else_writes_them() -> None:
    """Not by creating one, not by an event, not by a bulk; who may not see everything sees none."""
    async with opened() as client:
        await some_orders(client)
        job = await client.job("verify", {})
        fleet = await client.json("kinds")
        page = await client.json(f"entity/{JOB_KIND}/{job['id']}")
        answers = [
            await client.post(f"kinds/{JOB_KIND}/entities", {"id": "x", "context": {}}),
            await client.post(f"send/{JOB_KIND}/{job['id']}", {"event": "job.cancelled"}),
            await client.post("bulk", {"kind": JOB_KIND, "event": "job.cancelled"}),
        ]
    async with opened(who=person(rights=("read", "send"))) as client:
        closed = await client.get(f"entity/{JOB_KIND}/x")

    assert ["order"] == [each["kind"] for each in fleet["kinds"]]
    assert ["done"] == page["configuration"]
    assert [(403, "kind.own")] * 3 == [(each.status_code, each.json()["code"]) for each in answers]
    assert (404, "kind.unknown") == (closed.status_code, closed.json()["code"])


async def test_an_event_of_a_job_needs_a_role_that_no_chart_gives() -> None:
    """Whoever writes to the store by the runtime needs it, too."""
    async with opened() as client:
        job = await client.job("verify", {})
        receipt = await client.runtime.send(f"{JOB_KIND}/{job['id']}", "job.resumed", {"owner": "me"})

    assert ("denied", "roles") == (receipt.outcome, receipt.reason)


async def test_no_chart_may_have_the_name_of_a_kind_of_ours() -> None:
    """It is refused when the runtime opens."""
    with pytest.raises(UsageError) as caught:
        async with opened(charts=(order(ORDER.replace("kind: order", f"kind: {JOB_KIND}")),)):
            pass

    assert "kind.reserved" == caught.value.code


def test_the_chart_of_jobs_has_no_findings() -> None:
    """It is written as we tell others to."""
    assert () == interlock.loads(JOB_FILE.read_text()).diagnostics


async def test_a_page_that_is_too_long_to_be_noted_is_made_shorter(monkeypatch: Any) -> None:
    """However short: each entity is still asked once."""
    monkeypatch.setattr(walk, "LISTED_BYTES_MAX", 90)
    async with opened(clock=ShiftedClock()) as client:
        job, gate = await begun(client, monkeypatch)
        gate.opened.set()
        ended = await client.ended(job)
        entries = (await client.runtime.journal(f"{JOB_KIND}/{job}"))[1:-1]
        taken = await cancelled(client)

    assert ("done", {"applied": 5}) == (ended["status"], ended["outcomes"])
    assert [1] * 5 == [len(each.event.data["page"]["items"]) for each in entries]
    assert ONCE == taken


async def test_an_end_is_told_once_it_is_kept(monkeypatch: Any) -> None:
    """Whoever hears that a job is done hears the same from any other server."""
    async with opened(clock=ShiftedClock()) as client:
        job, gate = await begun(client, monkeypatch)
        real, keeping, kept = client.console.jobs._records.note, asyncio.Event(), asyncio.Event()

        async def slow(*given: Any, **named: Any) -> None:
            keeping.set()
            await kept.wait()
            await real(*given, **named)

        monkeypatch.setattr(client.console.jobs._records, "note", slow)
        gate.opened.set()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await keeping.wait()
        before = await client.json(f"jobs/{job}")
        kept.set()
        after = await client.ended(job)

    assert ("running", 5, "done") == (before["status"], before["seen"], after["status"])


async def test_an_end_that_cannot_be_kept_leaves_the_job_to_be_resumed(monkeypatch: Any) -> None:
    """Nothing is told that the store does not know."""
    clock = ShiftedClock()

    async def broken(*given: Any, **named: Any) -> None:
        raise interlock.UnavailableError("away", code="store.away")

    async with opened(clock=clock) as client:
        job, _ = await begun(client, monkeypatch)
        with monkeypatch.context() as patch:
            patch.setattr(client.console.jobs._records, "note", broken)
            await client.post(f"jobs/{job}/cancel")
        clock.ahead_ms = SILENT_MS
        found = await client.json(f"jobs/{job}")

    assert "interrupted" == found["status"]
