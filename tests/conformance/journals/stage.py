"""Plays a scenario on one store: the same commands give the same journals, byte for byte, wherever they are kept.

A file is a list of blocks as in `tests/scenarios`: a command, `----`, and what it gave.

    chart order                                         loads an example
    create order/A-1 {"amount": 5} key=c                KIND/ID, context
    send order/A-1 paid {"id": 1} as=bank:payments      KIND/ID, event, payload; key= expected= as=ID:ROLES sent=MS
    other send order/A-1 ...                            the same by a second process, which does not see our cache
    advance 48h                                         the clock moves
    fire order/A-1                                      the driver's part: the first timer that is due fires
    done order/A-1 order/A-1/3/0 {"ok": true}           ... or a handler answers the effect of this key
    fail order/A-1 order/A-1/3/0 declined               ... or fails for good, with a code
    state order/A-1 at=2                                the entity as it is, or was
    can order/A-1                                       events that are accepted now
    ls order paid                                       entities of a kind in a state
    journal order/A-1                                   every record of the journal, as it is stored

Rule: a scenario runs on every store; nothing here asks which one it is.
"""

from __future__ import annotations

import asyncio
import json
import shlex
from pathlib import Path
from typing import Any

import interlock
from interlock.assemble.charts import BoundChart
from interlock.errors import InterlockError
from interlock.model.duration import parse_duration
from interlock.model.effect import Effect
from interlock.model.encoding.codec import encode
from interlock.model.event import Event
from interlock.model.journal.entry import Receipt
from interlock.ports.store import Append, Appended, EntityQuery
from interlock.runtime.entities.append_builder import build_entry
from interlock.runtime.runtime import Runtime

EXAMPLES = Path(__file__).parents[3] / "examples"
BEGINNING_MS = 1_767_225_600_000
"""The first moment of 2026."""


class StillClock:
    """A clock that stands until it is moved, and whose tokens are counted."""

    def __init__(self) -> None:
        self.time_ms = BEGINNING_MS
        self._tokens = 0

    def now_ms(self) -> int:
        """Where the scenario put it."""
        return self.time_ms

    async def sleep_ms(self, ms: float) -> None:
        """Let others continue."""
        await asyncio.sleep(0)

    def jitter(self) -> float:
        """No chance."""
        return 0.0

    def token(self) -> str:
        """The next of a row of names."""
        self._tokens += 1
        return f"token-{self._tokens}"


def charts_of(commands: list[str], folder: Path = EXAMPLES) -> list[BoundChart]:
    """The charts that a scenario's `chart` commands name, from a folder; guards of code say yes."""
    found = []
    for command in commands:
        word, _, name = command.partition(" ")
        if word == "chart":
            chart = interlock.load(folder / f"{name}.interlock.yaml")
            for guard in chart.chart.guards:
                chart.guard(guard)(lambda *_: True)
            found.append(chart)
    return found


class Stage:
    """One store, played on by two runtimes: ours, and another process's."""

    def __init__(self, runtime: Runtime, clock: StillClock) -> None:
        self.clock = clock
        self.ours = runtime
        self.entities: dict[str, None] = {}
        self._other = Runtime(runtime.store, runtime.charts, clock)

    async def play(self, command: str) -> tuple[str, ...]:
        """What a command gives, as lines."""
        runtime, line = self.ours, command
        if command.startswith("other "):
            runtime, line = self._other, command.removeprefix("other ")
        try:
            return await self._done(runtime, *_words(line))
        except InterlockError as error:
            return (f"{type(error).__name__} {error.code}",)

    async def _done(self, runtime: Runtime, words: list[str], options: dict[str, Any]) -> tuple[str, ...]:
        match words:
            case ["chart", _]:
                return ()
            case ["advance", duration]:
                self.clock.time_ms += parse_duration(duration) or 0
                return ()
            case ["create", entity, *rest]:
                receipt = await runtime.create(entity, _json(rest), **options)
                self.entities[entity] = None
                return receipt_lines(receipt)
            case ["send", entity, event, *rest]:
                return receipt_lines(await runtime.send(entity, event, _json(rest), **options))
            case ["fire", entity]:
                return await self._fired(entity)
            case ["done", entity, key, *rest]:
                return await self._answered(entity, key, _json(rest))
            case ["fail", entity, key, code]:
                effect = await self._effect(entity, key)
                failed = interlock.failed_event(effect, code, done="no", time_ms=self.clock.time_ms)
                return await self._brought(entity, failed, f"_{key}~failed")
            case ["state", entity]:
                snapshot = await runtime.state(entity, **options)
                return (f"v{snapshot.version} {', '.join(snapshot.configuration)} {encode(snapshot.context).decode()}",)
            case ["can", entity]:
                return tuple(sorted({each.event for each in await runtime.can(entity) if each.accepted}))
            case ["ls", kind, state]:
                page = await runtime.list(EntityQuery(kind=kind, state=state))
                return tuple(
                    f"{each.entity} v{each.version} since {each.entered_ms - BEGINNING_MS}" for each in page.rows
                )
            case ["journal", entity]:
                return tuple(line.removesuffix("\n") for line in await self.journal(entity))
            case _:
                raise AssertionError(f"a stage does not know: {words}")

    async def journal(self, entity: str) -> list[str]:
        """The stored lines of a journal."""
        return [each.line.decode() for each in await self.ours.store.read(entity)]

    # What a dispatcher does: bring results and timers in, matched with the snapshot

    async def _fired(self, entity: str) -> tuple[str, ...]:
        snapshot = await self.ours.state(entity)
        ripe = [each for each in snapshot.timers if each.due_ms <= self.clock.time_ms]
        due = sorted(ripe, key=lambda each: each.due_ms)
        if not due:
            return ("nothing is due",)
        return await self._brought(entity, interlock.timer_event(due[0]), f"_timer/{due[0].name}/{due[0].version}")

    async def _answered(self, entity: str, key: str, result: Any) -> tuple[str, ...]:
        event = interlock.done_event(await self._effect(entity, key), result, time_ms=self.clock.time_ms)
        return await self._brought(entity, event, f"_{key}")

    async def _effect(self, entity: str, key: str) -> Effect:
        entries = [each.entry for each in await self.ours.store.read(entity)]
        (effect,) = [each for entry in entries for each in entry.effects if each.key == key]
        return effect

    async def _brought(self, entity: str, event: Event, key: str) -> tuple[str, ...]:
        before = await self.ours.state(entity)
        kernel = await self.ours.revisions.for_reading(before.kind, before.revision)
        step = kernel.step(before, event)
        after = step.snapshot
        if after.version == before.version:
            return (f"{step.outcome} {step.reason} v{after.version}",)
        entry = build_entry(event, before, step, key, None, encode(after))
        states = kernel.active(after)
        tags = tuple(sorted({tag for each in states for tag in each.tags}))
        ids = tuple(each.id for each in states)
        kept = await self.ours.store.append(Append(after.kind, entity, before.version, entry, after, ids, tags))
        if not isinstance(kept, Appended):
            return (f"{type(kept).__name__.lower()} v{kept.version}",)
        return receipt_lines(Receipt(entity, step.outcome, kept.version, step.reason, after, step.effects))


def _words(line: str) -> tuple[list[str], dict[str, Any]]:
    """The words of a command and its options. JSON is in single quotes if it contains a space."""
    words: list[str] = []
    options: dict[str, Any] = {}
    for word in shlex.split(line):
        name, equals, value = word.partition("=")
        match name if equals else "":
            case "key":
                options["key"] = value
            case "expected":
                options["expected"] = int(value)
            case "sent":
                options["sent_ms"] = BEGINNING_MS + int(value)
            case "at":
                options["at"] = int(value) if value.isdigit() else value
            case "as":
                who, _, roles = value.partition(":")
                options["principal"] = {"id": who, "roles": roles.split(",")}
            case _:
                words.append(word)
    return words, options


def _json(words: list[str]) -> Any:
    return json.loads(words[0]) if words else None


def receipt_lines(receipt: Receipt) -> tuple[str, ...]:
    where = "" if receipt.snapshot is None else f" {', '.join(receipt.snapshot.configuration)}"
    reason = f" {receipt.reason}" if receipt.reason else ""
    effects = (f"  {each.type} {each.name or each.payload.get('name', '')} {each.key}" for each in receipt.effects)
    guards = (f"  {each.guard} {json.dumps(each.values)}" for each in receipt.failed_guards)
    return (f"{receipt.outcome}{reason} v{receipt.version}{where}", *effects, *guards)
