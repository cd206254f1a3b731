"""Two charts that must behave alike, run side by side under the same random events, and where they first differ.

Everything that a driver can see is compared: outcome, reason, codes of faults, every effect with its key, order and
payload, and the whole snapshot but for kind and revision, which name the definition.
Rule: ids of states may differ where a format has its own; then states answer to each other by their order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any
from zlib import crc32

from interlock.errors import CorruptionError, InterlockError, RejectedError
from interlock.expression.language import SAFE, Language
from interlock.kernel.step import Kernel
from interlock.model.charts.chart import Chart, State
from interlock.model.encoding.codec import encode, to_builtins
from interlock.model.event import Event
from interlock.model.snapshot import Snapshot
from interlock.model.step import Step
from tests.conformance.roundtrip.senders import ChartSender, Vocabulary

SEQUENCES = 3
STEPS_MAX = 12

Functions = Mapping[str, Callable[..., Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Where two charts first did not do the same."""

    what: str
    expected: Any
    actual: Any
    trail: tuple[str, ...]

    def __str__(self) -> str:
        trail = " ".join(self.trail) or "the start"
        return f"{self.what} after [{trail}]\n    expected {self.expected}\n    actual   {self.actual}"


@dataclass(slots=True)
class Tally:
    """How much was compared, and what was found."""

    charts: int = 0
    steps: int = 0
    differences: int = 0


class Twins:
    """An original and what came back from its trip."""

    def __init__(
        self,
        original: Chart,
        twin: Chart,
        *,
        language: Callable[[], Language] = lambda: SAFE,
    ) -> None:
        self.vocabulary = Vocabulary(original)
        self.there, self.back = _names(original, twin)
        self.kernels = [
            Kernel(
                each,
                guards=made_guards(each),
                assigns=made_assigns(original, each),
                language=language(),
            )
            for each in (original, twin)
        ]

    def reads_event_at_start(self) -> bool:
        """Whether the first step of the original reads the event: ours has none, XState has `xstate.init` (X21)."""
        first = _started(self.kernels[0], ChartSender(self.vocabulary, Random(0)).context())
        codes = [first.code] if isinstance(first, RejectedError) else [each.code for each in first.faults]
        return "expression.unbound_event" in codes

    def difference(self, seed: object, tally: Tally) -> Difference | None:
        """The first difference in a few random sequences; adds to the tally what was compared."""
        tally.charts += 1
        for number in range(SEQUENCES):
            found = self._sequence(Random(f"{seed}/{number}"), tally)
            if found is not None:
                tally.differences += 1
                return found
        return None

    def _sequence(self, random: Random, tally: Tally) -> Difference | None:
        sender = ChartSender(self.vocabulary, random)
        context = sender.context()
        steps: list[Step | InterlockError] = [_started(each, context) for each in self.kernels]
        trail: list[str] = []
        for _ in range(STEPS_MAX):
            tally.steps += 1
            found = self._compared(steps, trail)
            if found is not None or isinstance(steps[0], InterlockError):
                return found
            snapshots = [each.snapshot for each in steps if isinstance(each, Step)]
            event = sender.event(snapshots[0])
            trail.append(event.name)
            events = (event, _renamed(event, self.back))
            steps = [
                _stepped(kernel, snapshot, given)
                for kernel, snapshot, given in zip(self.kernels, snapshots, events, strict=True)
            ]
        return None

    def _compared(self, steps: list[Step | InterlockError], trail: list[str]) -> Difference | None:
        expected, actual = seen(steps[0]), _mapped(seen(steps[1]), self.there)
        what = path_of_difference(expected, actual)
        if what is None:
            return None
        return Difference(what=what, expected=_at(expected, what), actual=_at(actual, what), trail=tuple(trail))


def seen(step: Step | InterlockError) -> dict[str, Any]:
    """What a driver can see of a step, as plain JSON."""
    if isinstance(step, InterlockError):
        return {"refused": step.code}
    snapshot = to_builtins(step.snapshot)
    del snapshot["revision"], snapshot["kind"]
    return {
        "outcome": step.outcome,
        "reason": step.reason,
        # Each code once: an output that fails is asked twice below a hidden root (X3), for its done event and the end.
        "faults": list(dict.fromkeys(each.code for each in step.faults)),
        "snapshot": snapshot,
        "effects": {str(number): to_builtins(effect) for number, effect in enumerate(step.effects)},
    }


def path_of_difference(expected: Any, actual: Any) -> str | None:
    """The path of the first value in which two mappings differ, or None."""
    for name in {**expected, **actual}:
        left, right = expected.get(name), actual.get(name)
        if encode(left) != encode(right):
            inner = path_of_difference(left, right) if isinstance(left, dict) and isinstance(right, dict) else None
            return f"{name}/{inner}" if inner else str(name)
    return None


def _at(value: Any, path: str) -> Any:
    for name in path.split("/"):
        value = value.get(name) if isinstance(value, dict) else value
    return value


def _started(kernel: Kernel, context: Mapping[str, Any]) -> Step | RejectedError:
    try:
        return kernel.start(context, entity="a/1", time_ms=1_000)
    except RejectedError as error:
        return error


def _stepped(kernel: Kernel, snapshot: Snapshot, event: Event) -> Step | CorruptionError:
    try:
        return kernel.step(snapshot, event)
    except CorruptionError as error:
        return error


# Names


def _names(original: Chart, twin: Chart) -> tuple[dict[str, str], dict[str, str]]:
    """Texts of the twin that replace other texts of the original, and the reverse."""
    there: dict[str, str] = {}
    if [each.id for each in original.states] != [each.id for each in twin.states]:
        ours, theirs = original.states[original.completion_root :], twin.states[twin.completion_root :]
        assert [each.key for each in ours[1:]] == [each.key for each in theirs[1:]], "the twin has other states"
        for one, other in zip(ours, theirs, strict=True):
            there |= dict(zip(_texts(other), _texts(one), strict=True))
    there = {name: text for name, text in there.items() if name != text}
    return there, {text: name for name, text in there.items()}


def _texts(state: State) -> list[str]:
    """What a state's id goes into: its done event, its timers, the field of its saga."""
    saga = [each.name for each in state.context if each.name.startswith("saga_")]
    return [state.id, f"done.state.{state.id}", *(each.event for each in state.after), *saga]


def _mapped(value: Any, names: Mapping[str, str]) -> Any:
    if not names:
        return value
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, dict):
        return {_mapped(key, names): _mapped(each, names) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_mapped(each, names) for each in value]
    return value


def _renamed(event: Event, names: Mapping[str, str]) -> Event:
    """The event as the twin knows it; the source of a firing holds the name of its timer."""
    fields = _mapped({name: getattr(event, name) for name in event.__struct_fields__}, names)
    if event.source is not None and event.source.startswith("timer/"):
        name, _, version = event.source.removeprefix("timer/").rpartition("/")
        fields["source"] = f"timer/{names.get(name, name)}/{version}"
    return Event(**fields)


# Functions that a chart asks code for. They take texts for equal, because the name of a state or timer may be in one.


def made_guards(chart: Chart) -> Functions:
    """A guard for every name: now true, now false."""
    return {name: _guard(name) for name in chart.guards}


def _guard(name: str) -> Callable[..., bool]:
    def guard(context: Any, _event: Any, *arguments: Any) -> bool:
        return bool(_number(name, context, arguments) % 2)

    return guard


def made_assigns(original: Chart, chart: Chart) -> Functions:
    """An assign function for every name: it writes a field of the original with a number, or with its arguments."""
    fields = original.states[0].context
    numbers = [each.name for each in fields if each.type in ("integer", "number", "any")]
    anything = [each.name for each in fields if each.type == "any"]
    return {name: _assign(name, numbers, anything) for name in chart.assigns}


def _assign(name: str, numbers: list[str], anything: list[str]) -> Callable[..., dict[str, Any]]:
    def assign(context: Any, _event: Any, *arguments: Any) -> dict[str, Any]:
        number = _number(name, context, arguments)
        made = {numbers[number % len(numbers)]: number % 5} if numbers else {}
        return made | ({anything[0]: list(arguments)} if anything and arguments else {})

    return assign


def _number(name: str, context: Any, arguments: Any) -> int:
    fields = {key: each for key, each in context.items() if not key.startswith("saga_")}
    return crc32(encode([name, _without_texts(fields), _without_texts(arguments)]))


def _without_texts(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_texts(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_texts(each) for each in value]
    return "" if isinstance(value, str) else value
