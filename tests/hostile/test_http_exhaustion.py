"""Attackers try to exhaust the HTTP port of `interlock serve`, while a normal client still gets answers.

Only what does not depend on the speed of the machine is asserted. `python -m tests.hostile.http_exhaustion` runs
longer, and also prints latencies.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.http_exhaustion import NormalClient, attacked, serving

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not sys.platform.startswith("linux"), reason="NO /proc: memory and descriptors are not measured"
    ),
]

GROWTH_BYTES_MAX = 100_000_000
LOG_BYTES_MAX = 20_000
HALF_OPEN = 1_100
MEGABYTES_64 = 64_000_000


@pytest.mark.parametrize(
    ("attack", "bounds", "descriptors"),
    [
        pytest.param("heads", {"processes": 2, "bytes": MEGABYTES_64}, None, id="heads without end"),
        pytest.param("line", {"processes": 2, "bytes": MEGABYTES_64}, None, id="a line without end"),
        pytest.param("trailers", {"processes": 2, "bytes": MEGABYTES_64}, None, id="fields behind a body, without end"),
        pytest.param("pipeline", {"processes": 2, "bytes": MEGABYTES_64}, None, id="requests ahead of their responses"),
        pytest.param("half_open", {"processes": 2, "connections": HALF_OPEN // 2}, None, id="half-open requests"),
        pytest.param("idle", {"processes": 2, "connections": 300}, 256, id="more connections than descriptors"),
    ],
)
def test_a_stranger_exhausts_nothing_and_others_are_answered(
    tmp_path: Path, attack: str, bounds: dict[str, Any], descriptors: int | None
) -> None:
    """Memory and log stay small, every connection of the attacker is closed, every request of the client answered."""
    with serving(tmp_path, descriptors=descriptors) as server:
        with NormalClient(server.port) as client:
            before = server.memory("VmRSS")
            done = attacked(server, attack, **bounds)
        grown = server.memory("VmHWM") - before
        log = server.log.read_text(encoding="utf-8")
        is_running = server.process.poll() is None

    assert ([], True) == (client.failures, is_running)
    assert 0 == client.reconnects
    assert grown < GROWTH_BYTES_MAX
    assert len(log) < LOG_BYTES_MAX, log[:2_000]
    if attack in ("half_open", "idle"):
        assert sum(each["opened"] for each in done) == sum(each["closed"] for each in done) > 0
    else:
        # The last connection of each process may have reached the bound of bytes before it was closed.
        assert all(each["opened"] > 1 and each["closed"] >= each["opened"] - 1 for each in done)
