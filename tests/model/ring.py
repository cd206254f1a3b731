"""A ring: bytes of one producer, read by one consumer, unit by unit (a unit is eight bytes).

push   need = 1 + parts; does it fit behind the head that was loaded last? Otherwise load the head; still not: full. A
       skip mark if the end of the ring is too short. Header, parts, and then the tail: the only visible step.
pop    load the tail, read header and parts, and store the head after the copy.

The successor of a killed producer takes the lock byte of the ring and continues at the published tail. Every message
that was published is read once, complete and in order; the ghosts `published` and `received` check it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from tests.model.explorer import WAITING, Cells, Configuration, Model, Process
from tests.model.operations import Script, load, lock, store, until_not

RING: Final = 8
PARTS: Final = 2  # a message takes three units, so that the third one does not fit before the end
SKIP: Final = "skip"
TORN: Final = "torn"


def model(*, messages: int, successor: bool = False, fault: str = "") -> Model:
    """Return a producer and a consumer; with a successor, the first producer may be killed at any step."""
    makers = ["first", "second"] if successor else ["first"]
    processes = [Process(name, partial(_produce, name, messages, fault)) for name in makers]
    processes.append(Process("consumer", lambda: _consume(fault)))
    memory: dict[str, Any] = {"tail": 0, "head": 0, "ring": "", "received": ()}
    memory |= {f"published {name}": 0 for name in makers} | {f"unit {place}": 0 for place in range(RING)}
    return Model(
        memory=memory,
        processes=tuple(processes),
        unsafe=lambda cells, where: _unsafe(cells, makers),
        unsettled=lambda cells, results: _unsettled(cells, results, makers),
        locks=("ring",),
        mortal=frozenset({"first"}),
        kills=int(successor),
    )


CONFIGURATIONS: Final[dict[str, Configuration]] = {
    "6 messages": lambda fault: model(messages=6, fault=fault),
    "4 messages, killed, 4 of the successor": lambda fault: model(messages=4, successor=True, fault=fault),
}

_KILLED = "4 messages, killed, 4 of the successor"
_TORN = "a torn message is read"

FAULTS: Final = {
    "tail before the bytes": ("6 messages", _TORN),
    "head before the copy": ("6 messages", _TORN),
    "no skip mark": ("6 messages", _TORN),
    "full is not checked": ("6 messages", _TORN),
    "successor starts at zero": (_KILLED, _TORN),
}


def _published(cells: Cells, makers: list[str]) -> list[str]:
    return [f"{name} {number}" for name in makers for number in range(cells[f"published {name}"])]


def _unsafe(cells: Cells, makers: list[str]) -> str | None:
    received = list(cells["received"])
    if TORN in received:
        return "a torn message is read"
    return None if received == _published(cells, makers)[: len(received)] else "a message is lost, doubled or misplaced"


def _unsettled(cells: Cells, results: Mapping[str, Any], makers: list[str]) -> str | None:
    if results["first"] == WAITING or results.get("second") == WAITING:
        return None  # the first producer is alive and holds the ring, or the ring is full
    return None if list(cells["received"]) == _published(cells, makers) else "a published message is never read"


def _produce(me: str, messages: int, fault: str) -> Script:
    yield lock("ring", me)
    tail = 0 if fault == "successor starts at zero" else (yield load("tail"))
    head = yield load("head")
    for number in range(messages):
        room = RING - tail % RING
        need = 1 + PARTS
        skipped = room if room < need else 0
        while tail + skipped + need - head > RING and fault != "full is not checked":
            head = yield until_not("head", head)
        if skipped and fault != "no skip mark":
            yield store(f"unit {tail % RING}", SKIP)
        start = tail + skipped
        tail = start + need
        if fault == "tail before the bytes":
            yield store("tail", tail, ghost={f"published {me}": number + 1})
        yield store(f"unit {start % RING}", ("length", PARTS))
        for part in range(PARTS):
            yield store(f"unit {(start + 1 + part) % RING}", (f"{me} {number}", part))
        if fault != "tail before the bytes":
            yield store("tail", tail, ghost={f"published {me}": number + 1})


def _consume(fault: str) -> Script:
    head = 0
    received: tuple[str, ...] = ()
    while True:
        tail = yield until_not("tail", head)
        if tail < head:
            return  # it can only have been moved back
        while head < tail:
            unit = yield load(f"unit {head % RING}")
            if unit == SKIP:
                head += RING - head % RING
                continue
            if fault == "head before the copy":
                yield store("head", head + 1 + PARTS)
            message = yield from _copy(head, unit)
            head += 1 + PARTS
            received = (*received, message)
            yield store("head", head, ghost={"received": received})
            if message == TORN:
                return


def _copy(head: int, header: Any) -> Script:
    first = yield load(f"unit {(head + 1) % RING}")
    second = yield load(f"unit {(head + 2) % RING}")
    whole = header == ("length", PARTS) and isinstance(first, tuple) and first[1] == 0 and second == (first[0], 1)
    return first[0] if whole else TORN
