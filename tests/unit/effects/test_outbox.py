"""The relay: to entities, parents, children and the bus, in order, at least once and counted once."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.effects.lanes import RunningWork
from interlock.effects.outbox import OutboxRelay
from interlock.errors import UnavailableError
from interlock.model.codec import plain
from interlock.model.event import Event
from interlock.model.journal.entry import Receipt
from interlock.model.journal.work import CHILD_WORK, Work, WorkDelta, WorkId
from interlock.model.limits import MESSAGE_ATTEMPTS_MAX
from interlock.observe.work_status import work_status
from interlock.ports.delivery import Child
from interlock.ports.work import Claim, Settlement, WorkPage, WorkQuery, WorkRow
from interlock.stores.work_table import WorkTable
from interlock.testing.clock import VirtualClock
from tests.unit.effects.scene import CHARGE, NotingDriver

NOW = 1_000_000
SENT = WorkId("outbox", 3, 1)


class Books:
    """A work table that answers what the relay asks of a store."""

    def __init__(self) -> None:
        self.table = WorkTable()

    async def settle(self, settled: tuple[Settlement, ...], *, now_ms: int) -> tuple[bool, ...]:
        """As the table does."""
        return self.table.settle(settled, now_ms=now_ms)

    async def works(self, query: WorkQuery) -> WorkPage:
        """As the table does."""
        return self.table.works(query)


class Scene:
    """A relay, its driver and its books."""

    def __init__(self) -> None:
        self.driver = NotingDriver()
        self.books = Books()
        self.relay = OutboxRelay(self.books, self.driver, VirtualClock(NOW))  # type: ignore[arg-type]  # two methods

    async def relayed(
        self, address: str, body: Any, *, failures: int = 0, sender: str = "order/1"
    ) -> Settlement | None:
        """How a row was settled."""
        return await self.relay.perform(RunningWork(claimed(address, body, failures=failures, sender=sender)))

    def child(self, *, begun: bool = True, **payload: Any) -> None:
        """An invoke of a chart stands in the sender's books."""
        body = {"id": "net", "src": "network", "type": "chart", **payload}
        self.books.table.keep("order/1", WorkDelta(born=(Work(CHARGE, CHILD_WORK, body, 0),)))
        if begun:
            self.books.table.claim("effect", None, owner="w", now_ms=0, until_ms=9, limit=1)
            self.driver.children["network/0"] = Child("network/net-1", NOW, ended=False)

    def given(self) -> list[tuple[str, str]]:
        """Who was given which event."""
        return [(entity, event.name) for entity, event, _, _, _ in self.driver.given]


def claimed(address: str, body: Any, *, failures: int = 0, sender: str = "order/1") -> Claim:
    """A row of the outbox in hand."""
    return Claim(sender, Work(SENT, address, body, 0), failures + 1, failures)


def event(name: str, **fields: Any) -> dict[str, Any]:
    """The body of a row that delivers an event."""
    return {"event": plain(Event(name, **fields))}


async def test_a_send_is_delivered_under_its_own_key() -> None:
    """Delivered twice it counts once."""
    scene = Scene()
    settled = await scene.relayed("entity/door/7", event("open", sendid="s1"))
    ((entity, given, key, answers, fence),) = scene.driver.given

    assert Settlement(claimed("entity/door/7", event("open", sendid="s1")), "done") == settled
    assert ("door/7", "open", "s1") == (entity, given.name, given.sendid)
    assert ("_sent/order/1/3/1", None, None) == (key, answers, fence)


async def test_a_target_that_is_not_there_is_told_to_the_sender() -> None:
    """With the id of its send; that entry ends the row."""
    scene = Scene()
    scene.driver.missing.add("door/7")
    settled = await scene.relayed("entity/door/7", event("open", sendid="s1"))
    ((entity, given, _, answers, _),) = scene.driver.given

    assert settled is None
    assert ("order/1", "error.communication", "s1", SENT) == (entity, given.name, given.sendid, answers)
    assert {"effect": "send", "key": "order/1/3/1", "code": "undeliverable"} == given.data


async def test_a_target_that_may_not_be_sent_to_is_told_to_the_sender() -> None:
    """Denied is no answer of the chart."""
    scene = Scene()
    scene.driver.outcome = "denied"
    settled = await scene.relayed("entity/door/7", event("open"))

    assert settled is not None
    assert ("dead", "denied") == (settled.verdict, settled.error["code"])
    assert [("door/7", "open"), ("order/1", "error.communication")] == scene.given()


async def test_an_answer_to_somebody_who_is_gone_is_dropped() -> None:
    """There is nobody who could do anything about it."""
    scene = Scene()
    scene.driver.missing.add("vm/1")
    body = event("done.invoke.net", type="platform", invokeid="net", source="invoke/vm/1/2/0", last=True)
    settled = await scene.relayed("entity/vm/1", body)

    assert settled is not None
    assert ("done", []) == (settled.verdict, scene.given())


async def test_a_target_that_is_away_is_tried_again_later_and_at_last_a_person_must_look() -> None:
    """Longer each time; the row holds back its own entity only."""

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


async def test_an_event_for_a_child_waits_until_the_child_is_there() -> None:
    """That is no failure."""
    scene = Scene()
    scene.child(begun=False)
    settled = await scene.relayed("child/2/0", event("up"))

    assert settled is not None
    assert ("again", True, []) == (settled.verdict, settled.lapsed, scene.given())


async def test_an_event_for_a_child_reaches_it() -> None:
    """Whatever it is called."""
    scene = Scene()
    scene.child()
    await scene.relayed("child/2/0", event("up"))

    assert [("network/net-1", "up")] == scene.given()


async def test_the_end_of_a_child_ends_the_work_that_stood_for_it() -> None:
    """After the child has heard."""
    scene = Scene()
    scene.child()
    await scene.relayed("child/2/0", event("_cancel", type="platform"))

    assert [("network/net-1", "_cancel")] == scene.given()
    assert () == scene.books.table.works(WorkQuery()).rows


async def test_a_child_that_was_never_begun_is_not_begun_to_be_ended() -> None:
    """The state was left before anybody took it up."""
    scene = Scene()
    scene.child(begun=False)
    await scene.relayed("child/2/0", event("_cancel", type="platform"))

    assert ([], ()) == (scene.given(), scene.books.table.works(WorkQuery()).rows)


async def test_a_child_that_is_being_begun_is_ended_afterwards() -> None:
    """Else it would live on, and nobody know of it."""
    scene = Scene()
    scene.child()
    scene.driver.children.clear()
    settled = await scene.relayed("child/2/0", event("_cancel", type="platform"))

    assert settled is not None
    assert ("again", 1) == (settled.verdict, len(scene.books.table.works(WorkQuery()).rows))


@pytest.mark.parametrize(("forwarded", "told"), [(False, ["error.communication"]), (True, [])])
async def test_an_event_for_a_handler_does_not_wait_for_its_end(forwarded: bool, told: list[str]) -> None:
    """Nobody there hears it: its sender is told of a send, and nobody of what was only passed on."""
    scene = Scene()
    scene.books.table.keep("order/1", WorkDelta(born=(Work(CHARGE, "charge", {"id": "pay", "src": "charge"}, 0),)))
    settled = await scene.relayed("child/2/0", event("up", forwarded=forwarded))

    assert told == [name for _, name in scene.given()]
    assert (None if told else "done") == (None if settled is None else settled.verdict)


async def test_an_event_for_a_child_that_has_answered_is_dropped() -> None:
    """Nobody is there to hear."""
    settled = await Scene().relayed("child/2/0", event("up"))

    assert settled is not None
    assert "done" == settled.verdict


ANSWER: dict[str, Any] = {"type": "platform", "invokeid": "net", "source": "invoke/order/1/2/0", "last": True}


async def test_a_childs_answer_ends_the_work_that_stood_for_it() -> None:
    """In the parent's own entry."""
    scene = Scene()
    scene.child()
    await scene.relayed("entity/order/1", event("done.invoke.net", data=3, **ANSWER), sender="network/net-1")

    assert [("order/1", CHARGE)] == [(entity, answers) for entity, _, _, answers, _ in scene.driver.given]


async def test_a_failed_child_with_tries_left_is_begun_again_and_nobody_told() -> None:
    """Restart: the work waits for its backoff."""
    scene = Scene()
    scene.child(retry={"max": 1, "backoff": "1s", "jitter": "none", "on": None})
    failed = event("error.invoke.net", data={"code": "child_failed", "message": "broke"}, **ANSWER)
    settled = await scene.relayed("entity/order/1", failed, sender="network/net-1")
    (row,) = scene.books.table.works(WorkQuery()).rows

    assert settled is not None
    assert ("done", []) == (settled.verdict, scene.given())
    assert (1, NOW + 1_000) == (row.failures, row.next_ms)


async def test_a_failed_child_without_tries_left_is_told() -> None:
    """Escalate."""
    scene = Scene()
    scene.child()
    failed = event("error.invoke.net", data={"code": "child_failed"}, **ANSWER)
    await scene.relayed("entity/order/1", failed, sender="network/net-1")

    assert [("order/1", "error.invoke.net")] == scene.given()


async def test_the_failure_of_a_child_counts_once_however_often_it_is_delivered() -> None:
    """Killed between beginning anew and letting the row go, the relay delivers it again: it is an old child's now."""
    scene = Scene()
    scene.child(retry={"max": 1, "backoff": "1s", "jitter": "none", "on": None})
    failed = event("error.invoke.net", data={"code": "child_failed"}, **ANSWER)
    for _ in range(2):
        await scene.relayed("entity/order/1", failed, sender="network/net-1")
    (row,) = scene.books.table.works(WorkQuery()).rows

    assert (1, []) == (row.failures, scene.given())


async def test_a_second_answer_of_a_child_is_dropped() -> None:
    """The first one ended the work."""
    settled = await Scene().relayed("entity/order/1", event("done.invoke.net", **ANSWER), sender="network/net-1")

    assert settled is not None
    assert "done" == settled.verdict


async def test_a_child_taken_up_at_the_last_moment_is_ended_afterwards() -> None:
    """Its work is removed only when nobody can begin it any more."""
    scene = Scene()
    scene.child(begun=False)
    works = scene.books.works

    async def overtaken(query: WorkQuery) -> WorkPage:
        page = await works(query)
        scene.books.table.claim("effect", None, owner="w", now_ms=0, until_ms=9, limit=1)
        return page

    scene.books.works = overtaken  # type: ignore[method-assign]  # another worker comes in between
    settled = await scene.relayed("child/2/0", event("_cancel", type="platform"))

    assert settled is not None
    assert ("again", 1) == (settled.verdict, len(scene.books.table.works(WorkQuery()).rows))


async def test_a_child_that_fails_while_it_is_ended_is_not_begun_anew_behind_its_end() -> None:
    """Its failure, delivered by another worker in the very moment, must not leave a second child that nobody ends."""
    scene = Scene()
    scene.child(retry={"max": 1, "backoff": "0s", "jitter": "none", "on": None})
    failed = event("error.invoke.net", data={"code": "child_failed"}, **ANSWER)
    deliver = scene.driver.deliver
    begun: list[Claim] = []

    async def failing(entity: str, *given: Any, **fields: Any) -> Receipt:
        await scene.relayed("entity/order/1", failed, sender="network/net-1")
        begun.extend(scene.books.table.claim("effect", None, owner="w", now_ms=NOW, until_ms=NOW, limit=1))
        return await deliver(entity, *given, **fields)

    scene.driver.deliver = failing  # type: ignore[method-assign]  # another worker comes in between
    settled = await scene.relayed("child/2/0", event("_cancel", type="platform"))

    assert settled is not None
    assert ("done", [], ()) == (settled.verdict, begun, scene.books.table.works(WorkQuery()).rows)


async def test_a_relay_killed_while_it_ended_a_child_ends_it_the_next_time() -> None:
    """The work that stood for the child says so meanwhile, and goes with it."""
    scene = Scene()
    scene.child()
    deliver = scene.driver.deliver
    rows: list[WorkRow] = []

    async def killed(*_: Any, **__: Any) -> Receipt:
        rows.extend(scene.books.table.works(WorkQuery()).rows)
        raise UnavailableError("killed", code="store.closed")

    scene.driver.deliver = killed  # type: ignore[method-assign]  # in the middle of it
    await scene.relayed("child/2/0", event("_cancel", type="platform"))
    scene.driver.deliver = deliver  # type: ignore[method-assign]  # the next one lives
    await scene.relayed("child/2/0", event("_cancel", type="platform"))

    assert [("child.ending", "child")] == [(each.error["code"], work_status(each, now_ms=NOW).word) for each in rows]
    assert ([("network/net-1", "_cancel")], ()) == (scene.given(), scene.books.table.works(WorkQuery()).rows)


async def test_a_child_that_is_ended_is_at_no_moment_a_dead_letter() -> None:
    """Nothing is wrong with it, and no person has to look; nor can one have it begun again."""
    scene = Scene()
    scene.child()
    settle = scene.books.settle
    dead: list[WorkRow] = []

    async def seen(*given: Any, **fields: Any) -> tuple[bool, ...]:
        kept = await settle(*given, **fields)
        dead.extend(scene.books.table.works(WorkQuery(dead=True)).rows)
        return kept

    scene.books.settle = seen  # type: ignore[method-assign]  # somebody looks after each change
    await scene.relayed("child/2/0", event("_cancel", type="platform"))

    assert ([], [("network/net-1", "_cancel")]) == (dead, scene.given())


@pytest.mark.parametrize("claims", [0, 1])
async def test_a_failure_read_before_its_child_is_ended_restarts_nothing_after_that(claims: int) -> None:
    """Whoever saw the work before it was parked can no longer change it, however often it was taken up since."""
    scene = Scene()
    scene.child(retry={"max": 1, "backoff": "0s", "jitter": "none", "on": None})
    failed = event("error.invoke.net", data={"code": "child_failed"}, **ANSWER)
    works, deliver = scene.books.works, scene.driver.deliver

    async def overtaken(query: WorkQuery) -> WorkPage:
        """The child's end comes between the look at its work and what follows from that look."""
        page = await works(query)
        scene.books.works = works  # type: ignore[method-assign]  # once
        scene.books.table.claim("effect", None, owner="w", now_ms=9, until_ms=NOW, limit=claims)  # is its time over?
        scene.driver.deliver = killed  # type: ignore[method-assign]  # so the end is not at its end
        await scene.relayed("child/2/0", event("_cancel", type="platform"))
        scene.driver.deliver = deliver  # type: ignore[method-assign]  # the next one lives
        return page

    async def killed(*_: Any, **__: Any) -> Receipt:
        raise UnavailableError("killed", code="store.closed")

    scene.books.works = overtaken  # type: ignore[method-assign]  # another worker comes in between
    ends = [await scene.relayed("entity/order/1", failed, sender="network/net-1") for _ in range(2)]
    begun = scene.books.table.claim("effect", None, owner="w", now_ms=NOW, until_ms=NOW, limit=1)
    await scene.relayed("child/2/0", event("_cancel", type="platform"))

    assert ["again", "done"] == [each and each.verdict for each in ends]
    assert ((), [("network/net-1", "_cancel")], ()) == (
        begun,
        scene.given(),
        scene.books.table.works(WorkQuery()).rows,
    )


async def test_a_child_that_waits_to_be_begun_again_is_not_begun_to_be_ended() -> None:
    """What its parent sends does not wait for the backoff of a child that nobody asks for."""
    scene = Scene()
    scene.child(retry={"max": 1, "backoff": "1h", "jitter": "none", "on": None})
    failed = event("error.invoke.net", data={"code": "child_failed"}, **ANSWER)
    await scene.relayed("entity/order/1", failed, sender="network/net-1")
    settled = await scene.relayed("child/2/0", event("_cancel", type="platform"))

    assert settled is not None
    assert ("done", [], ()) == (settled.verdict, scene.given(), scene.books.table.works(WorkQuery()).rows)


async def test_a_child_that_failed_while_it_was_begun_is_begun_again() -> None:
    """Whoever began it says afterwards that it waits for an answer: that is no longer so, and changes nothing."""
    scene = Scene()
    scene.child(begun=False, retry={"max": 1, "backoff": "1s", "jitter": "none", "on": None})
    (beginning,) = scene.books.table.claim("effect", None, owner="w", now_ms=0, until_ms=9, limit=1)
    scene.driver.children["network/0"] = Child("network/net-1", NOW, ended=True)
    failed = event("error.invoke.net", data={"code": "child_failed"}, **ANSWER)
    await scene.relayed("entity/order/1", failed, sender="network/net-1")
    settled = scene.books.table.settle((Settlement(beginning, "wait"),), now_ms=NOW)

    assert ((False,), NOW + 1_000) == (settled, scene.books.table.soonest("effect", None))


async def test_a_failure_that_could_not_be_noted_is_delivered_again() -> None:
    """Somebody took the work up to look whether its time was over."""
    scene = Scene()
    scene.child(retry={"max": 1, "backoff": "1s", "jitter": "none", "on": None})
    works = scene.books.works

    async def overtaken(query: WorkQuery) -> WorkPage:
        page = await works(query)
        scene.books.table.claim("effect", None, owner="w", now_ms=9, until_ms=NOW, limit=1)
        return page

    scene.books.works = overtaken  # type: ignore[method-assign]  # another worker comes in between
    failed = event("error.invoke.net", data={"code": "child_failed"}, **ANSWER)
    settled = await scene.relayed("entity/order/1", failed, sender="network/net-1")

    assert settled is not None
    assert ("again", True) == (settled.verdict, settled.lapsed)
