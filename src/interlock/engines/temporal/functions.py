"""The names of the guard and assign functions that a chart needs, each with a hash of its source.

A chart is found by the hash of its text. Functions are registered in Python: another function under the same name would
give other steps when Temporal repeats a history. So an entity carries these hashes, and a worker whose functions differ
does not run it.

Rule: the hash is over the syntax tree, so comments, layout and the release of Python do not change it. A function whose
source cannot be read has no hash, and is not compared.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from interlock.errors import UnavailableError
from interlock.kernel.step import Kernel

FUNCTIONS_MAX = 4_096
"""Functions whose hashes are remembered."""


def function_hashes(kernel: Kernel) -> dict[str, str]:
    """Return the hash of each function that a chart needs, as far as it can be computed."""
    chart, actions = kernel.chart, kernel.actions
    needed = {name: actions.guards[name] for name in chart.guards}
    needed |= {name: actions.assigns[name] for name in chart.assigns}
    found = {name: _hash(function) for name, function in sorted(needed.items())}
    return {name: each for name, each in found.items() if each is not None}


def check_functions(kernel: Kernel, recorded: Mapping[str, str]) -> None:
    """Raise UnavailableError for a function that is not the one that an entity was created with."""
    if not recorded:
        return
    own = function_hashes(kernel)
    changed = [name for name, each in recorded.items() if own.get(name, each) != each]
    if changed:
        names = ", ".join(f"`{name}`" for name in changed)
        message = f"the function {names} of `{kernel.chart.kind}` {kernel.chart.revision} was changed under its name"
        hint = "register the new function under a new name, and keep the old one for entities that use it"
        raise UnavailableError(message, code="function.changed", hint=hint)


@lru_cache(FUNCTIONS_MAX)
def _hash(function: Callable[..., Any]) -> str | None:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return None
    return blake2b(ast.dump(tree).encode(), digest_size=8).hexdigest()
