"""Keys of an entity: which are remembered, and what `state.json` has of them."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.stores import files_keys
from interlock.stores.files_keys import KEYS_MAX, PIECE_MAX, Keys


def test_the_oldest_keys_are_forgotten() -> None:
    """`state.json` must stay readable in one go."""
    keys = Keys()
    for number in range(KEYS_MAX + 5):
        keys.remember(f"k{number}", number)

    assert (KEYS_MAX, "k5", None, 5) == (len(keys), next(iter(keys)), keys.get("k4"), keys.get("k5"))


def test_the_encoding_is_bounded_and_read_back_as_it_was() -> None:
    """The oldest go in pieces: there may be some more on disk, which a reader drops."""
    keys = Keys()
    for number in range(3 * KEYS_MAX):
        keys.remember(f"k{number}", number)
        if number % 700 == 0:
            keys.encoded()
    encoded = keys.encoded()

    assert len(msgspec.json.decode(encoded)) < KEYS_MAX + PIECE_MAX
    assert list(keys) == list(Keys.decoded(encoded))


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table so small that every case is met."""
    monkeypatch.setattr(files_keys, "KEYS_MAX", 7)
    monkeypatch.setattr(files_keys, "PIECE_MAX", 3)


Act = Callable[[Keys], Keys]


def read_back(keys: Keys) -> Keys:
    """What whoever opens the journal next begins with."""
    return Keys.decoded(keys.encoded())


def encode_only(keys: Keys) -> Keys:
    """A snapshot on the way."""
    keys.encoded()
    return keys


@pytest.mark.usefixtures("few")
@given(acts=st.lists(st.sampled_from([0, 0, 0, 1, 4, encode_only, read_back]), max_size=60))
def test_whatever_comes_between_the_newest_are_remembered_in_order(acts: list[Act | int]) -> None:
    """Snapshots and readings, at any moment, change nothing of what is known; a key may come again, so much later."""
    keys, expected = Keys(), list[tuple[str, int]]()
    for number, act in enumerate(acts):
        if isinstance(act, int):
            key = f"k{number - act}"
            keys.remember(key, number)
            expected = [*(pair for pair in expected if pair[0] != key), (key, number)][-7:]
        else:
            keys = act(keys)

        assert expected == [(key, keys.get(key)) for key in keys]
        assert expected == msgspec.json.decode(Keys(expected).encoded(), type=list[tuple[str, int]])
    assert expected == [(key, keys.get(key)) for key in read_back(keys)]
