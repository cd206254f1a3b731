"""Runs a definition on both sides and returns the first difference.

Ours: reader, compiler, kernel, in dialect `xstate`. Theirs: `driver.mjs` on the pinned xstate package, all definitions
in one process. A sequence is compared up to its first error or its end: there XState's actor is dead.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import which
from typing import Any

from interlock.compiler.build import compile_document
from interlock.definition.xstate.events import from_xstate
from interlock.definition.xstate.format import read_xstate
from interlock.errors import RejectedError
from interlock.kernel.step import Kernel
from interlock.model.charts.chart import Chart, Dialect
from interlock.model.document.document import Document
from interlock.model.event import Event
from interlock.model.snapshot import Snapshot
from interlock.model.step import Step

HERE = Path(__file__).parent
PACKAGE = HERE.parent / "node" / "node_modules" / "xstate" / "package.json"
NODE = which("node")
Json = dict[str, Any]


def missing() -> str | None:
    """What has to be installed for the cross-check, or None."""
    if NODE is None:
        return "node is not installed; the cross-check with XState needs Node.js 20 or newer"
    if not PACKAGE.is_file():
        return "xstate is not installed; run `make node` (npm install in tests/conformance/node)"
    wanted = json.loads((HERE.parent / "node" / "package.json").read_text())["dependencies"]["xstate"]
    found = json.loads(PACKAGE.read_text())["version"]
    return None if wanted == found else f"xstate {found} is installed, {wanted} is wanted; run `make node`"


def _fails(*_: Any) -> bool:
    raise ValueError("this guard fails")


GUARDS = {"yes": lambda *_: True, "no": lambda *_: False, "fails": _fails}


@dataclass(frozen=True)
class Seen:
    """What one event did: the actions that ran, the active atomic states, the context, and whether it continues."""

    trace: tuple[str, ...]
    configuration: tuple[str, ...]
    context: Json
    status: str


def document_of(definition: Json) -> Document:
    """The document that our reader makes; every finding above a warning is a failure of the test."""
    reading = read_xstate(json.dumps(definition), source="definition.json")
    errors = [str(each) for each in reading.diagnostics if each.severity == "error"]
    assert [] == errors
    assert reading.document is not None
    return reading.document


def chart_of(document: Document, **flags: str) -> Chart:
    """The compiled chart, with flags of its dialect changed."""
    compilation = compile_document(document)
    assert compilation.chart is not None, [str(each) for each in compilation.diagnostics if each.severity == "error"]
    dialect: Dialect = replace(compilation.chart.dialect, **flags)  # type: ignore[arg-type]  # the caller gives flags of it
    return replace(compilation.chart, dialect=dialect)


class Ours:
    """One entity of ours, given events and time."""

    def __init__(self, chart: Chart) -> None:
        self.chart = chart
        self.kernel = Kernel(chart, guards={name: GUARDS[name] for name in chart.guards})
        self.time_ms = 0
        self.snapshot: Snapshot | None = None

    def run(self, events: Iterable[Json]) -> list[Seen]:
        """Start, then every event in turn, up to the first error or the end."""
        try:
            seen = [self._seen([self._kept(self.kernel.start(entity="e", time_ms=0))])]
        except RejectedError:
            return [Seen((), (), {}, "error")]
        for event in events:
            if seen[-1].status != "active":
                break
            seen.append(self._seen(self._advance(event["advance"]) if "advance" in event else [self._send(event)]))
        return seen

    def _kept(self, step: Step) -> Step:
        self.snapshot = step.snapshot
        return step

    def _send(self, event: Json) -> Step:
        data = {key: each for key, each in event.items() if key != "type"} or None
        name = from_xstate(event["type"], {}) or event["type"]
        assert self.snapshot is not None
        return self._kept(self.kernel.step(self.snapshot, Event(name, data, time_ms=self.time_ms)))

    def _advance(self, ms: int) -> list[Step]:
        """Let time pass; timers that come due fire in order, those set meanwhile too."""
        end, steps = self.time_ms + ms, []
        while self.snapshot is not None and self.snapshot.ended is None:
            due = [each for each in self.snapshot.timers if each.due_ms <= end]
            if not due:
                break
            timer = min(due, key=lambda each: (each.due_ms, each.version, each.ordinal))
            self.time_ms = max(self.time_ms, timer.due_ms)
            source = f"timer/{timer.name}/{timer.version}"
            event = Event(timer.event, timer.data, sendid=timer.id, time_ms=self.time_ms, source=source)
            steps.append(self._kept(self.kernel.step(self.snapshot, event)))
            if steps[-1].reason == "failed":
                break
        self.time_ms = end
        return steps

    def _seen(self, steps: list[Step]) -> Seen:
        snapshot = self.snapshot
        assert snapshot is not None
        trace = tuple(str(each.name) for step in steps for each in step.effects if each.type == "call")
        failed = any(step.reason == "failed" for step in steps)
        status = "error" if failed else {None: "active", "failed": "error"}.get(snapshot.ended, snapshot.ended)
        assert status is not None
        return Seen(trace, tuple(self._path(each) for each in snapshot.configuration), dict(snapshot.context), status)

    def _path(self, name: str) -> str:
        """The keys from XState's root down."""
        state = self.chart.state(name)
        keys = []
        while state is not None and state.index > self.chart.completion_root:
            keys.append(state.key)
            state = self.chart.states[state.parent]
        return ".".join(reversed(keys))


def ours(definition: Json, events: Iterable[Json], **flags: str) -> list[Seen]:
    """What our kernel does with a definition."""
    return Ours(chart_of(document_of(definition), **flags)).run(events)


def _asked(cases: list[tuple[Json, list[Json]]]) -> list[Json]:
    assert NODE is not None
    lines = "".join(json.dumps({"definition": definition, "events": events}) + "\n" for definition, events in cases)
    command = [NODE, str(HERE / "driver.mjs")]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True, timeout=600)
    return [json.loads(line) for line in done.stdout.splitlines()]


def refusal(definition: Json) -> str | None:
    """Why XState does not take a definition at all; None when it does."""
    found: str | None = _asked([(definition, [])])[0].get("refused")
    return found


def theirs(cases: list[tuple[Json, list[Json]]]) -> list[list[Seen]]:
    """What XState does with each definition, all of them in one process."""
    found = []
    for answer in _asked(cases):
        assert "refused" not in answer, answer["refused"]
        found.append(
            [
                Seen(tuple(each["trace"]), tuple(each["configuration"]), each["context"], each["status"])
                for each in answer["steps"]
            ]
        )
    return found


def difference(mine: list[Seen], other: list[Seen], events: list[Json]) -> str | None:
    """The first step at which the two sides differ, as text; None when they agree up to the end or the first error."""
    names = ["start", *(json.dumps(each) for each in events)]
    for position, (left, right) in enumerate(zip(mine, other, strict=False)):
        if "error" in (left.status, right.status):
            agree = left.status == right.status
        elif right.status == "active":
            agree = left == right
        else:
            agree = (left.trace, left.context, left.status) == (right.trace, right.context, right.status)
        if not agree:
            before = names[: position + 1]
            return f"after {' '.join(before)}\n  ours   {left}\n  theirs {right}"
        if right.status != "active":
            return None
    return None if len(mine) == len(other) else f"ours took {len(mine)} steps, theirs {len(other)}"
