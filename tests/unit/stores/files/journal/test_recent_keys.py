"""The recent keys of an entity: which are remembered, and what `state.json` contains."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.stores.files.journal import recent_keys
from interlock.stores.files.journal.recent_keys import KEYS_MAX, NO_TIMES, PIECE_MAX, TIMES_APART, RecentKeys


def test_the_oldest_keys_are_forgotten() -> None:
    """`state.json` must stay small enough for one read."""
    keys = RecentKeys()
    for number in range(KEYS_MAX + 5):
        keys.remember(f"k{number}", number, number)

    assert (KEYS_MAX, "k5", None, 5) == (len(keys), next(iter(keys)), keys.get("k4"), keys.get("k5"))


def test_the_encoding_is_bounded_and_decodes_to_the_same_keys() -> None:
    """The oldest are dropped in pieces: there may be some more on disk, which decoding drops."""
    keys = RecentKeys()
    for number in range(3 * KEYS_MAX):
        keys.remember(f"k{number}", number, number)
        if number % 700 == 0:
            keys.encode()
    encoded = keys.encode()

    assert len(msgspec.json.decode(encoded)) < KEYS_MAX + PIECE_MAX
    assert list(keys) == list(RecentKeys.decode(encoded))


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table so small that every case occurs."""
    monkeypatch.setattr(recent_keys, "KEYS_MAX", 7)
    monkeypatch.setattr(recent_keys, "PIECE_MAX", 3)


Act = Callable[[RecentKeys], RecentKeys]


def read_back(keys: RecentKeys) -> RecentKeys:
    """The keys that the next process reads."""
    return RecentKeys.decode(keys.encode(), keys.times())


def encode_only(keys: RecentKeys) -> RecentKeys:
    """Encode, as a snapshot does."""
    keys.encode()
    return keys


@pytest.mark.usefixtures("few")
@given(acts=st.lists(st.sampled_from([0, 0, 0, 1, 4, encode_only, read_back]), max_size=60))
def test_the_newest_keys_are_remembered_in_order(acts: list[Act | int]) -> None:
    """Snapshots and restarts at any moment change nothing; a forgotten key may come again."""
    keys, expected = RecentKeys(), list[tuple[str, int]]()
    for number, act in enumerate(acts):
        if isinstance(act, int):
            key = f"k{number - act}"
            keys.remember(key, number, number)
            expected = [*(pair for pair in expected if pair[0] != key), (key, number)][-7:]
        else:
            keys = act(keys)

        assert expected == [(key, keys.get(key)) for key in keys]
        assert expected == msgspec.json.decode(RecentKeys(expected).encode(), type=list[tuple[str, int]])
    assert expected == [(key, keys.get(key)) for key in read_back(keys)]


# Up to when they are forgotten


def remembered(keys: RecentKeys, versions: range) -> RecentKeys:
    """The keys of these entries, ten milliseconds apart."""
    for version in versions:
        keys.remember(f"k{version}", version, version * 10)
    return keys


def test_there_is_no_forgotten_time_while_all_keys_are_remembered() -> None:
    """An event may have any age."""
    assert 0 == remembered(RecentKeys(), range(1, KEYS_MAX + 1)).forgotten_ms


def test_the_time_up_to_which_keys_are_forgotten_is_known() -> None:
    """Too late by less than `TIMES_APART` entries, never too early."""
    for version in (1, TIMES_APART - 1, TIMES_APART, TIMES_APART + 1, 5 * TIMES_APART + 3):
        keys = remembered(RecentKeys(), range(1, KEYS_MAX + version + 1))

        assert version * 10 <= keys.forgotten_ms < (version + TIMES_APART) * 10
    assert TIMES_APART * 10 == remembered(RecentKeys(), range(1, KEYS_MAX + TIMES_APART + 1)).forgotten_ms


def test_the_times_are_few() -> None:
    """Every snapshot contains them; the snapshot of a short journal has no such field."""
    keys = remembered(RecentKeys(), range(1, 3 * KEYS_MAX))

    assert NO_TIMES is remembered(RecentKeys(), range(1, TIMES_APART)).times()
    assert KEYS_MAX // TIMES_APART - 1 <= len(keys.times().entries) <= KEYS_MAX // TIMES_APART + 1


def test_keys_of_an_earlier_release_have_no_known_times() -> None:
    """Nothing is refused because of them; later keys have times."""
    before = RecentKeys([(f"k{version}", version) for version in range(1, KEYS_MAX + 1)]).encode()
    keys = RecentKeys.decode(before)
    remembered(keys, range(KEYS_MAX + 1, 2 * KEYS_MAX + 1))
    unknown = keys.forgotten_ms
    remembered(keys, range(2 * KEYS_MAX + 1, 2 * KEYS_MAX + 2))

    assert (0, True) == (unknown, keys.forgotten_ms > KEYS_MAX * 10)


def test_a_short_journal_of_an_earlier_release_has_known_times() -> None:
    """Its first keys are forgotten together with one that has a time."""
    keys = RecentKeys.decode(RecentKeys([("k1", 1), ("k2", 2)]).encode())
    remembered(keys, range(3, KEYS_MAX + 2))

    assert TIMES_APART * 10 == keys.forgotten_ms


@pytest.mark.usefixtures("few")
@given(apart=st.integers(1, 9), acts=st.lists(st.sampled_from([0, 0, 0, 0, encode_only, read_back]), max_size=60))
def test_the_forgotten_time_is_the_same_after_any_restart(apart: int, acts: list[Act | int]) -> None:
    """Never too early, nor much too late."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recent_keys, "TIMES_APART", apart)
        keys, version = RecentKeys(), 0
        for act in acts:
            if isinstance(act, int):
                version += 1
                keys.remember(f"k{version}", version, version * 10)
            else:
                keys = act(keys)
            newest = version - 7

            assert (newest * 10 <= keys.forgotten_ms < (newest + apart) * 10) if newest > 0 else keys.forgotten_ms == 0
