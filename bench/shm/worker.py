"""One process of a line: `python -m bench.shm.worker MODULE WAY`.

It speaks as `bench.worker` does: it greets with name, version and workloads, or with the reason why it cannot be
measured here; `{"workload": "pair", "count": 1000}` is answered with a value and what is shown beside it.
"""

from __future__ import annotations

import gc
import importlib
import json
import sys
from typing import Any

from bench.shm.line import Line


def main() -> None:
    """Greet, then answer until the input ends."""
    module, way = sys.argv[1:]
    try:
        line: Line = importlib.import_module(module).LINES[way]()
    except Exception as error:  # noqa: BLE001  # whatever is missing here belongs into the table
        _say({"error": f"{type(error).__name__}: {error}"[:300]})
        return
    _say({"name": line.name, "version": line.version, "workloads": list(line.drives)})
    for text in sys.stdin:
        question = json.loads(text)
        gc.collect()
        try:
            _say(line.drives[question["workload"]](question["count"]))
        except Exception as error:  # noqa: BLE001  # as above
            _say({"error": f"{type(error).__name__}: {error}"[:300]})


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
