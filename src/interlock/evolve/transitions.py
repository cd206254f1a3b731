"""Changes of the transitions and timers of one state.

Rule 1: transitions are compared by trigger: one event of `on`, the end of the state, the result of an invoke or a saga.
        A transition for several events counts once for each.
Rule 2: of those with one trigger, equal ones are paired first, the others by position.
Rule 3: timers are paired by equal delay, then by equal transitions, then if each side has one left. What remains on
        both sides is ambiguous.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from interlock.compiler.resolve import parse_descriptor
from interlock.evolve.changes import Change
from interlock.model.document.document import DialectName, State, Transition
from interlock.model.document.wording import name_text

_PARTS = {"targets": "target", "guard": "guard", "actions": "actions", "reenter": "reenter", "roles": "roles"}


@dataclass(frozen=True, slots=True)
class Trigger:
    """What causes a transition: its text, and the name of an event that does; `invoke` is the id of an invoke."""

    kind: Literal["on", "always", "done", "invoke", "saga"]
    text: str
    event: str = ""
    invoke: str | None = None


@dataclass(frozen=True, slots=True)
class TransitionChange:
    """A change of a transition with this trigger: the last part of a code, and a detail."""

    code: str
    trigger: Trigger
    detail: str = ""


Triggered = tuple[Trigger, Transition]


def triggers(state: State, name: str, dialect: DialectName) -> Iterator[Triggered]:
    """Yield the transitions of a state with their triggers, in the order in which they are tried, without timers."""
    for position, invoke in enumerate(state.invokes):
        id_ = invoke.id or f"{name}.{position}"
        for result, found in (("done", invoke.done), ("error", invoke.error)):
            for each in found:
                yield Trigger("invoke", f"{result} {id_}", f"{result}.invoke.{id_}", id_), _bare(each)
    if state.saga is not None:
        ends = {"onDone": state.saga.done, "onCompensated": state.saga.compensated, "onError": state.saga.error}
        for end, found in ends.items():
            yield from ((Trigger("saga", f"saga {end}"), _bare(each)) for each in found)
    for each in state.transitions:
        if each.origin == "onDone":
            yield Trigger("done", "done", f"done.state.{name}"), _bare(each)
        elif each.events:
            for text in each.events:
                event = "*" if text == "*" else ".".join(parse_descriptor(text, dialect).tokens)
                exact = dialect == "xstate" and not text.endswith("*")
                yield Trigger("on", event if exact or dialect != "xstate" else text, event), _bare(each)
        elif each.origin != "after":
            yield Trigger("always", "always"), _bare(each)


def _bare(transition: Transition) -> Transition:
    """What of a transition is compared."""
    return replace(transition, events=(), origin="on", delay=None, restore=None)


def transition_changes(old: list[Triggered], new: list[Triggered]) -> Iterator[TransitionChange]:
    """Yield the changes of transitions, by trigger, in the order of the new definition and then of the old one."""
    for trigger in dict.fromkeys(each for each, _ in (*new, *old)):
        before, after = ([made for each, made in found if each == trigger] for found in (old, new))
        if before != after:
            yield from _group_changes(trigger, before, after)


def _group_changes(trigger: Trigger, before: list[Transition], after: list[Transition]) -> Iterator[TransitionChange]:
    gone, come = _without(before, after), _without(after, before)
    if not gone and not come:
        yield TransitionChange("transition.order", trigger)
    for one, other in zip(gone, come, strict=False):
        yield from _part_changes(trigger, one, other)
    what = "always" if trigger.kind == "always" else "transition"
    yield from (TransitionChange(f"{what}.removed", trigger, _targets(each)) for each in gone[len(come) :])
    yield from (TransitionChange(f"{what}.added", trigger, _targets(each)) for each in come[len(gone) :])


def _part_changes(trigger: Trigger, before: Transition, after: Transition) -> Iterator[TransitionChange]:
    for part, code in _PARTS.items():
        if getattr(before, part) != getattr(after, part):
            detail = f"{_targets(before)} -> {_targets(after)}" if part == "targets" else ""
            yield TransitionChange(
                "always.changed" if trigger.kind == "always" else f"transition.{code}", trigger, detail
            )


def _targets(transition: Transition) -> str:
    return ", ".join(each.removeprefix("#") for each in transition.targets) or "no target"


def _without(one: list[Transition], other: list[Transition]) -> list[Transition]:
    """The transitions of one list that the other does not have, counting equal ones."""
    rest, found = list(other), []
    for each in one:
        if each in rest:
            rest.remove(each)
        else:
            found.append(each)
    return found


# Timers


@dataclass(frozen=True, slots=True)
class TimerPairs:
    """The timers of a state in two definitions, by delay: those that belong together, and those without a partner."""

    pairs: tuple[tuple[str, str], ...]
    removed: tuple[str, ...]
    added: tuple[str, ...]

    @property
    def is_ambiguous(self) -> bool:
        """Whether timers without a partner could belong together."""
        return bool(self.removed and self.added)


def pair_timers(before: State, after: State) -> TimerPairs:
    """Return which timers of a state belong together."""
    old, new = _timers(before), _timers(after)
    pairs = [(delay, delay) for delay in old if delay in new]
    left, right = [each for each in old if each not in new], [each for each in new if each not in old]
    for delay in list(left):
        twin = next((each for each in right if new[each] == old[delay]), None)
        if twin is not None:
            pairs.append((delay, twin))
            left.remove(delay)
            right.remove(twin)
    if len(left) == len(right) == 1:
        pairs.append((left.pop(), right.pop()))
    return TimerPairs(tuple(pairs), tuple(left), tuple(right))


def timer_changes(before: State, after: State, *, subject: str, states: tuple[str, ...]) -> Iterator[Change]:
    """Yield the changes of the timers of a state and of their transitions."""
    old, new, paired = _timers(before), _timers(after), pair_timers(before, after)
    for one, other in paired.pairs:
        if one != other:
            detail = f"{one} -> {other}"
            yield Change(code="timer.delay", subject=subject, detail=detail, states=states)
        yield from _timer_content(old[one], new[other], f"{subject}: after {other}", states)
    if paired.is_ambiguous:
        detail = f"{', '.join(paired.removed)} -> {', '.join(paired.added)}"
        yield Change(code="timer.ambiguous", subject=subject, detail=detail, states=states)
        return
    for code, delays in (("timer.removed", paired.removed), ("timer.added", paired.added)):
        yield from (Change(code=code, subject=f"{subject}: after {each}", states=states) for each in delays)


def _timers(state: State) -> dict[str, list[Transition]]:
    """The transitions of each timer of a state, by its delay as text."""
    found: dict[str, list[Transition]] = {}
    for each in state.transitions:
        if each.origin == "after":
            found.setdefault(name_text(each.delay), []).append(replace(_bare(each), restore=each.restore))
    return found


def _timer_content(
    old: list[Transition], new: list[Transition], subject: str, states: tuple[str, ...]
) -> Iterator[Change]:
    if old[0].restore != new[0].restore:
        yield Change(code="timer.restore", subject=subject, states=states)
    trigger = Trigger("done", "")
    before, after = ([_bare(each) for each in found] for found in (old, new))
    for change in _group_changes(trigger, before, after) if before != after else ():
        yield Change(code=change.code, subject=subject, detail=change.detail, states=states)
