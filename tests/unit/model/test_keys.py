"""Keys of the driver: no two requests share one, every one fits, and none can be a sender's."""

from __future__ import annotations

import pytest

from interlock.model.keys import (
    BULK,
    BUS,
    OWN,
    RECONCILE,
    OwnKey,
    bulk_key,
    bus_key,
    dedupe_key,
    envelope_key,
    expect_key,
    reconcile_key,
)
from interlock.model.limits import KEY_BYTES_MAX


def test_a_message_is_known_by_its_source_and_id() -> None:
    assert OwnKey("_bus/5:/shop#order/77", "/shop#order/77", "/shop#order/77") == bus_key("/shop", "order/77")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a", "b#c"), ("a#b", "c")),
        (("", "1:a#b"), ("1:a", "b")),
        (("x" * 300, "ab"), ("x" * 300 + "#a", "b")),
        (("\0", "#\0"), ("\0#", "\0")),
        (("\ud83d", "1"), ("\ud83e", "1")),
    ],
    ids=["hash sign", "length", "long", "not printable", "surrogates"],
)
def test_no_two_messages_share_a_key(one: tuple[str, str], other: tuple[str, str]) -> None:
    keys = {bus_key(*each).key for each in (one, other)}

    assert 2 == len(keys)
    assert all(len(each.encode()) <= KEY_BYTES_MAX and each.isprintable() and each.startswith(BUS) for each in keys)


@pytest.mark.parametrize("source", ["_x", "/x\n", "x" * 300])
def test_a_former_key_that_was_a_hash_is_one_still(source: str) -> None:
    former = bus_key(source, "1").former

    assert former is not None
    assert (64, True) == (len(former), former.isalnum())


def test_a_job_has_one_key_per_entity() -> None:
    """A long entity by its hash: cut short, two would be one."""
    long = [bulk_key("2026-11-a1", f"order/{'x' * 190}{end}") for end in "ab"]

    assert OwnKey("_bulk/j/order/1", "bulk/j/order/1", "bulk/j/order/1") == bulk_key("j", "order/1")
    assert (2, 2) == (len({each.key for each in long}), len({each.former for each in long}))
    assert all(each.key.startswith(BULK) and len(each.key) <= KEY_BYTES_MAX for each in long)


def test_an_answer_of_a_reconciler_is_for_one_version() -> None:
    """A former key is of no use: whatever was kept under it has raised the version."""
    assert OwnKey(f"{RECONCILE}a/b/7", "reconcile/a/b/7") == reconcile_key("a/b", 7)


def test_a_dedupe_key_is_of_its_event_and_value() -> None:
    """As in earlier releases, unless its name has a character that keys are made with."""
    assert ("_paid:7", None) == dedupe_key("paid", 7) == dedupe_key("paid", "7")
    assert (65, None) == (len(dedupe_key("paid", "x" * 300)[0]), dedupe_key("paid", "x" * 300)[1])


def test_no_two_events_share_a_dedupe_key() -> None:
    """`a:b` with the value `c` is not `a` with `b:c`, and no event is taken for a message of a bus."""
    keys = [dedupe_key("a:b", "c"), dedupe_key("a", "b:c"), dedupe_key("bus/5", "/shop#1")]

    assert 3 == len({key for key, _ in keys})
    assert ["_a:b:c", None, "_bus/5:/shop#1"] == [former for _, former in keys]
    assert not keys[2][0].startswith(BUS)
    assert all(key.startswith(OWN) for key, _ in keys)


def test_an_expected_event_has_one_key_while_the_entity_is_in_the_state() -> None:
    keys = [expect_key("a.b", 7), expect_key("a.b", 8), expect_key("a", 7), expect_key("s" * 300, 7)]

    assert "_expect/a.b/7" == keys[0]
    assert 4 == len(set(keys))
    assert len(keys[3]) == len("_expect/") + 64


def test_the_key_of_an_envelope_is_of_its_sender_too() -> None:
    """The id of a message is only unique for its sender, and any length of it makes a key."""
    shop, bank = envelope_key("shop", "m-1"), envelope_key("bank", "m-1")
    long = envelope_key("shop", "x" * 500)

    assert shop.key != bank.key
    assert "shop/m-1" == shop.name
    assert all(len(each.key) <= KEY_BYTES_MAX and each.key.startswith(OWN) for each in (shop, bank, long))
    assert len(long.name) <= KEY_BYTES_MAX
