"""Every interleaving of some processes over shared memory, optionally with a SIGKILL before every step.

Processes are generators over the operations of `operations.py`. A state is the memory and the position of each process.
The position is given by its frames: code, instruction, variables. So two histories that lead to the same memory and
the same frames are one state, which is visited once, and loops end.

Rule 1: a process is deterministic; only the order of steps and the kills vary.
Rule 2: a process keeps nothing across a step but its variables (no half-evaluated expression, no iterator that is not
        a variable), and its variables are hashable. Histories are merged only for that reason; `merged=False` explores
        every history separately, which a test uses to check the merging.
Rule 3: a kill ends all threads of a process together, frees its lock bytes and leaves shared memory as it is.
Rule 4: safety is a property of every state. Liveness means: from every state some end that is `settled` can be reached
        without a further kill. A state from which none can be reached is stuck, even if the processes still run.
Rule 5: the exploration is breadth first, so the interleaving of a violation is a shortest one.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from tests.model.operations import FREE, Memory, Operation, Script, perform

DEAD: Final = "dead"
WAITING: Final = "waiting"
STATES_MAX: Final = 2_000_000  # about a gigabyte
STUCK: Final = "stuck: no settled end can be reached any more"
_DEAD: Final = 0  # the position of a killed thread
State = tuple[int, ...]  # the number of the memory, then of the position of each process
Cells = Mapping[str, Any]


class Process(NamedTuple):
    """A thread of a process: kills end all threads of one `group`, which is the thread's own name by default."""

    name: str
    script: Callable[[], Script]
    group: str = ""

    @property
    def owner(self) -> str:
        """The process that it belongs to, by whose name it holds locks."""
        return self.group or self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Processes, the memory at the start, and the required properties.

    `unsafe` is called for every state: memory, and where each process is (its operation's `at`, its result, `dead`);
    `unsettled` for every end: memory, and what each process returned (or `dead`, or `waiting`). Both return None or a
    description of the violation. A state for which `excused` is true counts as a settled end.
    """

    memory: Mapping[str, Any]
    processes: tuple[Process, ...]
    unsafe: Callable[[Cells, Mapping[str, str]], str | None]
    unsettled: Callable[[Cells, Mapping[str, Any]], str | None]
    excused: Callable[[Cells, Mapping[str, str]], bool] = lambda _cells, _where: False
    locks: tuple[str, ...] = ()
    mortal: frozenset[str] = frozenset()
    kills: int = 0


Configuration = Callable[[str], Model]  # by the name of the rule that is left out; the empty name leaves out none


class Step(NamedTuple):
    """One line of an interleaving; a kill has no operation."""

    process: str
    operation: Operation | None
    answer: Any


class Violation(NamedTuple):
    """A violation, and a shortest path to it."""

    what: str
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        """Return the interleaving, one step per line."""
        return "\n".join([*(line(step) for step in self.steps), f"=> {self.what}"])


@dataclass
class Exploration:
    """The result of an exploration."""

    states: int = 0
    ends: int = 0
    complete: bool = True
    violations: dict[str, Violation] = field(default_factory=dict)


class _Position(NamedTuple):
    process: int
    operation: Operation | None  # None: it has returned
    answers: tuple[Any, ...]
    result: Any = None

    @property
    def at(self) -> str:
        return self.operation.at if self.operation else str(self.result or "")


class Explorer:
    """Explores one model."""

    def __init__(self, model: Model, *, states_max: int = STATES_MAX, until: str = "", merged: bool = True) -> None:
        self._model = model
        self._until = until
        self._states_max = states_max
        self._merged = merged
        asleep = {f"asleep.{process.name}": FREE for process in model.processes}
        self._names = (*model.memory, *asleep)
        self._places = {name: place for place, name in enumerate(self._names)}
        self._groups = tuple(dict.fromkeys(process.owner for process in model.processes))
        self._threads = tuple(
            tuple(place for place, process in enumerate(model.processes, start=1) if process.owner == group)
            for group in self._groups
        )
        self._excused: dict[tuple[Any, ...], bool] = {}
        self._memories: list[Memory] = []
        self._memory_numbers: dict[Memory, int] = {}
        self._positions: list[_Position] = [_Position(-1, None, (), DEAD)]
        self._position_numbers: dict[Any, int] = {}
        self._followers: dict[tuple[int, Any], int] = {}
        self._steps: dict[tuple[int, int], tuple[int, int] | None] = {}
        self._seen: dict[State, int] = {}
        self._states: list[State] = []
        self._parents = array("l")
        self._causes = array("b")  # the process that moved, or minus the killed group, minus one
        self._edges = array("l")  # pairs, without kills
        self._good = array("l")
        self.result = Exploration()

        memory = self._numbered((*model.memory.values(), *asleep.values()))
        self._visit((memory, *(self._advance(number, ()) for number in range(len(model.processes)))), -1, 0)

    def explore(self) -> Exploration:
        """Visits every state, then looks for those from which no settled end can be reached."""
        current = 0
        while current < len(self._states):
            if len(self._states) > self._states_max or self._until in self.result.violations:
                self.result.complete = False
                break
            self._expand(current)
            current += 1
        self.result.states = len(self._states)
        if self.result.complete:
            self._find_stuck()
        return self.result

    def _expand(self, current: int) -> None:
        state = self._states[current]
        self._check(state, current)
        memory = state[0]
        moved = False
        for process in range(1, len(state)):
            step = self._step(state[process], memory)
            if step is not None:
                moved = True
                after = (step[1], *state[1:process], step[0], *state[process + 1 :])
                self._edges.extend((current, self._visit(after, current, process - 1)))
        if not moved:
            self._end(state, current)
        if self._model.kills:
            self._kill(state, current)

    def _step(self, position: int, memory: int) -> tuple[int, int] | None:
        """Return the position after the next operation, and the memory then; None if the process cannot continue."""
        key = (position, memory)
        if key not in self._steps:
            operation = self._positions[position].operation
            done = operation and perform(operation, self._memories[memory], self._places)
            self._steps[key] = done and (self._follow(position, done.answer), self._numbered(done.memory))
        return self._steps[key]

    def _follow(self, position: int, answer: Any) -> int:
        """Return the position of a process after it got its answer."""
        key = (position, answer)
        if key not in self._followers:
            before = self._positions[position]
            self._followers[key] = self._advance(before.process, (*before.answers, answer))
        return self._followers[key]

    def _advance(self, process: int, answers: tuple[Any, ...]) -> int:
        """Run the process from its start with the answers it got, and number the position that it reaches."""
        script = self._model.processes[process].script()
        try:
            operation = next(script)
            for answer in answers:
                operation = script.send(answer)
        except StopIteration as stop:
            found = _Position(process, None, answers, stop.value)
            key: Any = (process, None, stop.value) if self._merged else (process, answers)
        else:
            found = _Position(process, operation, answers)
            key = (process, operation, *_frames(script)) if self._merged else (process, answers)
            script.close()
        number = self._position_numbers.setdefault(key, len(self._positions))
        if number == len(self._positions):
            self._positions.append(found)
        return number

    def _numbered(self, memory: Memory) -> int:
        number = self._memory_numbers.setdefault(memory, len(self._memories))
        if number == len(self._memories):
            self._memories.append(memory)
        return number

    def _visit(self, state: State, parent: int, cause: int) -> int:
        number = self._seen.setdefault(state, len(self._states))
        if number == len(self._states):
            self._states.append(state)
            self._parents.append(parent)
            self._causes.append(cause)
        return number

    def _kill(self, state: State, current: int) -> None:
        """Visit all states after one more kill. A process that has ended is not killed."""
        if sum(state[threads[0]] == _DEAD for threads in self._threads) == self._model.kills:
            return
        for number, threads in enumerate(self._threads):
            group = self._groups[number]
            if group in self._model.mortal and any(self._positions[state[each]].operation for each in threads):
                after = list(state)
                after[0] = self._numbered(self._released(self._memories[state[0]], group))
                for each in threads:
                    after[each] = _DEAD
                self._visit(tuple(after), current, -number - 1)

    def _released(self, memory: Memory, group: str) -> Memory:
        return tuple(
            FREE if value == group and name in self._model.locks else value
            for name, value in zip(self._names, memory, strict=True)
        )

    def _check(self, state: State, current: int) -> None:
        key = (state[0], *(self._positions[each].at for each in state[1:]))
        if key not in self._excused:
            where = {
                process.name: self._positions[position].at
                for process, position in zip(self._model.processes, state[1:], strict=True)
            }
            cells = self._cells(state[0])
            self._note(self._model.unsafe(cells, where), current)
            self._excused[key] = self._model.excused(cells, where)
        if self._excused[key]:
            self._good.append(current)

    def _end(self, state: State, current: int) -> None:
        self.result.ends += 1
        results = {
            process.name: self._positions[position].result if self._positions[position].operation is None else WAITING
            for process, position in zip(self._model.processes, state[1:], strict=True)
        }
        wrong = self._model.unsettled(self._cells(state[0]), results)
        if wrong is None:
            self._good.append(current)
        self._note(wrong, current)

    def _find_stuck(self) -> None:
        """Go backwards from the settled ends; states that are not reached can never settle."""
        before: list[list[int]] = [[] for _ in self._states]
        for place in range(0, len(self._edges), 2):
            before[self._edges[place + 1]].append(self._edges[place])
        can_settle = bytearray(len(self._states))
        waiting = list(self._good)
        for number in waiting:
            can_settle[number] = 1
        while waiting:
            for number in before[waiting.pop()]:
                if not can_settle[number]:
                    can_settle[number] = 1
                    waiting.append(number)
        stuck = can_settle.find(0)
        if stuck >= 0 and not self.result.violations:
            self._note(STUCK, stuck)

    def _cells(self, memory: int) -> Cells:
        return dict(zip(self._names, self._memories[memory], strict=True))

    def _note(self, wrong: str | None, current: int) -> None:
        if wrong is not None and wrong not in self.result.violations:
            self.result.violations[wrong] = Violation(wrong, tuple(self._path(current))[::-1])

    def _path(self, current: int) -> Iterator[Step]:
        while (parent := self._parents[current]) >= 0:
            cause, state = self._causes[current], self._states[parent]
            if cause < 0:
                yield Step(self._groups[-cause - 1], None, None)
            else:
                operation = self._positions[state[cause + 1]].operation
                assert operation is not None
                done = perform(operation, self._memories[state[0]], self._places)
                yield Step(self._model.processes[cause].name, operation, done and done.answer)
            current = parent


def explore(model: Model, *, states_max: int = STATES_MAX) -> Exploration:
    """Visit every state, then search those from which no settled end can be reached."""
    return Explorer(model, states_max=states_max).explore()


def find_violation(model: Model, wrong: str) -> Violation | None:
    """Return a shortest path to a violation, or None."""
    return Explorer(model, until=wrong).explore().violations.get(wrong)


def line(step: Step) -> str:
    """Return a step as text: the process, the operation and the answer."""
    if step.operation is None:
        return f"{step.process}: SIGKILL"
    return f"{step.process}: {describe(step)}"


def describe(step: Step) -> str:
    """Return the operation of a step and its answer as text."""
    kind, cell, first, second, _, at = step.operation or Operation("", "")
    match kind:
        case "load":
            return f"load {cell}: {show(step.answer)}"
        case "store":
            return f"store {cell} = {show(first)}"
        case "cas":
            return f"CAS {cell} {show(first)} -> {show(second)}: {'won' if step.answer else 'lost'}"
        case "swap":
            won = step.answer == first
            return f"CAS {cell} {show(first)} -> {show(second)}: {'won' if won else 'lost to ' + show(step.answer)}"
        case "add":
            return f"add {first:+d} to {cell}: {step.answer} -> {step.answer + first}"
        case "until_not":
            return f"see {cell}: {show(step.answer)}"
        case "held":
            return f"probe {cell}: {'held' if step.answer else 'free'}"
        case "sleep":
            return f"sleep on {cell} = {show(first)}" if step.answer else f"sleep on {cell} = {show(first)}: refused"
        case "sleeping":
            return "awake"
        case "pause":
            return at or "continues"
        case _:
            return f"{kind} {cell}"


def show(value: Any) -> str:
    """Return the value of a cell as text; the parts of a word are separated by bars."""
    if isinstance(value, tuple):
        return "|".join(map(str, value)) or "nothing"
    return str(value) if value != FREE else "free"


def _frames(script: Any) -> Iterator[Any]:
    while script is not None:
        frame = script.gi_frame
        yield frame.f_code, frame.f_lasti, tuple(sorted(frame.f_locals.items()))
        script = script.gi_yieldfrom
