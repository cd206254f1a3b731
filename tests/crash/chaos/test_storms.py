"""A short storm on each store that processes can share. `make chaos` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.chaos.post import Post
from tests.crash.chaos.storm import Outcome, storm
from tests.support.postgres_server import store_or_skip

pytestmark = pytest.mark.slow


def _stormed(url: str, folder: Path, kills: int, post: Post | None = None) -> Outcome:
    definitions = folder / "definitions"
    definitions.mkdir()
    return storm(url, definitions, kills=kills, seed=1, post=post)


def test_killed_workers_lose_and_repeat_nothing_on_sqlite(tmp_path: Path) -> None:
    outcome = _stormed(f"sqlite:///{tmp_path}/storm.db", tmp_path, 10)

    assert [] == outcome.found()
    assert (10, True) == (outcome.kills, outcome.verdict.entities > 10)


def test_killed_workers_lose_and_double_nothing_on_postgresql(tmp_path: Path) -> None:
    """The same, with workers that share nothing but a server, and a broker that is killed meanwhile."""
    url = store_or_skip()
    if not Post.is_possible():
        pytest.skip("nats-server is not installed here: chaos with a broker is NOT run")
    outcome = _stormed(url, tmp_path, 4, Post())
    told = sum(len(each) for each in outcome.verdict.applied.values())

    assert [] == outcome.found()
    assert (4, True) == (outcome.kills, outcome.counts["deaths of the broker"] > 0)
    assert told + outcome.verdict.emits == outcome.verdict.messages


def test_a_storm_finds_a_worker_that_ignores_keys(tmp_path: Path) -> None:
    definitions = tmp_path / "definitions"
    definitions.mkdir()
    outcome = storm(f"sqlite:///{tmp_path}/storm.db", definitions, kills=1, seed=1, fault="ignores_key")

    assert any("done, but no entry asks for it" in each for each in outcome.verdict.doubles)
