"""The outbox relay: to entities, parents and children, in order, each delivery counted once."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.effects.lanes import RunningWork
from interlock.effects.outbox import OutboxRelay
from interlock.errors import UnavailableError
from interlock.model.encoding.codec import to_builtins
from interlock.model.event import Event
from interlock.model.journal.entry import Receipt
from interlock.model.journal.work import CHILD_WORK, Work, WorkDelta, WorkId
from interlock.model.limits import MESSAGE_ATTEMPTS_MAX
from interlock.observe.work_status import work_status
from interlock.ports.delivery import Child
from interlock.ports.work import Claim, Settlement, WorkPage, WorkQuery, WorkRow
from interlock.stores.work_table import WorkTable
from interlock.testing.clock import VirtualClock
from tests.unit.effects.scene import CHARGE, RecordingDelivery

NOW = 1_000_000
SENT = WorkId("outbox", 3, 1)


class Books:
    """A work table that answers what the relay asks of a store."""

    def __init__(self) -> None:
        self.table = WorkTable()

    async def settle(self, settled: tuple[Settlement, ...], *, now_ms: int) -> tuple[bool, ...]:
        """As the table does."""
        return self.table.settle(settled, now_ms=now_ms)

    async def list_work(self, query: WorkQuery) -> WorkPage:
        """As the table does."""
        return self.table.list_work(query)


class Scene:
    """A relay, its driver and its books."""

    def __init__(self) -> None:
        self.driver = RecordingDelivery()
        self.books = Books()
        self.relay = OutboxRelay(self.books, self.driver, VirtualClock(NOW))  # type: ignore[arg-type]  # two methods

    async def relayed(
        self, address: str, body: Any, *, failures: int = 0, sender: str = "order/1"
    ) -> Settlement | None:
        """How a row was settled."""
        return await self.relay.perform(RunningWork(claimed(address, body, failures=failures, sender=sender)))

    def child(self, *, started: bool = True, **payload: Any) -> None:
        """Add an invoke of a chart to the sender's work."""
        body = {"id": "net", "src": "network", "type": "chart", **payload}
        self.books.table.apply("order/1", WorkDelta(created=(Work(CHARGE, CHILD_WORK, body, 0),)))
        if started:
            self.books.table.claim("effect", None, owner="w", now_ms=0, until_ms=9, limit=1)
            self.driver.children["network/0"] = Child("network/net-1", NOW, ended=False)

    def given(self) -> list[tuple[str, str]]:
        """Who was given which event."""
        return [(entity, event.name) for entity, event, _, _, _ in self.driver.given]


def claimed(address: str, body: Any, *, failures: int = 0, sender: str = "order/1") -> Claim:
    """Return a claimed row of the outbox."""
    return Claim(sender, Work(SENT, address, body, 0), failures + 1, failures)


def event(name: str, **fields: Any) -> dict[str, Any]:
    """The body of a row that delivers an event."""
    return {"event": to_builtins(Event(name, **fields))}


async def test_a_send_is_delivered_under_its_own_key() -> None:
    """Delivered twice it counts once."""
    scene = Scene()
    settled = await scene.relayed("entity/door/7", event("open", sendid="s1"))
    ((entity, given, key, answers, fence),) = scene.driver.given

    assert Settlement(claimed("entity/door/7", event("open", sendid="s1")), "done") == settled
    assert ("door/7", "open", "s1") == (entity, given.name, given.sendid)
    assert ("_sent/order/1/3/1", None, None) == (key, answers, fence)


async def test_the_sender_gets_an_error_for_an_unknown_target() -> None:
    scene = Scene()
    scene.driver.missing.add("door/7")
    settled = await scene.relayed("entity/door/7", event("open", sendid="s1"))
    ((entity, given, _, answers, _),) = scene.driver.given

    assert settled is None
    assert ("order/1", "error.communication", "s1", SENT) == (entity, given.name, given.sendid, answers)
    assert {"effect": "send", "key": "order/1/3/1", "code": "undeliverable"} == given.data


async def test_the_sender_gets_an_error_for_a_denied_target() -> None:
    scene = Scene()
    scene.driver.outcome = "denied"
    settled = await scene.relayed("entity/door/7", event("open"))

    assert settled is not None
    assert ("dead", "denied") == (settled.verdict, settled.error["code"])
    assert [("door/7", "open"), ("order/1", "error.communication")] == scene.given()


async def test_a_result_for_a_missing_parent_is_dropped() -> None:
    scene = Scene()
    scene.driver.missing.add("vm/1")
    body = event("done.invoke.net", type="platform", invokeid="net", source="invoke/vm/1/2/0", last=True)
    settled = await scene.relayed("entity/vm/1", body)

    assert settled is not None
    assert ("done", []) == (settled.verdict, scene.given())


async def test_an_unavailable_target_is_retried_and_finally_a_dead_letter() -> None:
    async def away(*_: Any, **__: Any) -> Receipt:
        raise UnavailableError("away", code="store.away")

    scene = Scene()
    scene.driver.deliver = away  # type: ignore[method-assign]  # as a store would that is away
    first = await scene.relayed("entity/door/7", event("open"))
    last = await scene.relayed("entity/door/7", event("open"), failures=MESSAGE_ATTEMPTS_MAX - 1)

    assert first is not None
    assert last is not None
    assert ("again", NOW + 100, "store.away") == (first.verdict, first.next_ms, first.error["code"])
    assert ("dead", "store.away") == (last.verdict, last.error["code"])


async def test_an_event_for_a_child_waits_until_the_child_exists() -> None:
    scene = Scene()
    scene.child(started=False)
    settled = await scene.relayed("child/2/0", event("up"))

    assert settled is not None
    assert ("again", True, []) == (settled.verdict, settled.without_failure, scene.given())


async def test_an_event_for_a_child_reaches_it() -> None:
    """Whatever it is called."""
    scene = Scene()
    scene.child()
    await scene.relayed("child/2/0", event("up"))

    assert [("network/net-1", "up")] == scene.given()


async def test_ending_a_child_ends_its_work() -> None:
    scene = Scene()
    scene.child()
    await scene.relayed("child/2/0", event("_cancel", type="platform"))

    assert [("network/net-1", "_cancel")] == scene.given()
    assert () == scene.books.table.list_work(WorkQuery()).rows


async def test_a_child_that_never_started_is_not_started_to_be_ended() -> None:
    scene = Scene()
    scene.child(started=False)
    await scene.relayed("child/2/0", event("_cancel", type="platform"))

    assert ([], ()) == (scene.given(), scene.books.table.list_work(WorkQuery()).rows)


async def test_a_child_that_is_starting_is_ended_afterwards() -> None:
    scene = Scene()
    scene.child()
    scene.driver.children.clear()
    settled = await scene.relayed("child/2/0", event("_cancel", type="platform"))

    assert settled is not None
    assert ("again", 1) == (settled.verdict, len(scene.books.table.list_work(WorkQuery()).rows))


@pytest.mark.parametrize(("forwarded", "told"), [(False, ["error.communication"]), (True, [])])
async def test_an_event_for_a_handler_is_undeliverable_immediately(forwarded: bool, told: list[str]) -> None:
    scene = Scene()
    scene.books.table.apply("order/1", WorkDelta(created=(Work(CHARGE, "charge", {"id": "pay", "src": "charge"}, 0),)))
    settled = await scene.relayed("child/2/0", event("up", forwarded=forwarded))

    assert told == [name for _, name in scene.given()]
    assert (None if told else "done") == (None if settled is None else settled.verdict)


async def test_an_event_for_a_finished_child_is_dropped() -> None:
    settled = await Scene().relayed("child/2/0", event("up"))

    assert settled is not None
    assert "done" == settled.verdict


ANSWER: dict[str, Any] = {"type": "platform", "invokeid": "net", "source": "invoke/order/1/2/0", "last": True}


async def test_the_result_of_a_child_ends_its_work() -> None:
    scene = Scene()
    scene.child()
    await scene.relayed("entity/order/1", event("done.invoke.net", data=3, **ANSWER), sender="network/net-1")

    assert [("order/1", CHARGE)] == [(entity, answers) for entity, _, _, answers, _ in scene.driver.given]


async def test_a_failed_child_with_tries_left_is_restarted_without_an_event() -> None:
    scene = Scene()
    scene.child(retry={"max": 1, "backoff": "1s", "jitter": "none", "on": None})
    failed = event("error.invoke.net", data={"code": "child_failed", "message": "broke"}, **ANSWER)
    settled = await scene.relayed("entity/order/1", failed, sender="network/net-1")
    (row,) = scene.books.table.list_work(WorkQuery()).rows

    assert settled is not None
    assert ("done", []) == (settled.verdict, scene.given())
    assert (1, NOW + 1_000) == (row.failures, row.next_ms)


async def test_the_parent_gets_the_error_of_a_child_without_tries_left() -> None:
    scene = Scene()
    scene.child()
    failed = event("error.invoke.net", data={"code": "child_failed"}, **ANSWER)
    await scene.relayed("entity/order/1", failed, sender="network/net-1")

    assert [("order/1", "error.invoke.net")] == scene.given()


async def test_the_failure_of_a_child_counts_once_however_often_it_is_delivered() -> None:
    """Killed between starting again and releasing the row, the relay delivers it again: it is an old child's now."""
    scene = Scene()
    scene.child(retry={"max": 1, "backoff": "1s", "jitter": "none", "on": None})
    failed = event("error.invoke.net", data={"code": "child_failed"}, **ANSWER)
    for _ in range(2):
        await scene.relayed("entity/order/1", failed, sender="network/net-1")
    (row,) = scene.books.table.list_work(WorkQuery()).rows

    assert (1, []) == (row.failures, scene.given())


async def test_a_second_answer_of_a_child_is_dropped() -> None:
    """The first one ended the work."""
    settled = await Scene().relayed("entity/order/1", event("done.invoke.net", **ANSWER), sender="network/net-1")

    assert settled is not None
    assert "done" == settled.verdict


async def test_a_child_claimed_at_the_last_moment_is_ended_afterwards() -> None:
    scene = Scene()
    scene.child(started=False)
    works = scene.books.list_work

    async def overtaken(query: WorkQuery) -> WorkPage:
        page = await works(query)
        scene.books.table.claim("effect", None, owner="w", now_ms=0, until_ms=9, limit=1)
        return page

    scene.books.list_work = overtaken  # type: ignore[method-assign]  # another worker comes in between
    settled = await scene.relayed("child/2/0", event("_cancel", type="platform"))

    assert settled is not None
    assert ("again", 1) == (settled.verdict, len(scene.books.table.list_work(WorkQuery()).rows))


async def test_a_child_that_fails_while_it_is_ended_is_not_restarted() -> None:
    scene = Scene()
    scene.child(retry={"max": 1, "backoff": "0s", "jitter": "none", "on": None})
    failed = event("error.invoke.net", data={"code": "child_failed"}, **ANSWER)
    deliver = scene.driver.deliver
    started: list[Claim] = []

    async def failing(entity: str, *given: Any, **fields: Any) -> Receipt:
        await scene.relayed("entity/order/1", failed, sender="network/net-1")
        started.extend(scene.books.table.claim("effect", None, owner="w", now_ms=NOW, until_ms=NOW, limit=1))
        return await deliver(entity, *given, **fields)

    scene.driver.deliver = failing  # type: ignore[method-assign]  # another worker comes in between
    settled = await scene.relayed("child/2/0", event("_cancel", type="platform"))

    assert settled is not None
    assert ("done", [], ()) == (settled.verdict, started, scene.books.table.list_work(WorkQuery()).rows)


async def test_a_relay_killed_while_ending_a_child_ends_it_the_next_time() -> None:
    scene = Scene()
    scene.child()
    deliver = scene.driver.deliver
    rows: list[WorkRow] = []

    async def killed(*_: Any, **__: Any) -> Receipt:
        rows.extend(scene.books.table.list_work(WorkQuery()).rows)
        raise UnavailableError("killed", code="store.closed")

    scene.driver.deliver = killed  # type: ignore[method-assign]  # in the middle of it
    await scene.relayed("child/2/0", event("_cancel", type="platform"))
    scene.driver.deliver = deliver  # type: ignore[method-assign]  # the next one lives
    await scene.relayed("child/2/0", event("_cancel", type="platform"))

    assert [("child.ending", "waiting_child")] == [
        (each.error["code"], work_status(each, now_ms=NOW).word) for each in rows
    ]
    assert ([("network/net-1", "_cancel")], ()) == (scene.given(), scene.books.table.list_work(WorkQuery()).rows)


async def test_a_child_that_is_being_ended_is_never_a_dead_letter() -> None:
    scene = Scene()
    scene.child()
    settle = scene.books.settle
    dead: list[WorkRow] = []

    async def seen(*given: Any, **fields: Any) -> tuple[bool, ...]:
        kept = await settle(*given, **fields)
        dead.extend(scene.books.table.list_work(WorkQuery(dead=True)).rows)
        return kept

    scene.books.settle = seen  # type: ignore[method-assign]  # a reader looks when something changes
    await scene.relayed("child/2/0", event("_cancel", type="platform"))

    assert ([], [("network/net-1", "_cancel")]) == (dead, scene.given())


@pytest.mark.parametrize("claims", [0, 1])
async def test_a_failure_read_before_the_child_was_parked_restarts_nothing(claims: int) -> None:
    scene = Scene()
    scene.child(retry={"max": 1, "backoff": "0s", "jitter": "none", "on": None})
    failed = event("error.invoke.net", data={"code": "child_failed"}, **ANSWER)
    works, deliver = scene.books.list_work, scene.driver.deliver

    async def overtaken(query: WorkQuery) -> WorkPage:
        """The child's end comes between the look at its work and what follows from that look."""
        page = await works(query)
        scene.books.list_work = works  # type: ignore[method-assign]  # once
        scene.books.table.claim("effect", None, owner="w", now_ms=9, until_ms=NOW, limit=claims)  # is its time over?
        scene.driver.deliver = killed  # type: ignore[method-assign]  # so the end is not at its end
        await scene.relayed("child/2/0", event("_cancel", type="platform"))
        scene.driver.deliver = deliver  # type: ignore[method-assign]  # the next one lives
        return page

    async def killed(*_: Any, **__: Any) -> Receipt:
        raise UnavailableError("killed", code="store.closed")

    scene.books.list_work = overtaken  # type: ignore[method-assign]  # another worker comes in between
    ends = [await scene.relayed("entity/order/1", failed, sender="network/net-1") for _ in range(2)]
    started = scene.books.table.claim("effect", None, owner="w", now_ms=NOW, until_ms=NOW, limit=1)
    await scene.relayed("child/2/0", event("_cancel", type="platform"))

    assert ["again", "done"] == [each and each.verdict for each in ends]
    assert ((), [("network/net-1", "_cancel")], ()) == (
        started,
        scene.given(),
        scene.books.table.list_work(WorkQuery()).rows,
    )


async def test_a_child_that_waits_for_its_restart_is_not_restarted_to_be_ended() -> None:
    scene = Scene()
    scene.child(retry={"max": 1, "backoff": "1h", "jitter": "none", "on": None})
    failed = event("error.invoke.net", data={"code": "child_failed"}, **ANSWER)
    await scene.relayed("entity/order/1", failed, sender="network/net-1")
    settled = await scene.relayed("child/2/0", event("_cancel", type="platform"))

    assert settled is not None
    assert ("done", [], ()) == (settled.verdict, scene.given(), scene.books.table.list_work(WorkQuery()).rows)


async def test_a_child_that_failed_while_it_started_is_restarted() -> None:
    scene = Scene()
    scene.child(started=False, retry={"max": 1, "backoff": "1s", "jitter": "none", "on": None})
    (beginning,) = scene.books.table.claim("effect", None, owner="w", now_ms=0, until_ms=9, limit=1)
    scene.driver.children["network/0"] = Child("network/net-1", NOW, ended=True)
    failed = event("error.invoke.net", data={"code": "child_failed"}, **ANSWER)
    await scene.relayed("entity/order/1", failed, sender="network/net-1")
    settled = scene.books.table.settle((Settlement(beginning, "wait"),), now_ms=NOW)

    assert ((False,), NOW + 1_000) == (settled, scene.books.table.next_due_ms("effect", None))


async def test_a_failure_that_could_not_be_noted_is_delivered_again() -> None:
    """A worker has claimed the work to check its timeout."""
    scene = Scene()
    scene.child(retry={"max": 1, "backoff": "1s", "jitter": "none", "on": None})
    works = scene.books.list_work

    async def overtaken(query: WorkQuery) -> WorkPage:
        page = await works(query)
        scene.books.table.claim("effect", None, owner="w", now_ms=9, until_ms=NOW, limit=1)
        return page

    scene.books.list_work = overtaken  # type: ignore[method-assign]  # another worker comes in between
    failed = event("error.invoke.net", data={"code": "child_failed"}, **ANSWER)
    settled = await scene.relayed("entity/order/1", failed, sender="network/net-1")

    assert settled is not None
    assert ("again", True) == (settled.verdict, settled.without_failure)
