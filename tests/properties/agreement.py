"""Runs one random sequence through the kernel and the reference interpreter, and reports where they differ.

Everything that a driver can see is compared: the encoded snapshot, every effect with its key, ordinal and payload,
outcome, reason, the transitions chosen, and the codes of faults. The other promises of a step are checked on the way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from interlock.compiler.build import compile_document
from interlock.errors import RejectedError
from interlock.kernel.step import Kernel
from interlock.model.charts.chart import Chart
from interlock.model.document.document import Document
from interlock.model.encoding.codec import decode_snapshot, encode, to_builtins
from interlock.model.event import Event
from interlock.model.snapshot import Snapshot
from interlock.model.step import Step
from tests.properties.charts import document
from tests.properties.contents import ASSIGNS, GUARDS
from tests.properties.reference.interpreter import Interpreter
from tests.properties.sequences import Sender

STEPS_MAX = 10
SEQUENCES_PER_CHART = 5


class Disagreement(AssertionError):
    """Two things that must be equal are not; carries what is needed to look at it."""

    def __init__(self, what: str, expected: Any, actual: Any, *, seed: object, done: list[Event]) -> None:
        trail = " ".join(each.name for each in done)
        super().__init__(f"seed {seed}: {what} after [{trail}]\n  expected {expected}\n  actual   {actual}")
        self.what = what
        self.done = done


def seen(step: Step | RejectedError) -> dict[str, Any]:
    """What a driver can see of a step, as plain JSON."""
    if isinstance(step, RejectedError):
        return {"refused": step.code}
    return {
        "outcome": step.outcome,
        "reason": step.reason,
        "transitions": list(step.transitions),
        "faults": [each.code for each in step.faults],
        "effects": {effect.key.replace("/", "."): to_builtins(effect) for effect in step.effects},
        "snapshot": to_builtins(step.snapshot),
    }


def difference(expected: dict[str, Any], actual: dict[str, Any]) -> str | None:
    """The path of the first value in which two mappings differ."""
    for name in {**expected, **actual}:
        left, right = expected.get(name), actual.get(name)
        if encode(left) != encode(right):
            inner = difference(left, right) if isinstance(left, dict) and isinstance(right, dict) else None
            return f"{name}/{inner}" if inner else str(name)
    return None


def compiled(made: Document) -> Chart:
    """The chart of a document that must be valid."""
    compilation = compile_document(made)
    errors = [str(each) for each in compilation.diagnostics if each.severity == "error"]

    assert compilation.chart is not None, errors
    return compilation.chart


class Comparison:
    """One chart under both interpreters, the kernel with and without its fast tier."""

    def __init__(
        self, made: Document, random: Random, *, seed: object = None, statistics: Counter[str] | None = None
    ) -> None:
        chart = compiled(made)
        self.random = random
        self.seed = seed
        self.reference = Interpreter(chart, guards=GUARDS, assigns=ASSIGNS)
        self.kernel = Kernel(chart, guards=GUARDS, assigns=ASSIGNS)
        self.slow = Kernel(chart, guards=GUARDS, assigns=ASSIGNS, fast=False)
        self.statistics = Counter() if statistics is None else statistics
        self.started: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
        self.done: list[Event] = []

    def run(self) -> None:
        """Start an entity, send it events, and check every promise on the way. Raises Disagreement."""
        sender = Sender(self.random)
        arguments = sender.start()
        context = self.random.choice(({}, {}, {"n": 3}))
        self.started, self.done = (context, arguments), []
        self.statistics["sequences"] += 1
        started = self._same(lambda each: each.start(context, **arguments))
        if isinstance(started, RejectedError):
            self.statistics["start refused"] += 1
            return
        first = snapshot = started.snapshot
        for _ in range(STEPS_MAX):
            event = sender.event(snapshot)
            self.done.append(event)
            snapshot = self.step(snapshot, event).snapshot
            if snapshot.ended is not None:
                break
        for kernel in (self.slow, self.kernel):
            self._equal("replay", to_builtins(snapshot), to_builtins(kernel.fold(first, self.done)))

    def step(self, snapshot: Snapshot, event: Event) -> Step:
        """One step, compared; pure, repeatable (the second time in the fast tier), and kept by the encoding."""
        before = encode((snapshot, event))
        step = self._same(lambda each: each.step(snapshot, event))
        assert isinstance(step, Step)
        self._equal("arguments", before, encode((snapshot, event)))
        self._equal("twice", encode(step), encode(self.kernel.step(snapshot, event)))
        self._equal("decoded", step.snapshot, decode_snapshot(encode(step.snapshot)))
        self._count(step, event)
        return step

    def _same(self, call: Callable[[Any], Step]) -> Step | RejectedError:
        """The kernel's answer, once the reference has given the same."""
        expected, actual = self._answer(call, self.reference), self._answer(call, self.kernel)
        what = difference(seen(expected), seen(actual))
        if what is not None:
            raise Disagreement(what, _part(expected, what), _part(actual, what), seed=self.seed, done=self.done)
        return actual

    @staticmethod
    def _answer(call: Callable[[Any], Step], who: Any) -> Step | RejectedError:
        try:
            return call(who)
        except RejectedError as error:
            return error

    def _equal(self, what: str, expected: Any, actual: Any) -> None:
        if expected != actual:
            raise Disagreement(what, expected, actual, seed=self.seed, done=self.done)

    def _count(self, step: Step, event: Event) -> None:
        count = self.statistics
        count["steps"] += 1
        count[f"{step.outcome} {step.reason}"] += 1
        count["several transitions"] += len(step.transitions) > 1
        count["faults"] += bool(step.faults)
        count["history kept"] += bool(step.snapshot.history)
        count["timers pending"] += bool(step.snapshot.timers)
        count["invokes active"] += bool(step.snapshot.invokes)
        count["regions"] += len(step.snapshot.configuration) > 1
        for each in {effect.type for effect in step.effects}:
            count[f"effect {each}"] += 1
        if step.snapshot.ended is not None:
            count[f"ended {step.snapshot.ended}"] += 1
        if event.source is not None:
            count[f"source {event.source.split('/')[0]}"] += 1


def _part(step: Step | RejectedError, path: str) -> Any:
    value: Any = seen(step)
    for name in path.split("/"):
        value = value.get(name) if isinstance(value, dict) else value
    return value


def run_seed(seed: int, statistics: Counter[str] | None = None) -> None:
    """The chart of one seed and a few sequences on it. Raises Disagreement."""
    random = Random(seed)
    comparison = Comparison(document(random), random, seed=seed, statistics=statistics)
    for _ in range(SEQUENCES_PER_CHART):
        comparison.run()
