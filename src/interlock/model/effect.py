"""An effect: something to do outside, returned by a step and performed by a driver after the step is stored."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

EffectType = Literal[
    "call", "invoke", "invoke_cancel", "forward", "send", "timer", "timer_cancel", "message", "log", "done"
]

CHART_TYPES = ("chart", "scxml", "http://www.w3.org/TR/scxml", "http://www.w3.org/TR/scxml/")
"""The types of an invoke that create a child entity. A handler performs all others."""


class Effect(Struct, frozen=True, gc=False):
    """One thing to do, with its ordinal in the step and a key that is the same for every retry.

    | type | payload |
    |---|---|
    | `call` | `name` of the handler, `input` |
    | `invoke` | `id`, `src` (may be computed), `type` (`handler` or `chart`), `input`, `state`, `key` |
    | | optional: `autoforward`, `retry`, `timeout_ms`, `restore`; `late`: even a late result is sent back |
    | `invoke_cancel` | `id`, `key` of the invoke effect |
    | `forward` | `id` of the invoke, `event` |
    | `send` | `event`, `data`, `to`, `sendid`; `id`, `key`, `principal` when a deferred event is sent again |
    | `timer` | `name`, `event`, `due_ms`, `version` |
    | `timer_cancel` | `name`, `version` |
    | `message` | `type`, `data` |
    | `log` | `label`, `value` |
    | `done` | `data`: the result for the parent that invoked this entity |
    """

    type: EffectType
    ordinal: int
    key: str
    payload: dict[str, Any]

    @property
    def name(self) -> str | None:
        """The handler of a `call`, the `src` of an `invoke`, else None."""
        name = self.payload.get("name" if self.type == "call" else "src")
        return name if isinstance(name, str) else None

    @property
    def input(self) -> Any:
        """The input of a `call` or an `invoke`."""
        return self.payload.get("input")
