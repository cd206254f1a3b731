"""The atomic operations of a model: what one process can do to shared memory in one step.

A process is a generator that yields operations and is sent their answers. Memory is a row of named cells; a value is
anything hashable. Every function here returns an `Operation`; `perform` defines what each one does.

Rule 1: one operation is one indivisible step, in the one order that all processes see (sequential consistency).
Rule 2: an operation may have a `ghost`: cells that are written in the same step if it succeeds. Ghosts record what
        happened, for the properties; no process reads one.
Rule 3: `at` is the position of the process while the operation is its next step, such as `inside`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, Final, NamedTuple

FREE: Final = ""  # a free lock byte; no sleeper


class Operation(NamedTuple):
    """The next step of a process."""

    kind: str
    cell: str
    first: Any = None
    second: Any = None
    ghost: tuple[tuple[str, Any], ...] = ()
    at: str = ""


Script = Generator[Operation, Any, Any]
Memory = tuple[Any, ...]


class Done(NamedTuple):
    """The effect of an operation: the answer for the process, and the memory after it."""

    answer: Any
    memory: Memory


def load(cell: str, *, at: str = "") -> Operation:
    """Load the value."""
    return Operation("load", cell, at=at)


def store(cell: str, value: Any, *, ghost: Mapping[str, Any] | None = None, at: str = "") -> Operation:
    """Store the value."""
    return Operation("store", cell, value, ghost=tuple((ghost or {}).items()), at=at)


def cas(cell: str, old: Any, new: Any, *, ghost: Mapping[str, Any] | None = None, at: str = "") -> Operation:
    """Compare and swap; the answer is whether it succeeded."""
    return Operation("cas", cell, old, new, tuple((ghost or {}).items()), at)


def swap(cell: str, old: Any, new: Any, *, at: str = "") -> Operation:
    """Compare and swap; the answer is the previous value, which is `old` if it succeeded."""
    return Operation("swap", cell, old, new, at=at)


def add(cell: str, amount: int, *, at: str = "") -> Operation:
    """Add; the answer is the previous value."""
    return Operation("add", cell, amount, at=at)


def take(cell: str, *, at: str = "") -> Operation:
    """Wait until the cell is not zero, then set it to zero: reading an eventfd."""
    return Operation("take", cell, at=at)


def until_not(cell: str, value: Any) -> Operation:
    """Wait until the cell has another value, which is the answer."""
    return Operation("until_not", cell, value)


def lock(cell: str, owner: str) -> Operation:
    """Wait until the lock byte is free, and lock it."""
    return Operation("lock", cell, owner)


def held(cell: str, owner: str, *, at: str = "") -> Operation:
    """Query whether another process holds the lock byte: F_OFD_GETLK, to which the own lock looks free."""
    return Operation("held", cell, owner, at=at)


def pause(*, at: str = "") -> Operation:
    """Do nothing to shared memory: the work itself, a cleanup, or time."""
    return Operation("pause", "", at=at)


def wake(cell: str) -> Operation:
    """Wake all sleepers on the cell."""
    return Operation("wake", cell)


def futex_wait(me: str, cell: str, expected: Any, *, bounded: bool) -> Script:
    """Sleep while the cell has the expected value; a bounded sleep may end at any time.

    A futex is 32 bits wide: of a word with several parts only the first, the phase, is compared.
    """
    if (yield Operation("sleep", cell, expected, f"asleep.{me}")):
        yield Operation("sleeping", f"asleep.{me}", bounded)


def perform(operation: Operation, memory: Memory, places: Mapping[str, int]) -> Done | None:
    """Return the effect of the operation, or None while it has to wait."""
    return _PERFORM[operation.kind](operation, memory, places)


def _written(memory: Memory, places: Mapping[str, int], changes: tuple[tuple[str, Any], ...]) -> Memory:
    cells = list(memory)
    for cell, value in changes:
        cells[places[cell]] = value
    return tuple(cells)


def _load(operation: Operation, memory: Memory, places: Mapping[str, int]) -> Done:
    return Done(memory[places[operation.cell]], memory)


def _store(operation: Operation, memory: Memory, places: Mapping[str, int]) -> Done:
    return Done(None, _written(memory, places, ((operation.cell, operation.first), *operation.ghost)))


def _cas(operation: Operation, memory: Memory, places: Mapping[str, int]) -> Done:
    if memory[places[operation.cell]] != operation.first:
        return Done(answer=False, memory=memory)
    changes = ((operation.cell, operation.second), *operation.ghost)
    return Done(answer=True, memory=_written(memory, places, changes))


def _swap(operation: Operation, memory: Memory, places: Mapping[str, int]) -> Done:
    seen = memory[places[operation.cell]]
    won = seen == operation.first
    return Done(seen, _written(memory, places, ((operation.cell, operation.second),)) if won else memory)


def _add(operation: Operation, memory: Memory, places: Mapping[str, int]) -> Done:
    old = memory[places[operation.cell]]
    return Done(old, _written(memory, places, ((operation.cell, old + operation.first),)))


def _take(operation: Operation, memory: Memory, places: Mapping[str, int]) -> Done | None:
    value = memory[places[operation.cell]]
    return Done(value, _written(memory, places, ((operation.cell, 0),))) if value else None


def _until_not(operation: Operation, memory: Memory, places: Mapping[str, int]) -> Done | None:
    value = memory[places[operation.cell]]
    return Done(value, memory) if value != operation.first else None


def _lock(operation: Operation, memory: Memory, places: Mapping[str, int]) -> Done | None:
    if memory[places[operation.cell]] != FREE:
        return None
    return Done(None, _written(memory, places, ((operation.cell, operation.first),)))


def _held(operation: Operation, memory: Memory, places: Mapping[str, int]) -> Done:
    return Done(memory[places[operation.cell]] not in {FREE, operation.first}, memory)


def _pause(_operation: Operation, memory: Memory, _places: Mapping[str, int]) -> Done:
    return Done(None, memory)


def _wake(operation: Operation, memory: Memory, places: Mapping[str, int]) -> Done:
    sleepers = [
        name for name, place in places.items() if name.startswith("asleep.") and memory[place] == operation.cell
    ]
    return Done(None, _written(memory, places, tuple((name, FREE) for name in sleepers)) if sleepers else memory)


def _sleep(operation: Operation, memory: Memory, places: Mapping[str, int]) -> Done:
    value = memory[places[operation.cell]]
    if (value[0] if isinstance(value, tuple) else value) != operation.first:
        return Done(answer=False, memory=memory)
    return Done(answer=True, memory=_written(memory, places, ((operation.second, operation.cell),)))


def _sleeping(operation: Operation, memory: Memory, places: Mapping[str, int]) -> Done | None:
    if memory[places[operation.cell]] == FREE:
        return Done(None, memory)
    return Done(None, _written(memory, places, ((operation.cell, FREE),))) if operation.first else None


_PERFORM: Final[dict[str, Callable[[Operation, Memory, Mapping[str, int]], Done | None]]] = {
    "load": _load,
    "store": _store,
    "cas": _cas,
    "swap": _swap,
    "add": _add,
    "take": _take,
    "until_not": _until_not,
    "lock": _lock,
    "held": _held,
    "pause": _pause,
    "wake": _wake,
    "sleep": _sleep,
    "sleeping": _sleeping,
}
