"""Several processes with different charts follow one rollout on SQLite and on files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.rollout_processes import check_one_decision


@pytest.mark.parametrize("scheme", ["sqlite", "file"])
def test_processes_with_different_charts_follow_one_decision(tmp_path: Path, scheme: str) -> None:
    check_one_decision(f"{scheme}:///{str(tmp_path)[1:] if scheme == 'file' else tmp_path}/orders")
