"""Several processes with different charts follow one rollout on PostgreSQL."""

from __future__ import annotations

from tests.support.postgres_server import store_or_skip
from tests.support.rollout_processes import check_one_decision


def test_processes_with_different_charts_follow_one_decision() -> None:
    check_one_decision(store_or_skip())
