"""One process of a peer in Python: `python -m bench.worker MODULE WAY`, questions and answers as lines of JSON.

It greets with its name, its version and the workloads it does; then `{"workload": "W1", "count": 1001}` is answered
by `{"ns": ...}`, for W5 with `bytes` per entity, for `{"workload": "memory"}` by resident and peak growth. What goes
wrong is an answer too (`error`), so that one peer cannot end the run of the others.
"""

from __future__ import annotations

import gc
import importlib
import itertools
import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

from bench.peer import Make, Peer
from bench.workloads import clock_ns


def main() -> None:
    """Greet, then answer until the input ends."""
    module, way = sys.argv[1:]
    peer: Peer = importlib.import_module(module).PEERS[way]
    _say({"name": peer.name, "version": peer.version, "workloads": peer.workloads})
    for line in sys.stdin:
        question = json.loads(line)
        try:
            _say(answer(peer, question["workload"], question["count"]))
        except Exception as error:  # noqa: BLE001  # whatever a peer raises belongs into the table
            _say({"error": f"{type(error).__name__}: {error}"})


def answer(peer: Peer, workload: str, count: int) -> dict[str, Any]:
    """What one repeat of a workload took."""
    if workload == "W5":
        assert peer.create is not None
        return created(peer.create(), count)
    if workload == "memory":
        return folded(count)
    gc.collect()
    return {"ns": peer.drives[workload](count)}


def created(make: Make, count: int) -> dict[str, Any]:
    """The cost of making and keeping so many entities."""
    make()
    kept: list[object] = [None] * count
    gc.collect()
    before = _resident()
    began = clock_ns()
    for position in range(count):
        kept[position] = make()
    ns = clock_ns() - began
    gc.collect()
    return {"ns": ns, "bytes": max(0, _resident() - before) / count}


def folded(count: int) -> dict[str, Any]:
    """How much memory grows while interlock folds events that are not kept either."""
    charts = importlib.import_module("bench.peers.interlock_charts")
    first = charts.started("W2", charts.ORDER)
    cycle = charts.CYCLES["W2"]
    charts.ORDER.fold(first, cycle * 100)
    gc.collect()
    resident, peak = _resident(), _peak()
    last = charts.ORDER.fold(first, itertools.islice(itertools.cycle(cycle), count))
    grown, risen = _resident() - resident, _peak() - peak
    charts.check("W2", first, last, count)
    return {"resident": grown, "peak": risen}


def _resident() -> int:
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
