"""The outputs of W7 to W10 in libraries whose actions are callbacks: each callback adds a description to a list."""

from __future__ import annotations

from functools import partial
from typing import Any

from bench.inprocess.peers.hand_written_effects import PAID, SHIPPED, SOURCES, TIMERS
from bench.inprocess.workloads import ENTITY, Given, Output


class Outputs:
    """Collects the outputs of a step. `given` is the event, `version` counts the steps, `pending` is the timer."""

    def __init__(self) -> None:
        self.n = 0
        self.version = 1
        self.given = Given("", None, None, 0)
        self.outputs: list[Output] = []
        self.pending: tuple[str, int] = ("after.24h.open", 1)
        self.stock: str | None = None
        self.charge: str | None = None

    def take(self) -> list[Output]:
        """Return the outputs of the step, and start the next one."""
        found, self.outputs = self.outputs, []
        self.version += 1
        return found

    def add(self, type: str, payload: dict[str, Any]) -> None:
        """Add an output with the next ordinal."""
        ordinal = len(self.outputs)
        self.outputs.append((type, ordinal, f"{ENTITY}/{self.version + 1}/{ordinal}", payload))

    def callback(self, action: str | None, state: str) -> list[Any]:
        """Return the callbacks of a state or transition: one, or none without an action."""
        return [] if action is None else [partial(getattr(self, action), state)]

    def count(self, state: str) -> None:
        """Run the assign of the workloads."""
        self.n += 1

    def keep(self, state: str) -> None:
        """Assign the result of an invoke."""
        data = self.given.data
        setattr(self, state, data["charge"] if isinstance(data, dict) else data)

    def set_timer(self, state: str) -> None:
        """Set the timer of a state."""
        name, delay_ms = TIMERS[state]
        version, due_ms = self.version + 1, self.given.time_ms + delay_ms
        self.add("timer", {"name": name, "event": name, "due_ms": due_ms, "version": version})
        self.pending = (name, version)

    def cancel_timer(self, state: str) -> None:
        """Cancel the timer that is set."""
        name, version = self.pending
        self.add("timer_cancel", {"name": name, "version": version})

    def invoke(self, state: str) -> None:
        """Start the work of a state."""
        self.add("invoke", {"id": state, "src": SOURCES[state], "input": {"n": self.n}, "timeout_ms": 5_000})

    def compensate(self, state: str) -> None:
        """Start the compensation of the saga."""
        self.add("invoke", {"id": state, "src": "stock.release", "input": {"compensates": self.stock}})

    def notify(self, state: str) -> None:
        """Call a handler, send an event to another entity, and publish a message."""
        _, call, event, to, message = PAID if state == "paid" else SHIPPED
        self.add("call", {"name": call, "input": {"amount": 5}})
        self.add("send", {"event": event, "to": to, "data": {"n": self.n}})
        self.add("message", {"type": message, "data": {"amount": 5}})
