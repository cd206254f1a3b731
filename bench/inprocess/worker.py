"""The process of an implementation in Python: `python -m bench.inprocess.worker MODULE WAY`.

W5 is answered with `bytes` per entity besides `ns`; `memory` with the growth of resident and peak memory in a fold.
"""

from __future__ import annotations

import gc
import importlib
import itertools
import os
import resource
import sys
from functools import partial
from pathlib import Path
from typing import Any

from bench.inprocess.peer import Make, Peer
from bench.inprocess.workloads import clock_ns
from bench.worker import Answer, greeting, serve


def main() -> None:
    """Serve one implementation."""
    module, way = sys.argv[1:]

    def start() -> tuple[dict[str, Any], Answer]:
        peer: Peer = importlib.import_module(module).PEERS[way]
        return greeting(peer.name, peer.version, peer.workloads, peer.unsupported), partial(answer, peer)

    serve(start)


def answer(peer: Peer, workload: str, count: int) -> dict[str, float]:
    """Measure one round of a workload."""
    if workload == "W5":
        assert peer.create is not None
        return create(peer.create(), count)
    if workload == "memory":
        return fold(count)
    return {"ns": peer.drives[workload](count) / count}


def create(make: Make, count: int) -> dict[str, float]:
    """Measure the creation of entities that are all kept in memory."""
    make()
    kept: list[object] = [None] * count
    gc.collect()
    before = _resident()
    start = clock_ns()
    for position in range(count):
        kept[position] = make()
    ns = clock_ns() - start
    gc.collect()
    return {"ns": ns / count, "bytes": max(0, _resident() - before) / count}


def fold(count: int) -> dict[str, float]:
    """Measure how much memory grows while Interlock folds events that are not kept."""
    charts = importlib.import_module("bench.inprocess.peers.interlock_charts")
    first = charts.started("W2", charts.ORDER)
    cycle = charts.CYCLES["W2"]
    charts.ORDER.fold(first, cycle * 100)
    gc.collect()
    resident, peak = _resident(), _peak()
    last = charts.ORDER.fold(first, itertools.islice(itertools.cycle(cycle), count))
    growth: dict[str, float] = {"resident": _resident() - resident, "peak": _peak() - peak}
    charts.check("W2", first, last, count)
    return growth


def _resident() -> int:
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
