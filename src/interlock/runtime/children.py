"""Which chart, which id and which context a child entity has: the same for every driver.

Rule 1: a `src` names an inline chart of the invoking one, or a kind that the driver has.
Rule 2: the id comes from the invoke and the number of restarts, so that beginning the child again finds it begun.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from interlock.errors import UsageError
from interlock.kernel.step import Kernel


def child_entity(kind: str, invokeid: str, key: str, *, restarts: int = 0) -> str:
    """The id of the child that the invoke with this effect key begins."""
    seed = key if restarts == 0 else f"{key}~{restarts}"
    return f"{kind}/{invokeid}-{blake2b(seed.encode(), digest_size=8).hexdigest()}"


def child_context(kernel: Kernel, given: Any) -> dict[str, Any]:
    """The context a child begins with. SCXML passes over what the child does not declare (W3C 245)."""
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise UsageError("the input of a chart must be a mapping of its fields", code="invoke.input")
    if kernel.chart.dialect.name != "scxml":
        return given
    fields = {each.name for each in kernel.chart.states[0].context}
    return {name: value for name, value in given.items() if name in fields}


def inline_kernels(kernel: Kernel) -> dict[str, Kernel]:
    """The charts written in place in another one, by the names that its invokes have for them."""
    actions = kernel.actions
    return {
        name: Kernel(chart, guards=actions.guards, assigns=actions.assigns, language=actions.language)
        for name, chart in kernel.chart.inline
    }
