"""The pages suite: a disk without room, a store that is given, and a wrong answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.measure import Measurement, PeerUnavailableError
from bench.pages import suite


def test_a_disk_without_room_leaves_a_size_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is written."""
    monkeypatch.setattr(suite, "BYTES_EACH", 2**60)
    measurement = Measurement(names=[], effort=suite.QUICK)
    suite.run(measurement)

    assert ({}, ["2,000 entities"]) == (measurement.figures, list(measurement.left_out))
    assert "GB are free" in measurement.left_out["2,000 entities"]


@pytest.mark.slow
def test_a_given_store_is_measured_and_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A question that the console does not know fails."""
    path = tmp_path / "fleet.db"
    suite.fill(path, 300)
    monkeypatch.setenv("BENCH_FLEET", str(path))
    measurement = Measurement(names=[], effort=suite.Effort(sizes=(300,), rounds=2))
    suite.run(measurement)

    assert ({}, {2}) == (
        measurement.left_out,
        {len(each.samples["300"]) for each in measurement.figures["pages"].values()},
    )
    assert path.exists()
    monkeypatch.setattr(suite, "questions", lambda _: {"nothing": "/api/v1/nothing"})
    with pytest.raises(PeerUnavailableError, match="/api/v1/nothing answered 404"):
        suite.ask(path, 300, tmp_path, 1)
