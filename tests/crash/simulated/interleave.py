"""Every order of the calls of several processes, and whether the answers are linearizable.

A process is a deterministic function of what its calls returned. So one turn of it is: run it again from the start with
the answers it had, let one more call happen, and stop it there. Two schedules that lead to the same world, the same
answers and the same history are one state, which is visited once; the number of schedules is counted through it.

The history of each end is checked for linearizability (Wing and Gong): some order of the operations that respects who
was finished before whom must explain every answer.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.crash.simulated.file_system import Simulated, World

Answer = tuple[Any, ...]
Operation = tuple[Any, ...]  # what was asked, comparable with its answer by the model
Program = Callable[[Any, Callable[[Operation], None], Callable[[Answer], None]], None]


class Turn(BaseException):
    """The process waits here for its next turn."""


class Moment(NamedTuple):
    """One process in the middle of its program: the answers it got, and its open files."""

    answers: tuple[tuple[bool, Any], ...]
    trail: int
    opened: tuple[tuple[int, int], ...]
    events: int
    waits_for: tuple[str, tuple[Any, ...]] | None  # None: it is finished


class Replayed:
    """A file system that repeats the answers a process got, then allows some calls, then stops it."""

    def __init__(self, fs: Simulated, moment: Moment, steps: int) -> None:
        self.fs = fs
        self.answers = list(moment.answers)
        self.trail = moment.trail
        self.waits_for: tuple[str, tuple[Any, ...]] | None = None
        self._position = 0
        self._steps = steps

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *arguments: self._call(name, *arguments)

    def _call(self, name: str, *arguments: Any) -> Any:
        if self.waits_for is not None:
            raise Turn
        if self._position == len(self.answers):
            if self._steps == 0:
                self.waits_for = (name, arguments)
                raise Turn
            self._steps -= 1
            self._perform(name, *arguments)
        good, answer = self.answers[self._position]
        self._position += 1
        if not good:
            raise answer
        return list(answer) if isinstance(answer, tuple) and name == "names" else answer

    def _perform(self, name: str, *arguments: Any) -> None:
        try:
            answer = getattr(self.fs, name)(*arguments)
        except OSError as error:
            self.answers.append((False, error))
            self.trail = hash((self.trail, name, repr(error)))
        else:
            self.answers.append((True, tuple(answer) if isinstance(answer, list) else answer))
            self.trail = hash((self.trail, name, repr(answer)))


class Event(NamedTuple):
    """The start or the end of an operation in a process."""

    process: int
    kind: str
    what: tuple[Any, ...]


@dataclass
class Exploration:
    """The result: global states, schedules, and the histories that are not linearizable."""

    states: int = 0
    schedules: int = 0
    complete: bool = True
    bad: int = 0
    examples: list[str] = field(default_factory=list)


class State(NamedTuple):
    """All processes at one moment."""

    world: World
    moments: tuple[Moment, ...]
    history: tuple[Event, ...]

    def key(self) -> tuple[Any, ...]:
        """What makes this state the same as another."""
        processes = tuple((each.trail, each.opened, len(each.answers)) for each in self.moments)
        return self.world.image(), processes, self.history


class Explorer:
    """Explores all schedules of some programs from one world on."""

    def __init__(
        self,
        programs: tuple[Program, ...],
        processes: Callable[[World, int], Simulated],
        explains: Callable[[list[tuple[Operation, Answer]]], bool],
        *,
        states_max: int = 1_000_000,
    ) -> None:
        self.result = Exploration()
        self._programs = programs
        self._processes = processes
        self._explains = explains
        self._states_max = states_max
        self._paths: dict[tuple[Any, ...], int] = {}

    def explore(self, world: World) -> Exploration:
        """All schedules after each process has reached its first operation."""
        empty = Moment((), 0, (), 0, ("", ()))
        state = State(world.copy(), tuple(empty for _ in self._programs), ())
        for process in range(len(self._programs)):
            while state.moments[process].events == 0:
                state = self._turn(state, process, 1)
        self.result.schedules = self._walk(state)
        return self.result

    def _walk(self, state: State) -> int:
        """How many schedules lead on from here."""
        key = state.key()
        if key in self._paths:
            return self._paths[key]
        if self.result.states >= self._states_max:
            self.result.complete = False
            return 0
        self.result.states += 1
        waiting = [number for number, each in enumerate(state.moments) if each.waits_for is not None]
        paths = sum(self._walk(self._turn(state, each, 1)) for each in waiting if self._may_go(state, each))
        if not waiting:
            paths = 1
            if not linearizable(state.history, self._explains):
                self._report(f"not linearizable: {state.history}")
        elif not any(self._may_go(state, each) for each in waiting):
            self._report("all processes wait")
        self._paths[key] = paths
        return paths

    def _report(self, text: str) -> None:
        self.result.bad += 1
        self.result.examples.append(text)

    def _may_go(self, state: State, process: int) -> bool:
        """A process that waits for a lock continues when it is free."""
        waits_for = state.moments[process].waits_for
        assert waits_for is not None
        name, arguments = waits_for
        if name != "lock" or self._is_lockless():
            return True
        return dict(state.moments[process].opened)[arguments[0]] not in state.world.locks

    def _is_lockless(self) -> bool:
        return type(self._processes(World(), 1)).lock is not Simulated.lock

    def _turn(self, state: State, process: int, steps: int) -> State:
        """The state after some more calls of one process."""
        before = state.moments[process]
        world = state.world.copy()
        fs = self._processes(world, process + 1)
        fs._opened = dict(before.opened)
        fs._next = 100 + len(before.answers)
        fs.count = len(before.answers)
        replayed = Replayed(fs, before, steps)
        events: list[Event] = []
        with contextlib.suppress(Turn):
            self._programs[process](
                replayed,
                lambda asked: events.append(Event(process, "asked", asked)),
                lambda given: events.append(Event(process, "given", given)),
            )
        after = Moment(
            tuple(replayed.answers),
            replayed.trail,
            tuple(sorted(fs._opened.items())),
            len(events),
            replayed.waits_for,
        )
        moments = (*state.moments[:process], after, *state.moments[process + 1 :])
        return State(world, moments, state.history + tuple(events[before.events :]))


def linearizable(history: tuple[Event, ...], explains: Callable[[list[tuple[Operation, Answer]]], bool]) -> bool:
    """Whether some order of the operations that respects their times explains all answers."""
    spans: list[tuple[int, int, Operation, Answer]] = []
    open_since: dict[int, tuple[int, Operation]] = {}
    for place, event in enumerate(history):
        if event.kind == "asked":
            open_since[event.process] = (place, event.what)
        else:
            start, asked = open_since.pop(event.process)
            spans.append((start, place, asked, event.what))
    for order in itertools.permutations(spans):
        respects = all(earlier[0] < later[1] for earlier, later in itertools.combinations(order, 2))
        if respects and explains([(asked, given) for _, _, asked, given in order]):
            return True
    return False
