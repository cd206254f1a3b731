"""What an entry leaves to do, as a value."""

from __future__ import annotations

import pytest

from interlock.model.journal.work import Work, WorkDelta, WorkId, parse_work_key


def test_places_of_an_entity_are_ordered_as_they_were_made() -> None:
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


def test_a_key_of_work_names_entity_version_and_ordinal() -> None:
    key = WorkId("effect", 7, 2).key("order/eu/A-1")

    assert key == "order/eu/A-1/7/2"
    assert parse_work_key(key) == ("order/eu/A-1", 7, 2)


@pytest.mark.parametrize("text", ["", "order", "order/7/2", "order/A/7", "order/A/x/2", "order/A/7/-1", "order/A/7/²"])
def test_other_texts_are_not_keys_of_work(text: str) -> None:
    with pytest.raises(ValueError, match=r"kind/id/version/ordinal|unpack"):
        parse_work_key(text)


def test_a_number_that_no_version_reaches_is_not_part_of_a_key() -> None:
    with pytest.raises(ValueError, match="kind/id/version/ordinal"):
        parse_work_key(f"order/A/{10**18}/0")
