"""The notifier: producers publish, and notify only if the consumer is asleep; only the consumer clears that.

Producer   publish; load `asleep`; if 1, notify. It never clears `asleep`.
Consumer   clear the notifier; store `asleep` = 0; drain. When all rings are empty: store `asleep` = 1, check every ring
           again, and only then wait for the notifier. A new consumer starts with the drain.
Loop       a consumer in an event loop receives a first batch as soon as it is notified, and then does the rest: clear
           the notifier; store `asleep` = 0; drain, and so on. It clears before the last check, never after.

A ring is a tail and a head here; `ring.py` has its bytes. The sleep has no limit: a message of a live producer must be
received without a timer. Messages of a killed producer without a notification are left to the timer.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from tests.model.explorer import DEAD, Cells, Configuration, Model, Process
from tests.model.operations import Script, add, cas, load, lock, store, take, until_not


def model(
    *, producers: int, messages: int, consumers: int = 1, kills: int = 0, loop: bool = False, fault: str = ""
) -> Model:
    """Return producers and consumers, of which one at a time holds the lock byte of the inbox.

    A consumer is a thread, or the task of an event loop.
    """
    consume = _consume_in_loop if loop else _consume
    processes = [
        Process(f"producer {number}", partial(_produce, number, messages, fault)) for number in range(producers)
    ]
    processes += [
        Process(f"consumer {number}", partial(consume, f"consumer {number}", producers, fault))
        for number in range(consumers)
    ]
    memory: dict[str, Any] = {"asleep": 0, "notifier": 0, "inbox": ""}
    for number in range(producers):
        memory |= {f"tail {number}": 0, f"head {number}": 0}
    return Model(
        memory=memory,
        processes=tuple(processes),
        unsafe=lambda cells, where: None,
        unsettled=_unsettled,
        locks=("inbox",),
        mortal=frozenset(process.name for process in processes if process.name != f"consumer {consumers - 1}"),
        kills=kills,
    )


CONFIGURATIONS: Final[dict[str, Configuration]] = {
    "2 producers of 2": lambda fault: model(producers=2, messages=2, fault=fault),
    "2 producers of 2, 1 kill": lambda fault: model(producers=2, messages=2, kills=1, fault=fault),
    "3 producers, 1 kill": lambda fault: model(producers=3, messages=1, kills=1, fault=fault),
    "2 producers, 2 consumers, 1 kill": lambda fault: model(producers=2, messages=1, consumers=2, kills=1, fault=fault),
    "2 producers of 2, loop": lambda fault: model(producers=2, messages=2, loop=True, fault=fault),
    "2 producers of 2, loop, 1 kill": lambda fault: model(producers=2, messages=2, kills=1, loop=True, fault=fault),
    "2 producers, 2 loops, 1 kill": lambda fault: model(
        producers=2, messages=1, consumers=2, kills=1, loop=True, fault=fault
    ),
}

_LOST = "lost notification: a live producer's message waits, the consumer sleeps"

FAULTS: Final = {
    "producer clears": ("2 producers of 2, 1 kill", _LOST),
    "producer checks first": ("2 producers of 2", _LOST),
    "no second check": ("2 producers of 2", _LOST),
    "notifier is cleared last": ("2 producers of 2", _LOST),
    "new consumer starts asleep": ("2 producers, 2 consumers, 1 kill", _LOST),
    "consumer never arms": ("2 producers of 2", _LOST),
    "loop clears the notifier after arming": ("2 producers of 2, loop", _LOST),
    "loop disarms after arming": ("2 producers of 2, loop", _LOST),
    "loop has no second check": ("2 producers of 2, loop", _LOST),
}


def _unsettled(cells: Cells, results: Mapping[str, Any]) -> str | None:
    live = [name.split()[1] for name, result in results.items() if name.startswith("producer") and result != DEAD]
    waiting = [number for number in live if cells[f"tail {number}"] > cells[f"head {number}"]]
    return _LOST if waiting else None


def _produce(number: int, messages: int, fault: str) -> Script:
    for message in range(1, messages + 1):
        asleep = 0
        if fault == "producer checks first":
            asleep = yield load("asleep")
        yield store(f"tail {number}", message)
        if fault == "producer clears":
            asleep = yield cas("asleep", 1, 0)
        elif fault != "producer checks first":
            asleep = yield load("asleep")
        if asleep:
            yield add("notifier", 1)
    return "sent"


def _consume(me: str, rings: int, fault: str) -> Script:
    yield lock("inbox", me)
    if fault != "new consumer starts asleep" or me == "consumer 0":
        yield from _drain(rings, fault)
    while True:
        if fault == "notifier is cleared last":
            yield until_not("notifier", 0)
        else:
            yield take("notifier")
        yield store("asleep", 0)
        yield from _drain(rings, fault)
        if fault == "notifier is cleared last":
            yield store("notifier", 0)


def _consume_in_loop(me: str, rings: int, fault: str) -> Script:
    yield lock("inbox", me)
    yield from _drain(rings, fault)
    while True:
        yield until_not("notifier", 0)
        yield from _first_batch(rings)
        if fault == "loop clears the notifier after arming":
            yield store("asleep", 0)
            yield from _drain(rings, fault)
            yield store("notifier", 0)
        elif fault == "loop disarms after arming":
            yield store("notifier", 0)
            yield from _drain(rings, fault)
            yield store("asleep", 0)
        else:
            yield store("notifier", 0)
            yield store("asleep", 0)
            yield from _drain(rings, "no second check" if fault == "loop has no second check" else fault)


def _first_batch(rings: int) -> Script:
    """All messages of one ring, with which the task is resumed; none, if they were received before."""
    for ring in range(rings):
        head = yield load(f"head {ring}")
        tail = yield load(f"tail {ring}")
        if tail > head:
            yield store(f"head {ring}", tail)
            return


def _drain(rings: int, fault: str) -> Script:
    while True:
        found = False
        for ring in range(rings):
            head = yield load(f"head {ring}")
            if (yield load(f"tail {ring}")) > head:
                found = True
                yield store(f"head {ring}", head + 1)
        if found:
            continue
        if fault == "consumer never arms":
            return
        yield store("asleep", 1)
        if fault == "no second check":
            return
        for ring in range(rings):
            head = yield load(f"head {ring}")
            if (yield load(f"tail {ring}")) > head:
                found = True
                break
        if not found:
            return
        yield store("asleep", 0)
