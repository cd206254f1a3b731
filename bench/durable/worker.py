"""One process of a durable engine: `python -m bench.durable.worker MODULE WAY FOLDER [SERVERS]`.

It speaks as `bench.worker` does: it greets with name, version and workloads; `{"workload": "fleet", "count": 1000}` is
answered with a sample. Each question gets an engine that is opened for it, empty, and closed after it; only the steps
between are measured. SERVERS is JSON: addresses of the servers that the run has started, and their processes.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.durable.order import Line, Place, fleet, sequence

QUESTION_SECONDS_MAX = 120.0
"""An engine that needs longer for one question has failed: the run goes on without it."""


def main() -> None:
    """Greet, then answer until the input ends."""
    module, way, folder, servers = sys.argv[1:]
    line: Line = importlib.import_module(module).LINES[way]
    _say({"name": line.name, "version": line.version, "workloads": line.workloads})
    for text in sys.stdin:
        question = json.loads(text)
        try:
            with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as own:
                place = Place(folder=Path(own), **json.loads(servers))
                _say(asyncio.run(_answered(line, place, question["workload"], question["count"])))
        except Exception as error:  # noqa: BLE001  # whatever an engine raises belongs into the table
            _say({"error": f"{type(error).__name__}: {error}"[:300]})


async def _answered(line: Line, place: Place, workload: str, count: int) -> dict[str, Any]:
    engine = line.make(place)
    await engine.start()
    try:
        gc.collect()
        drive = sequence if workload == "seq1" else fleet
        async with asyncio.timeout(QUESTION_SECONDS_MAX):
            return await drive(engine, count, place.server_pids)
    finally:
        await engine.stop()


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
