"""Make text from foreign code storable: valid Unicode, without NUL, of limited length.

A handler, a bus client or a service may put anything into an exception. Its message becomes part of an event or of a
row, so it must encode as UTF-8, fit into the entry, and be accepted by every store.
"""

from __future__ import annotations

from collections.abc import Callable

from interlock.model.limits import FAILURE_CODE_LENGTH_MAX, FAILURE_TEXT_LENGTH_MAX

CUT = "…"
"""The last character of a truncated text."""


def storable_text(text: str, length_max: int = FAILURE_TEXT_LENGTH_MAX) -> str:
    """Return the text with lone surrogates and NUL escaped, truncated to `length_max` characters."""
    # The methods of `str` itself: `__str__` may return an instance of a subclass that overrides them.
    head = str.__getitem__(text, slice(length_max + 1))
    valid = str.encode(head, errors="backslashreplace").decode().replace("\0", "\\x00")
    return valid if len(valid) <= length_max else valid[: length_max - 1] + CUT


def describe(value: object, how: Callable[[object], str] = str) -> str:
    """Return `str` or `repr` of a value as storable text; a placeholder if that raises."""
    try:
        return storable_text(how(value))
    except Exception:  # noqa: BLE001 - `__str__` is code of the caller and may raise anything
        return storable_text(f"{type(value).__name__}, which cannot be shown")


def storable_code(code: object, otherwise: str) -> str:
    """Return an error code as storable text; `otherwise` if it is empty or not a string."""
    return storable_text(code, FAILURE_CODE_LENGTH_MAX) if isinstance(code, str) and code else otherwise
