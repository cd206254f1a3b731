"""The process of a line in Python: questions and answers as lines of JSON.

It sends its name, version and workloads first. `{"workload": "W1", "count": 1001}` is answered by measures, such as
`{"ns": 85.2}`. An exception is an answer too (`error`), so that one line cannot end the run of the others.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

Answer = Callable[[str, int], Mapping[str, float]]


def serve(start: Callable[[], tuple[Mapping[str, Any], Answer]]) -> None:
    """Call `start` for the greeting and the function that answers, then answer until the input ends."""
    try:
        greeting, answer = start()
    except Exception as error:  # noqa: BLE001  # any missing requirement is reported as the reason
        _send({"error": f"{type(error).__name__}: {error}"[:300]})
        return
    _send(greeting)
    for text in sys.stdin:
        question = json.loads(text)
        gc.collect()
        try:
            _send(answer(question["workload"], question["count"]))
        except Exception as error:  # noqa: BLE001  # the table shows any failure of a line
            _send({"error": f"{type(error).__name__}: {error}"[:300]})


def greeting(
    name: str, version: str, workloads: Iterable[str], unsupported: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the first message of a line."""
    return {"name": name, "version": version, "workloads": list(workloads), "unsupported": dict(unsupported or {})}


def _send(answer: Mapping[str, Any]) -> None:
    print(json.dumps(answer), flush=True)
