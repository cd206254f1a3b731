"""What an entry leaves to do, as a value."""

from __future__ import annotations

from interlock.model.journal.work import Work, WorkDelta, WorkId


def test_places_of_an_entity_are_ordered_as_they_were_made() -> None:
    """By version, then by ordinal, within a lane."""
    places = [WorkId("outbox", 10, 0), WorkId("outbox", 2, 1), WorkId("outbox", 2, 0)]

    assert [WorkId("outbox", 2, 0), WorkId("outbox", 2, 1), WorkId("outbox", 10, 0)] == sorted(places)


def test_the_answer_to_work_has_a_key_of_the_drivers_own() -> None:
    assert ("_effect/2/1", "_timer/2/1") == (WorkId("effect", 2, 1).result_key, WorkId("timer", 2, 1).result_key)


def test_a_step_leaves_nothing_unless_it_says_so() -> None:
    work = Work(WorkId("effect", 1, 0), "charge", {}, 0)

    assert ((), (), ()) == (WorkDelta().born, WorkDelta().ended, WorkDelta().cancelled)
    assert WorkDelta((work,)) != WorkDelta()


def test_a_saga_step_is_marked_by_late() -> None:
    place = WorkId("effect", 1, 0)

    assert Work(place, "charge", {"late": {"compensate": "refund"}}, 0).is_saga_step
    assert not Work(place, "charge", {"late": None}, 0).is_saga_step
    assert not Work(place, "charge", None, 0).is_saga_step
