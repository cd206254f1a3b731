"""A real server is killed under load: every entry that a client got a receipt for over HTTP is stored."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.http.kill import killed
from tests.support.eventually import PATIENCE_SECONDS

CLIENTS = 8
ANSWERS = 400

pytestmark = pytest.mark.slow


def test_a_server_killed_under_load_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """What was acknowledged is at its version, once; what was in doubt is there once, too, by its key."""
    found = killed(tmp_path, clients=CLIENTS, seconds=PATIENCE_SECONDS, answers=ANSWERS, hot=2)

    assert (0, 0, 0, 0) == (found.lost, found.doubled, found.unsent, found.damaged)
    assert 1 <= found.in_doubt <= CLIENTS
    assert found.in_doubt_kept <= found.in_doubt
    assert found.acknowledged > ANSWERS // 2


def test_a_server_that_acknowledges_too_early_is_found_out(tmp_path: Path) -> None:
    found = killed(
        tmp_path,
        clients=CLIENTS,
        seconds=PATIENCE_SECONDS,
        answers=ANSWERS,
        hot=0,
        program="tests.crash.kills.early_serve",
    )

    assert found.lost > 0
