"""Work in memory, in SQLite and on a server: who is next, who holds it, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.model.journal.work import BUS_WORK, Lane, Work, WorkDelta, WorkId
from interlock.ports.work import Claim, Settlement, WorkQuery
from interlock.stores.work_table import WorkTable
from tests.conformance.stores.work_tables import TABLES, PostgresTable, SqliteTable, Table, opened

CHARGE = WorkId("effect", 2, 0)


def effect(version: int = 2, *, name: str = "charge", due_ms: int | None = 0) -> Work:
    """Work for a handler."""
    return Work(WorkId("effect", version, 0), name, {"name": name}, due_ms)


def sent(version: int, ordinal: int = 0, *, lane: Lane = "outbox") -> Work:
    """Something in an outbox, or a message."""
    return Work(WorkId(lane, version, ordinal), "entity/door/1" if lane == "outbox" else BUS_WORK, {}, 0)


Tabled = Callable[..., Table]


@pytest.fixture(params=TABLES)
def table(request: pytest.FixtureRequest) -> Iterator[Tabled]:
    """Makes a table with the work of one entity."""
    with opened(request.param) as found:

        def made(*works: Work, entity: str = "order/1") -> Table:
            found.keep(entity, WorkDelta(born=works))
            return found

        yield made


def taken(of: Table, lane: str = "effect", *, now_ms: int = 0, limit: int = 10, owner: str = "w1") -> list[Claim]:
    """What is claimed now, for ten milliseconds."""
    names = ("charge",) if lane == "effect" else None
    return list(of.claim(lane, names, owner=owner, now_ms=now_ms, until_ms=now_ms + 10, limit=limit))  # type: ignore[arg-type]  # lanes by name


def test_work_is_taken_up_once(table: Tabled) -> None:
    work = table(effect())

    assert [1] == [each.attempt for each in taken(work)]
    assert [] == taken(work, now_ms=9)


def test_a_lapsed_lease_is_taken_up_again_without_a_failure(table: Tabled) -> None:
    work = table(effect())
    taken(work)

    assert [(2, 0)] == [(each.attempt, each.failures) for each in taken(work, now_ms=10, owner="w2")]


def test_work_waits_for_its_time_and_for_its_handler(table: Tabled) -> None:
    work = table(effect(due_ms=50), effect(3, name="ship"))

    assert ([], 50) == (taken(work, now_ms=49), work.soonest("effect", ("charge",)))
    assert ["charge"] == [each.work.name for each in taken(work, now_ms=50)]
    assert ["ship"] == [
        each.work.name for each in work.claim("effect", ("ship",), owner="w", now_ms=0, until_ms=9, limit=9)
    ]


def test_the_oldest_goes_first_and_no_more_than_asked_for(table: Tabled) -> None:
    work = table(effect(2, due_ms=5), effect(3, due_ms=3), effect(4, due_ms=4))

    assert [3, 4] == [each.work.place.version for each in taken(work, now_ms=9, limit=2)]
    assert [2] == [each.work.place.version for each in taken(work, now_ms=9, limit=2)]


def test_a_handler_with_much_to_do_does_not_starve_the_others(table: Tabled) -> None:
    work = table(effect(2, due_ms=2), effect(3, due_ms=3), effect(4, name="ship", due_ms=1), effect(5, due_ms=4))
    claims = work.claim("effect", ("charge", "ship"), owner="w1", now_ms=9, until_ms=19, limit=2)

    assert ["ship", "charge"] == [each.work.name for each in claims]


def test_what_an_entry_ends_is_gone(table: Tabled) -> None:
    work = table(effect())
    (claim,) = taken(work)
    work.keep("order/1", WorkDelta(ended=(CHARGE,)))

    assert ((None,), None) == (work.renew((claim,), until_ms=99), work.soonest("effect", None))
    assert (False,) == work.settle((Settlement(claim, "again", 7),), now_ms=1)


def test_a_cancelled_invoke_that_nobody_holds_is_gone(table: Tabled) -> None:
    work = table(effect())
    work.keep("order/1", WorkDelta(cancelled=(CHARGE,)))

    assert [] == taken(work)


def test_a_cancelled_invoke_in_hand_is_told_at_the_next_renewal(table: Tabled) -> None:
    work = table(effect())
    (claim,) = taken(work)
    work.keep("order/1", WorkDelta(cancelled=(CHARGE,)))
    (renewed,) = work.renew((claim,), until_ms=99)

    assert renewed is not None
    assert renewed.cancelled
    assert (True,) == work.settle((Settlement(renewed, "again", 7),), now_ms=1)
    assert (None, ()) == (work.soonest("effect", None), work.works(WorkQuery()).rows)


def test_a_cancelled_invoke_that_waits_to_be_tried_again_is_due_at_once(table: Tabled) -> None:
    work = table(effect())
    (claim,) = taken(work)
    work.settle((Settlement(claim, "again", 5_000),), now_ms=1)
    work.keep("order/1", WorkDelta(cancelled=(CHARGE,)))

    assert [(2, 1, True)] == [(each.attempt, each.failures, each.cancelled) for each in taken(work, now_ms=1)]


@pytest.mark.parametrize("lapsed", [False, True])
def test_a_step_of_a_saga_that_was_left_stays_until_it_is_answered(table: Tabled, lapsed: bool) -> None:
    work = table(Work(CHARGE, "charge", {"id": "pay", "late": True}, 0))
    (claim,) = taken(work)
    work.keep("order/1", WorkDelta(cancelled=(CHARGE,)))
    work.settle((Settlement(claim, "again", 7, lapsed=lapsed),), now_ms=1)

    assert [(2, True)] == [(each.attempt, each.cancelled) for each in taken(work, now_ms=7)]


def test_work_that_was_not_begun_was_not_attempted(table: Tabled) -> None:
    work = table(effect())
    (claim,) = taken(work)
    work.settle((Settlement(claim, "again", 7, lapsed=True, begun=False),), now_ms=1)

    assert [(1, 0)] == [(each.attempt, each.failures) for each in taken(work, now_ms=7)]


def test_work_that_has_failed_since_is_no_longer_held(table: Tabled) -> None:
    work = table(effect())
    (claim,) = taken(work)
    work.settle((Settlement(claim, "again", 70),), now_ms=1)

    assert ((None,), (False,)) == (
        work.renew((claim,), until_ms=99),
        work.settle((Settlement(claim, "wait"),), now_ms=1),
    )
    assert 70 == work.soonest("effect", ("charge",))


def test_cancelling_what_is_not_there_changes_nothing(table: Tabled) -> None:
    work = table()
    work.keep("order/1", WorkDelta(ended=(CHARGE,), cancelled=(CHARGE,)))

    assert () == work.works(WorkQuery()).rows


def test_a_failure_counts_and_waits(table: Tabled) -> None:
    work = table(effect())
    (claim,) = taken(work)
    work.settle((Settlement(claim, "again", 70, error={"code": "gone"}),), now_ms=1)
    (row,) = work.works(WorkQuery()).rows

    assert (70, 1, {"code": "gone"}, None) == (row.next_ms, row.failures, row.error, row.owner)
    assert ([], [2]) == (taken(work, now_ms=69), [each.attempt for each in taken(work, now_ms=70)])


def test_what_was_put_back_without_a_failure_counts_none(table: Tabled) -> None:
    work = table(effect())
    (claim,) = taken(work)
    work.settle((Settlement(claim, "again", 5, lapsed=True),), now_ms=1)

    assert [(2, 0)] == [(each.attempt, each.failures) for each in taken(work, now_ms=5)]


def test_an_old_attempt_can_succeed_but_not_fail(table: Tabled) -> None:
    work = table(effect())
    (old,) = taken(work)
    (new,) = taken(work, now_ms=10)

    assert (False, False) == work.settle((Settlement(old, "again", 5), Settlement(old, "dead")), now_ms=11)
    assert (True, False) == work.settle((Settlement(old, "done"), Settlement(new, "done")), now_ms=12)


def test_renewing_holds_on(table: Tabled) -> None:
    work = table(effect())
    (claim,) = taken(work)
    work.renew((claim,), until_ms=50)

    assert ([], [2]) == (taken(work, now_ms=49), [each.attempt for each in taken(work, now_ms=50)])


def test_work_may_wait_for_another_to_go_on_with_it(table: Tabled) -> None:
    work = table(effect())
    (claim,) = taken(work)
    work.settle((Settlement(claim, "wait"),), now_ms=1)

    assert ([], 1) == (taken(work, now_ms=10**9), len(work.works(WorkQuery()).rows))
    assert (True,) == work.settle((Settlement(claim, "again", 20),), now_ms=2)
    assert [(2, 1)] == [(each.attempt, each.failures) for each in taken(work, now_ms=20)]


def test_an_entity_sends_in_order(table: Tabled) -> None:
    work = table(sent(3), sent(2, 1), sent(2))
    seen = []
    for _ in range(3):
        (claim,) = taken(work, "outbox")
        seen.append((claim.work.place.version, claim.work.place.ordinal))
        work.settle((Settlement(claim, "done"),), now_ms=0)

    assert ([(2, 0), (2, 1), (3, 0)], []) == (seen, taken(work, "outbox"))


def test_messages_go_in_order_and_hold_back_no_sends(table: Tabled) -> None:
    work = table(sent(2, lane="message"), sent(2, 1), sent(3, lane="message"), sent(3, 1))
    (message,) = taken(work, "message")
    (first,) = taken(work, "outbox")
    work.settle((Settlement(message, "again", 99), Settlement(first, "done")), now_ms=0)
    (second,) = taken(work, "outbox")

    assert (2, 3) == (message.work.place.version, second.work.place.version)
    assert [] == taken(work, "message")
    assert [2] == [each.work.place.version for each in taken(work, "message", now_ms=99)]


def test_entities_do_not_wait_for_each_other(table: Tabled) -> None:
    work = table(sent(2), sent(3))
    work.keep("order/2", WorkDelta(born=(sent(2),)))
    first, other = taken(work, "outbox")
    work.settle((Settlement(first, "again", 99),), now_ms=0)
    work.settle((Settlement(other, "done"),), now_ms=0)

    assert [] == taken(work, "outbox")
    assert [2] == [each.work.place.version for each in taken(work, "outbox", now_ms=99)]


def test_a_dead_letter_lets_the_next_go(table: Tabled) -> None:
    work = table(sent(2), sent(3))
    (claim,) = taken(work, "outbox")
    work.settle((Settlement(claim, "dead", error="refused"),), now_ms=7)
    (row,) = work.works(WorkQuery(dead=True)).rows

    assert (7, "refused") == (row.dead_ms, row.error)
    assert [3] == [each.work.place.version for each in taken(work, "outbox")]


@pytest.mark.parametrize("lane", ["effect", "outbox", "message"])
def test_a_revived_letter_is_tried_from_the_beginning(table: Tabled, lane: Lane) -> None:
    work = table(effect() if lane == "effect" else sent(2, lane=lane))
    (claim,) = taken(work, lane)
    work.settle((Settlement(claim, "dead"),), now_ms=7)

    assert work.revive("order/1", claim.work.place, now_ms=8)
    assert [(1, 0)] == [(each.attempt, each.failures) for each in taken(work, lane, now_ms=8)]
    assert not work.revive("order/1", claim.work.place, now_ms=9)


def test_a_dropped_letter_is_gone(table: Tabled) -> None:
    work = table(effect())

    assert (True, False) == (work.drop("order/1", CHARGE), work.drop("order/1", CHARGE))


def test_work_is_listed_page_by_page(table: Tabled) -> None:
    work = table(effect(), effect(3), sent(2))
    first = work.works(WorkQuery(limit=2))
    second = work.works(WorkQuery(limit=2, after=first.after))

    assert [CHARGE, WorkId("effect", 3, 0)] == [each.work.place for each in first.rows]
    assert ([WorkId("outbox", 2, 0)], None) == ([each.work.place for each in second.rows], second.after)
    assert 1 == len(work.works(WorkQuery(lane="outbox")).rows)
    assert 0 == len(work.works(WorkQuery(entity="order/2")).rows)
    assert 1 == len(work.works(WorkQuery(place=CHARGE)).rows)


def test_the_newest_attempt_is_the_fence(table: Tabled) -> None:
    work = table(effect())
    taken(work)

    assert (1, None) == (work.fence("order/1", CHARGE), work.fence("order/1", WorkId("effect", 9, 9)))


LANES = st.sampled_from(get_args(Lane))
ENTITIES = st.sampled_from(("order/1", "order/2"))
NAMES = st.sampled_from(("charge", "ship"))
PLACES = st.builds(WorkId, LANES, st.integers(1, 3), st.integers(0, 1))
TIMES = st.integers(0, 60)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.data())
def test_memory_and_sqlite_do_the_same(data: st.DataObject) -> None:
    """Whatever is kept, claimed, renewed, settled, revived and dropped, in whatever order."""
    hold_against_each_other(data, WorkTable(), SqliteTable())


@pytest.mark.parametrize("name", ["postgres-one", "postgres-group"])
def test_memory_and_a_server_do_the_same(name: str) -> None:
    with opened(name) as table:
        assert isinstance(table, PostgresTable)

        @settings(max_examples=30, deadline=None)
        @given(st.data())
        def held(data: st.DataObject) -> None:
            table.clear()
            hold_against_each_other(data, WorkTable(), table)

        held()


def hold_against_each_other(data: st.DataObject, *tables: Table) -> None:
    """Do the same to both, and compare every answer and what stands there after it."""
    claims: list[Claim] = []
    born: set[tuple[str, WorkId]] = set()
    now = 0
    for _ in range(data.draw(st.integers(1, 25))):
        now += data.draw(st.integers(0, 5))
        act = _drawn(data, claims, born)
        answers = [_played(each, act, now) for each in tables]

        assert answers[0] == answers[1]
        if isinstance(answers[0], tuple):
            claims += [each for each in answers[0] if isinstance(each, Claim)]
        assert tables[0].works(WorkQuery(limit=99)) == tables[1].works(WorkQuery(limit=99))
        for lane in get_args(Lane):
            assert tables[0].soonest(lane, None) == tables[1].soonest(lane, None)


def _drawn(data: st.DataObject, claims: list[Claim], born: set[tuple[str, WorkId]]) -> tuple[object, ...]:
    """The next thing to do; work is born once only, as entries are written once."""
    what = data.draw(st.sampled_from(("keep", "keep", "claim", "claim", "renew", "settle", "settle", "revive", "drop")))
    entity, place = data.draw(ENTITIES), data.draw(PLACES)
    if what == "keep":
        ended, off = data.draw(st.lists(PLACES, max_size=1)), data.draw(st.lists(PLACES, max_size=1))
        works = []
        if (entity, place) not in born:
            born.add((entity, place))
            works.append(Work(place, data.draw(NAMES), {}, data.draw(TIMES)))
        return (what, entity, WorkDelta(tuple(works), tuple(ended), tuple(off)))
    if what == "claim":
        names = (data.draw(NAMES),) if place.lane == "effect" else None
        return (what, place.lane, names)
    if what in ("renew", "settle") and claims:
        claim = data.draw(st.sampled_from(claims))
        verdict = data.draw(st.sampled_from(("done", "again", "wait", "dead")))
        return (what, claim, verdict, data.draw(TIMES), data.draw(st.booleans()))
    return ("revive" if what == "revive" else "drop", entity, place)


def _played(table: Table, act: tuple[Any, ...], now: int) -> object:
    match act:
        case ("keep", entity, left):
            table.keep(entity, left)
            return None
        case ("claim", lane, names):
            # Rows that are due at the same time may come in any order.
            found = table.claim(lane, names, owner="w", now_ms=now, until_ms=now + 7, limit=99)
            return tuple(sorted(found, key=lambda each: (each.entity, each.work.place)))
        case ("renew", claim, _, until, _):
            return table.renew((claim,), until_ms=now + until)
        case ("settle", claim, verdict, next_ms, lapsed):
            return table.settle((Settlement(claim, verdict, next_ms, lapsed=lapsed),), now_ms=now)
        case ("revive", entity, place):
            return table.revive(entity, place, now_ms=now)
        case ("drop", entity, place):
            return table.drop(entity, place)
        case _:
            raise AssertionError(act)
