"""A thousand tickets are held and resumed under clients and kills, and the faults that the storm must find."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest

from interlock.runtime.entities.holds import KnownHolds
from tests.crash.holding.holding import Holding
from tests.crash.storms import Sizes, storm
from tests.support.postgres_server import store_or_skip

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("store", "entities"), [("sqlite", 1_000), ("postgres", 100)])
def test_a_hold_under_kills_loses_no_timer_and_no_event(store: str, entities: int, tmp_path: Path) -> None:
    url = store_or_skip() if store == "postgres" else f"sqlite:///{tmp_path}/tickets.db"
    counts = storm(Holding(entities), url, Sizes(clients=4, kills=3))

    assert counts.is_clean, counts
    assert entities == counts.done["rung"]


def test_clients_and_timers_that_ignore_a_hold_are_found(tmp_path: Path) -> None:
    """They do not ask whether an entity is held, neither the clients nor the process."""
    with patch.object(KnownHolds, "error_for", lambda *_: None):
        counts = storm(Holding(40), f"sqlite:///{tmp_path}/tickets.db", Sizes(clients=4, kills=1), fault="deaf")

    assert counts.wrong["intruded"] > 0
