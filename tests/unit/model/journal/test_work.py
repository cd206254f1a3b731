"""What an entry leaves to do, as a value."""

from __future__ import annotations

from interlock.model.journal.work import Left, Place, Work


def test_places_of_an_entity_are_ordered_as_they_were_made() -> None:
    """By version, then by ordinal, within a lane."""
    places = [Place("outbox", 10, 0), Place("outbox", 2, 1), Place("outbox", 2, 0)]

    assert [Place("outbox", 2, 0), Place("outbox", 2, 1), Place("outbox", 10, 0)] == sorted(places)


def test_the_answer_to_work_has_a_key_of_the_drivers_own() -> None:
    """Lanes have keys of their own: an effect and a timer may have one place in a step."""
    assert ("_effect/2/1", "_timer/2/1") == (Place("effect", 2, 1).answer_key, Place("timer", 2, 1).answer_key)


def test_a_step_leaves_nothing_unless_it_says_so() -> None:
    """No work, nothing ended, nothing called off."""
    work = Work(Place("effect", 1, 0), "charge", {}, 0)

    assert ((), (), ()) == (Left().born, Left().ended, Left().cancelled)
    assert Left((work,)) != Left()


def test_a_step_of_a_saga_is_known_by_what_a_late_answer_means() -> None:
    """Others may be dropped when nobody waits for them any more."""
    place = Place("effect", 1, 0)

    assert Work(place, "charge", {"late": {"compensate": "refund"}}, 0).is_saga_step
    assert not Work(place, "charge", {"late": None}, 0).is_saga_step
    assert not Work(place, "charge", None, 0).is_saga_step
