"""Answers to four concurrent processes are linearizable: some order of the calls explains them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.crash.disks.full_disk import ADDRESSES
from tests.crash.kills.histories import RENAMING, Call, checked, linearizable
from tests.crash.simulated.interleave import Answer, Event, Operation
from tests.crash.simulated.interleave import linearizable as linearizable_by_trying
from tests.support.postgres_server import store_or_skip

HISTORIES, CALLS = 20, 100

OVERLAPS = (
    ((0, 2), (4, 6), (1, 3), (5, 7)),
    ((0, 3), (5, 7), (1, 2), (4, 6)),
    ((0, 1), (2, 7), (3, 4), (5, 6)),
    ((0, 1), (2, 3), (4, 5), (6, 7)),
)
"""When four calls start and end: the first two are of one process, the others of another."""


@pytest.mark.slow
@pytest.mark.parametrize("store", [*ADDRESSES, "postgres"])
def test_histories_of_real_processes_are_linearizable(store: str, tmp_path: Path) -> None:
    """Sends with and without an expected version, repeated keys and reads: every history has an order."""
    url = store_or_skip() if store == "postgres" else ADDRESSES[store].format(tmp_path)
    result = checked(url, histories=HISTORIES, calls=CALLS)

    assert ([], HISTORIES * CALLS) == (result.bad, result.calls)
    assert set() == {"applied", "duplicate", "conflict", "read"} - set(result.answers)


@pytest.mark.slow
def test_a_store_that_compares_and_renames_is_detected(tmp_path: Path) -> None:
    result = checked(f"{RENAMING}{tmp_path / 'store'}", histories=HISTORIES, calls=CALLS, stop_at_first=True)

    assert 1 == len(result.bad)


def send(began: int, ended: int, key: str, answer: str, version: int = 0, expected: int | None = None) -> Call:
    """Return a send, as a process records it."""
    return Call(began, ended, key, expected, answer, version)


def test_time_decides_between_reads() -> None:
    kept = send(0, 10, "a", "applied", 2)

    assert not linearizable([[kept], [Call(11, 12, None, None, "read", 1)]])
    assert linearizable([[kept], [Call(9, 12, None, None, "read", 1)]])
    assert linearizable([[kept], [Call(9, 12, None, None, "read", 2)]])


def test_one_version_is_given_once() -> None:
    assert not linearizable([[send(0, 10, "a", "applied", 2)], [send(0, 10, "b", "applied", 2)]])
    assert not linearizable([[send(0, 10, "a", "applied", 2)], [send(0, 10, "a", "applied", 3)]])
    assert linearizable([[send(0, 10, "a", "applied", 2)], [send(0, 10, "a", "duplicate", 2)]])


def test_a_duplicate_needs_a_first_one() -> None:
    """`duplicate` of a key that was never kept, or before it was kept, has no explanation."""
    assert not linearizable([[send(0, 10, "a", "duplicate", 2)]])
    assert not linearizable([[send(0, 5, "a", "duplicate", 2)], [send(6, 10, "a", "applied", 2)]])
    assert linearizable([[Call(0, 10, "a", None, "duplicate", 2, again=True)]])


def test_a_conflict_needs_another_version() -> None:
    """An expected version that is there all the time cannot be in conflict; a wrong one cannot be applied."""
    assert not linearizable([[send(0, 10, "a", "conflict", expected=1)]])
    assert linearizable([[send(0, 10, "a", "conflict", expected=1)], [send(0, 10, "b", "applied", 2)]])
    assert not linearizable([[send(0, 10, "a", "applied", 2, expected=3)]])


def test_both_checkers_agree_on_small_histories() -> None:
    """The checker that walks positions says what trying every order says, on histories good and bad."""
    chance = random.Random(5)
    verdicts = [_verdicts(chance) for _ in range(20_000)]

    assert [] == [pair for pair in verdicts if pair[0] != pair[1]]
    assert all(50 < sum(pair[0] is verdict for pair in verdicts) for verdict in (True, False))


def _verdicts(chance: random.Random) -> tuple[bool, bool]:
    """Check a random history of two processes with both checkers."""
    processes: list[list[Call]] = [[], []]
    events: list[Event] = [Event(0, "", ())] * 8
    for number, (began, ended) in enumerate(chance.choice(OVERLAPS)):
        process, key = number // 2, chance.choice(("a", "b", "c"))
        answer, version = chance.choice(("applied", "applied", "duplicate", "conflict")), chance.choice((2, 2, 3, 3, 4))
        expected = version - 1 if answer == "applied" else chance.choice((1, 2, 3))
        version = 0 if answer == "conflict" else version
        processes[process].append(send(began, ended, key, answer, version, expected))
        events[began] = Event(process, "asked", (key, expected))
        events[ended] = Event(process, "given", (answer, version))
    return linearizable(processes), linearizable_by_trying(tuple(events), _explains)


def _explains(order: list[tuple[Operation, Answer]]) -> bool:
    """Check by trying every order, with a list of keys as the model."""
    keys = ["born"]
    for (key, expected), given in order:
        if key in keys:
            answer = ("duplicate", keys.index(key) + 1)
        elif expected != len(keys):
            answer = ("conflict", 0)
        else:
            keys.append(key)
            answer = ("applied", len(keys))
        if answer != given:
            return False
    return True
