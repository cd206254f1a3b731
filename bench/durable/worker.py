"""The process of a durable engine: `python -m bench.durable.worker MODULE WAY FOLDER SERVERS`.

Each question gets an engine that is opened for it, empty, and closed after it; only the steps are measured.
SERVERS is JSON: the addresses of the servers that the run has started, and their processes.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.durable.order import DRIVES, Line, Place
from bench.worker import Answer, greeting, serve

QUESTION_SECONDS_MAX = 120.0
"""An engine that needs longer for one question has failed: the run continues without it."""


def main() -> None:
    """Serve one engine."""
    module, way, folder, servers = sys.argv[1:]

    def start() -> tuple[dict[str, Any], Answer]:
        line: Line = importlib.import_module(module).LINES[way]
        return greeting(line.name, line.version, line.workloads), answer_with(line, folder, json.loads(servers))

    serve(start)


def answer_with(line: Line, folder: str, servers: dict[str, Any]) -> Answer:
    """Return the function that answers questions with this line."""

    def answer(workload: str, count: int) -> dict[str, float]:
        with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as own:
            return asyncio.run(_drive(line, Place(folder=Path(own), **servers), workload, count))

    return answer


async def _drive(line: Line, place: Place, workload: str, count: int) -> dict[str, float]:
    engine = line.make(place)
    await engine.start()
    try:
        async with asyncio.timeout(QUESTION_SECONDS_MAX):
            return await DRIVES[workload](engine, count, place.server_pids)
    finally:
        await engine.stop()


if __name__ == "__main__":
    main()
