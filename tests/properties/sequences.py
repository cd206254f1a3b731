"""Random events for an entity: declared and foreign names, firings of timers, results of invokes, late ones of each.

What may come next depends on where the entity is, so a sequence is drawn while it runs.
"""

from __future__ import annotations

from random import Random
from typing import Any

from interlock.model.event import Event
from interlock.model.snapshot import Invocation, Parent, Snapshot, Timer
from tests.properties.contents import INSIDE, OUTSIDE, TIMED

PARENT = Parent(entity="boss/1", invokeid="v0", key="boss/1/3/0")


class Sender:
    """Draws the next event, and remembers timers and invokes that it has seen, so that it can also be late."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.count = 0
        self.time_ms = 1_000
        self.timers: list[Timer] = []
        self.invokes: list[Invocation] = []

    def start(self) -> dict[str, Any]:
        """Return the arguments of `start` except the context."""
        return {"entity": "random/1", "time_ms": self.time_ms, "parent": PARENT if self.random.random() < 0.4 else None}

    def event(self, snapshot: Snapshot) -> Event:
        """The next event for an entity that is here."""
        self.count += 1
        self.time_ms += self.random.choice((0, 1, 10, 500))
        self.timers += [each for each in snapshot.timers if each not in self.timers]
        self.invokes += [each for each in snapshot.invokes if each not in self.invokes]
        chance = self.random.random()
        if chance < 0.2 and snapshot.timers:
            return self.firing(self.random.choice(snapshot.timers))
        if chance < 0.35 and snapshot.invokes:
            return self.result(self.random.choice(snapshot.invokes))
        if chance < 0.39 and self.timers:
            return self.firing(self.random.choice(self.timers))
        if chance < 0.43 and self.invokes:
            return self.result(self.random.choice(self.invokes))
        if chance < 0.45 and self.timers:
            return self.moved(self.random.choice(self.timers))
        if chance < 0.455 and snapshot.parent is not None:
            return Event("_cancel", time_ms=self.time_ms, type="platform")
        return self.plain()

    def plain(self) -> Event:
        """An event from outside: mostly one that the chart names somewhere."""
        random = self.random
        name = random.choice((*OUTSIDE, *OUTSIDE, *TIMED, *INSIDE, "a.x.y", "ax", "unheard.of"))
        data = random.choice((None, {"v": 1}, {"v": 2}, {"v": 5}))
        key = random.choice((None, f"k{self.count}"))
        return Event(name, data=data, id=f"e{self.count}", key=key, time_ms=self.time_ms)

    def firing(self, timer: Timer) -> Event:
        """A timer comes due."""
        self.time_ms = max(self.time_ms, timer.due_ms)
        source = f"timer/{timer.name}/{timer.version}"
        return Event(timer.event, data=timer.data, sendid=timer.id, time_ms=timer.due_ms, source=source)

    def moved(self, timer: Timer) -> Event:
        """A timer is put off after downtime."""
        data = {"name": timer.name, "version": timer.version, "due_ms": timer.due_ms + 100}
        if self.random.random() < 0.5:
            data["since_ms"] = self.time_ms
        return Event("_timer.moved", data=data, time_ms=self.time_ms, type="platform")

    def result(self, invocation: Invocation) -> Event:
        """An invoke answers: with its result, with an error, or with a message while it continues."""
        name = self.random.choice((f"done.invoke.{invocation.id}", f"error.invoke.{invocation.id}", "a", "b"))
        data: Any = {"v": self.random.choice((1, 3))}
        if name.startswith("error."):
            data = {"code": "gone", "message": "no", "attempts": 1, "done": "no"}
        forged = self.random.random() < 0.1  # a child names its message like a result
        return Event(
            name,
            data=data,
            type="platform" if "." in name and not forged else "external",
            invokeid=invocation.id,
            source=f"invoke/{invocation.key}",
            last=self.random.random() < 0.1,
            time_ms=self.time_ms,
        )
