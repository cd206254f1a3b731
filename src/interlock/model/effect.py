"""An effect: something to do outside, returned by a step and done by a driver once the step is kept."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

EffectType = Literal[
    "call", "invoke", "invoke_cancel", "forward", "send", "timer", "timer_cancel", "message", "log", "done"
]

CHART_TYPES = ("chart", "scxml", "http://www.w3.org/TR/scxml", "http://www.w3.org/TR/scxml/")
"""The types of an invoke that begin a child entity; every other one is performed by a handler."""


class Effect(Struct, frozen=True, gc=False):
    """One thing to do, with its place in the step and a key that stays the same under every retry.

    | type | payload |
    |---|---|
    | `call` | `name` of the handler, `input` |
    | `invoke` | `id`, `src` (a name, or what an expression gave), `type` (`handler` or `chart`), `input`, `state`,
    `key` |
    | | ... and where said: `autoforward`, `retry`, `timeout_ms`, `restore`; `late`: a result is told even when too
    late |
    | `invoke_cancel` | `id`, `key` of the invoke effect |
    | `forward` | `id` of the invoke, `event` |
    | `send` | `event`, `data`, `to`, `sendid`; `id`, `key`, `principal` when a deferred event comes back |
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
        """The handler's name of a `call`, the `src` of an `invoke`, else None."""
        name = self.payload.get("name" if self.type == "call" else "src")
        return name if isinstance(name, str) else None

    @property
    def input(self) -> Any:
        """The handler's input of a `call` or an `invoke`."""
        return self.payload.get("input")
