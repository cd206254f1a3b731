"""The process of a line of shared memory: `python -m bench.shm.worker MODULE WAY`."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from bench.shm.line import Line
from bench.worker import Answer, greeting, serve


def main() -> None:
    """Serve one line."""
    module, way = sys.argv[1:]

    def start() -> tuple[dict[str, Any], Answer]:
        line: Line = importlib.import_module(module).LINES[way]()
        return (
            greeting(line.name, line.version, line.drives),
            lambda workload, count: line.drives[workload](count),
        )

    serve(start)


if __name__ == "__main__":
    main()
