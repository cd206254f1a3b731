"""Facts about a store as a whole, by name, such as its restore epoch.

Rule 1: a fact changes by compare and swap, and is durable when the call returns.
Rule 2: facts are few and small. A fact is read when a runtime opens, never in a step.
"""

from __future__ import annotations

import re
from typing import Protocol

from interlock.errors import UsageError
from interlock.model.limits import FACT_BYTES_MAX

_NAME = re.compile(r"[a-z][a-z0-9._-]{0,99}")


class Facts(Protocol):
    """The facts of a store."""

    async def read_fact(self, name: str) -> str | None:
        """Return the value of a fact; None when it was never written."""

    async def write_fact(self, name: str, value: str, *, expected: str | None) -> bool:
        """Write a fact if it still has the expected value (None: it does not exist); return whether it was written."""


def check_fact(name: str, value: str = "") -> None:
    """Raise UsageError for a name that is not in lower case ASCII, and for a value that is too long."""
    if not _NAME.fullmatch(name):
        hint = "expected a name such as epoch"
        raise UsageError(f"invalid name of a fact {name!r:.120}", code="fact.name", hint=hint)
    if len(value.encode()) > FACT_BYTES_MAX:
        raise UsageError(f"the fact `{name}` has more than {FACT_BYTES_MAX:,} bytes", code="fact.size")
