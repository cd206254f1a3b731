"""The deque of Chase and Lev with a fixed capacity: its owner pushes and pops at the bottom, thieves steal at the top.

push   load top; full: refused. Store the item, store bottom + 1.
pop    store bottom - 1; load top. Above top: mine. At top, the last one: a swap of top decides. Below: empty.
steal  load top, load bottom; read the item; a swap of top decides.

Every item is taken exactly once, or is in the deque at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tests.model.explorer import Cells, Configuration, Model, Process
from tests.model.operations import Script, cas, load, store

CAPACITY: Final = 2


def model(*, program: str, thieves: int, fault: str = "") -> Model:
    """Return an owner that runs a program of `u` (push) and `o` (pop), and thieves that each try to steal twice."""
    processes = [Process("owner", lambda: _own(program, fault))]
    processes += [Process(f"thief {number}", lambda: _thieve(fault)) for number in range(thieves)]
    return Model(
        memory={"top": 0, "bottom": 0} | {f"item {number}": 0 for number in range(CAPACITY)},
        processes=tuple(processes),
        unsafe=lambda cells, where: None,
        unsettled=_unsettled,
    )


CONFIGURATIONS: Final[dict[str, Configuration]] = {
    "2 in, 2 out, 2 thieves": lambda fault: model(program="uuoo", thieves=2, fault=fault),
    "3 in, 3 out, 2 thieves": lambda fault: model(program="uuouoo", thieves=2, fault=fault),
    "more in than fit, 2 thieves": lambda fault: model(program="uuuoo", thieves=2, fault=fault),
}

_TWICE = "an item is taken twice"

FAULTS: Final = {
    "last item without a swap": ("2 in, 2 out, 2 thieves", _TWICE),
    "pop loads top first": ("2 in, 2 out, 2 thieves", _TWICE),
    "thief reads after its swap": ("3 in, 3 out, 2 thieves", _TWICE),
    "thief loads bottom first": ("2 in, 2 out, 2 thieves", _TWICE),
    "full is not checked": ("more in than fit, 2 thieves", _TWICE),
}


def _unsettled(cells: Cells, results: Mapping[str, Any]) -> str | None:
    pushed, _ = results["owner"]
    taken = [item for each in (results["owner"][1], *(v for k, v in results.items() if k != "owner")) for item in each]
    taken += [cells[f"item {place % CAPACITY}"] for place in range(cells["top"], cells["bottom"])]
    if len(taken) != len(set(taken)):
        return "an item is taken twice"
    return None if sorted(taken) == list(range(1, pushed + 1)) else "an item is lost"


def _own(program: str, fault: str) -> Script:
    pushed = 0
    taken: tuple[int, ...] = ()
    bottom = 0
    for place in range(len(program)):
        if program[place] == "u":
            top = yield load("top")
            if bottom - top < CAPACITY or fault == "full is not checked":
                pushed += 1
                yield store(f"item {bottom % CAPACITY}", pushed)
                bottom += 1
                yield store("bottom", bottom)
        else:
            item = yield from _pop(bottom, fault)
            if item:
                taken = (*taken, item)
            bottom = yield load("bottom")
    return pushed, taken


def _pop(bottom: int, fault: str) -> Script:
    lowered = bottom - 1
    if fault == "pop loads top first":
        top = yield load("top")
        yield store("bottom", lowered)
    else:
        yield store("bottom", lowered)
        top = yield load("top")
    if top > lowered:
        yield store("bottom", bottom)
        return None
    item = yield load(f"item {lowered % CAPACITY}")
    if top < lowered or fault == "last item without a swap":
        return item
    won = yield cas("top", top, top + 1)
    yield store("bottom", bottom)
    return item if won else None


def _thieve(fault: str) -> Script:
    first = yield from _steal(fault)
    second = yield from _steal(fault)
    return tuple(item for item in (first, second) if item)


def _steal(fault: str) -> Script:
    if fault == "thief loads bottom first":
        bottom = yield load("bottom")
        top = yield load("top")
    else:
        top = yield load("top")
        bottom = yield load("bottom")
    if top >= bottom:
        return None
    place = f"item {top % CAPACITY}"
    if fault == "thief reads after its swap":
        return (yield load(place)) if (yield cas("top", top, top + 1)) else None
    item = yield load(place)
    return item if (yield cas("top", top, top + 1)) else None
