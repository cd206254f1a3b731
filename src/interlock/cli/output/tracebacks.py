"""The part of a traceback that shows the user's own code: without the frames of this package above it."""

from __future__ import annotations

import traceback
from pathlib import Path
from types import TracebackType

_PACKAGE = str(Path(__file__).resolve().parents[2])
_IMPORT = ("<frozen importlib", str(Path(traceback.__file__).parent / "importlib"))

LINES_MAX = 60
"""Lines of one traceback: a deep recursion must not fill the screen."""


def user_traceback(error: BaseException) -> list[str]:
    """Return the lines of an error of the user's code, from the first frame that is not ours."""
    found = traceback.TracebackException(type(error), error, _first_foreign(error.__traceback__), compact=True)
    lines = "".join(found.format()).splitlines()
    left_out = len(lines) - LINES_MAX
    if left_out <= 0:
        return lines
    half = LINES_MAX // 2
    return [*lines[:half], f"  ... {left_out} lines ...", *lines[-half:]]


def _first_foreign(found: TracebackType | None) -> TracebackType | None:
    while found is not None and found.tb_frame.f_code.co_filename.startswith((_PACKAGE, *_IMPORT)):
        found = found.tb_next
    return found
