"""Entity ids."""

from __future__ import annotations

from interlock.model.entity_id import kind_of, split_entity


def test_the_kind_ends_at_the_first_slash() -> None:
    assert split_entity("order/eu/A-1") == ("order", "eu/A-1")
    assert kind_of("order/eu/A-1") == "order"


def test_a_kind_alone_has_an_empty_id() -> None:
    assert split_entity("order") == ("order", "")
    assert kind_of("order") == "order"
