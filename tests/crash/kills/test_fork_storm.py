"""Processes that fork with an open store: nothing that was acknowledged is lost, and no child hangs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.crash.kills.fork_storm import FAULTS, STORES, Forks, fork_storm, is_found, unexpected
from tests.support.postgres_server import store_or_skip

ROUNDS = int(os.environ.get("INTERLOCK_FORKS", "4"))


@pytest.mark.slow
@pytest.mark.parametrize("store", STORES)
def test_a_fork_in_the_middle_of_sends_loses_and_doubles_nothing(tmp_path: Path, store: str) -> None:
    urls = {"sqlite": f"sqlite:///{tmp_path}/forks.db", "files": f"file://{tmp_path}/forks"}
    outcome = fork_storm(urls.get(store) or store_or_skip(), tmp_path, rounds=ROUNDS, seed=7)

    assert ([], []) == (outcome.found(), unexpected(store, outcome))
    assert (ROUNDS, True) == (outcome.rounds, outcome.kills > ROUNDS // 4)
    assert (store == "sqlite", store != "sqlite") == (outcome.refusals["store.forked"] > 0, outcome.child_sends > 0)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_child_that_opens_the_database_of_its_parent_is_found_out(tmp_path: Path, fault: str) -> None:
    """The storm is not blind: without the refusal entries are lost, or the file is damaged."""
    assert is_found(fault, tmp_path / "faulty")


def test_what_children_must_not_be_told_is_found() -> None:
    refused, sent = Forks(), Forks()
    refused.refusals["store.forked"] = 3
    sent.child_sends = 2

    assert [0, 1, 1] == [len(unexpected(*each)) for each in (("sqlite", refused), ("files", refused), ("sqlite", sent))]
