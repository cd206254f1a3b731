"""Arguments that a call does not have: the error names the nearest one, which Python's own TypeError does not."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from interlock.errors import UsageError
from interlock.model.diagnostics import suggestion


def check_options(options: Mapping[str, Any], *, call: str, known: Collection[str]) -> None:
    """Raise UsageError for an argument that a call does not have, with the nearest name."""
    for name in options:
        if name not in known:
            hint = suggestion(name, known) or f"its arguments are {', '.join(known)}"
            raise UsageError(f"`{call}` has no argument `{name}`", code="argument.unknown", hint=hint)
