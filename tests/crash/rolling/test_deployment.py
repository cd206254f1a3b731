"""A short rolling deployment on SQLite and PostgreSQL, and the faults that it must find."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.rolling.charts import Policy
from tests.crash.rolling.deployment import deploy
from tests.crash.storms import Counts, Sizes
from tests.support.postgres_server import store_or_skip

pytestmark = pytest.mark.slow

SHORT = Sizes(kills=4, clients=64, entities=16)
FAULTY = Sizes(kills=4, clients=24, entities=12)


@pytest.mark.parametrize("policy", ["safe", "pinned"])
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_rolling_deployment_loses_locks_and_confuses_nothing(store: str, policy: Policy, tmp_path: Path) -> None:
    counts = deploy(_url(store, tmp_path), SHORT, policy=policy)

    assert counts.is_clean, counts
    assert counts.kills >= SHORT.kills
    assert counts.facts["restarts"] >= 4
    assert counts.facts["applied"] > 0
    assert (policy == "safe") == (counts.facts["moves"] > 0)


def _found(tmp_path: Path, *, fault: str = "", code_first: bool = True) -> Counts:
    return deploy(_url("sqlite", tmp_path), FAULTY, fault=fault, code_first=code_first)


def _url(store: str, folder: Path) -> str:
    return f"sqlite:///{folder}/parcels.db" if store == "sqlite" else store_or_skip()


def test_a_definition_that_is_saved_after_the_entry_is_found(tmp_path: Path) -> None:
    assert _found(tmp_path, fault="late definition").wrong["locked"] > 0


def test_moves_that_go_back_are_found(tmp_path: Path) -> None:
    assert _found(tmp_path, fault="no sequence").wrong["wrong revision"] > 0


def test_a_process_that_steps_everything_on_its_own_chart_is_found(tmp_path: Path) -> None:
    assert _found(tmp_path, fault="own chart").wrong["wrong revision"] > 0


def test_a_process_that_forgets_keys_is_found(tmp_path: Path) -> None:
    assert _found(tmp_path, fault="new key").wrong["lost"] > 0


def test_a_chart_that_is_deployed_before_its_code_is_found_and_loses_nothing(tmp_path: Path) -> None:
    counts = _found(tmp_path, code_first=False)

    assert counts.wrong["locked"] > 0
    assert (0, 0) == (counts.wrong["lost"], counts.wrong["wrong revision"])
