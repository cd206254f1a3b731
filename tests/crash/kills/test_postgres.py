"""Real processes, a real server and kill -9: acknowledged entries are stored once, and none is stored in part."""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest

from tests.crash.kills.postgres_storm import postgres_storm
from tests.crash.kills.store_writer import TASKS
from tests.crash.kills.storm import WRITERS
from tests.support.postgres_server import private_server

KILLS = int(os.environ.get("INTERLOCK_KILLS", "15"))


@pytest.mark.slow
def test_killed_writers_and_servers_lose_and_double_nothing(record_property: Callable[[str, object], None]) -> None:
    """Writers on the same entities are killed and continue with the keys in doubt; so is the server, twice."""
    seed = random.randrange(2**32)
    record_property("seed", seed)
    with private_server():  # skips where there is none
        pass
    outcome = postgres_storm(KILLS, seed=seed)
    record_property("acknowledged", len(outcome.kept))
    record_property("kept_unheard", outcome.unheard)

    assert [] == outcome.found(), seed
    assert KILLS == outcome.kills
    assert len(outcome.kept) >= KILLS
    assert 0 < outcome.inside <= KILLS
    assert len(outcome.asked) - len(outcome.kept) <= WRITERS * TASKS


@pytest.mark.slow
def test_a_store_that_does_not_wait_for_the_flush_is_detected() -> None:
    """The storm is not blind: entries that were acknowledged before they were durable are missed."""
    with private_server():  # skips where there is none
        pass
    outcome = postgres_storm(6, fault="unsynced")

    assert outcome.lost
