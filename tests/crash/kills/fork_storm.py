"""Processes that fork with an open store, in the middle of commits, while others send and some are killed.

In each round a parent opens a runtime and sends from a thread. It forks a child, which opens the same store and sends,
or is refused with `store.forked`; some children fork once more. Meanwhile the parent closes its runtime, or the parent
or the child is killed. A third process sends during the round or after it. At the end every journal is read: each
acknowledged entry is stored once, at its version. A child must never hang, and can always use a database that its
parent did not have open.

    make torture-fork FORKS=100        100 rounds on each store, as a table; `make torture` has the same rows
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple
from unittest.mock import patch

from interlock.assemble.runtimes import open as opening
from interlock.errors import ConflictError, InterlockError, UnavailableError, UsageError
from interlock.model.journal.entry import Receipt
from interlock.runtime.blocking import BlockingRuntime
from interlock.stores.sqlite import files
from tests.crash.kills.forked_workers import CONTEXT, Worker, started
from tests.crash.kills.store_writer import TRIES_MAX, entity_of, parcels
from tests.crash.kills.storm import Outcome, born, judge
from tests.crash.table import Row, Table
from tests.support.eventually import PATIENCE_SECONDS
from tests.support.postgres_server import NoServerError, new_schema

STORES = ("sqlite", "files", "postgres")

HANG_SECONDS = PATIENCE_SECONDS
"""How long a round may be silent. Then a process hangs, and is killed."""

CHILD_SENDS = 60
LINES_MAX = 30
"""Lines of a child, two for each send, before the parent closes or a process is killed; and after that, before the
child of a parent that has closed is killed."""

THIRD_SENDS = 8
OWN_SENDS = 3
STARTS = ("fork", "exit", "multiprocessing")
"""How a child comes and goes: fork and `_exit`; fork and a normal exit of the interpreter; `multiprocessing`."""

ENDS = ("close", "kill parent", "close, kill child", "kill child")
FAULTS = ("inherits",)
"""`inherits`: a child opens what its parent has open, without the check for forks, and does not notice that its
write-ahead log is deleted."""


class Plan(NamedTuple):
    """What happens in a round."""

    number: int
    start: str
    end: str
    before: int
    lines: int
    has_grandchild: bool
    is_third_late: bool
    fault: str


@dataclass
class Forks(Outcome):
    """The result of a storm, with the errors that children got when they opened the store."""

    rounds: int = 0
    refusals: Counter[str] = field(default_factory=Counter)
    children: int = 0
    child_sends: int = 0


class LineSender:
    """The writing end of the pipe of a round. All processes of the round share it; a line is one atomic write."""

    def __init__(self, pipe: Connection, name: str) -> None:
        self._pipe = pipe
        self._name = name

    def say(self, *words: object) -> None:
        """Send a line to the process that runs the round."""
        self._pipe.send_bytes(" ".join(map(str, (self._name, *words))).encode())

    def named(self, name: str) -> LineSender:
        """The same pipe for another process."""
        return LineSender(self._pipe, name)


# The processes of a round


def parent(pipe: Connection, orders: Connection, url: str, folder: str, plan: Plan) -> None:
    """Open the store, send from a thread, fork meanwhile, close on request, and wait for the child."""
    logging.disable(logging.CRITICAL)  # a child that is killed in the middle of a call is expected
    warnings.simplefilter("ignore", DeprecationWarning)  # newer interpreters warn about forks with threads
    lines = LineSender(pipe, f"{plan.number}p")
    lines.say("pid", os.getpid())
    runtime = opening(url, charts=[parcels()], work=False).blocking()
    reached, is_over = Event(), Event()
    sending = Thread(target=_send_on, args=(runtime, lines, plan.before, reached, is_over), daemon=True)
    sending.start()
    reached.wait()
    ended = _forked(plan, partial(child, runtime, lines.named(f"{plan.number}c"), url, folder, plan))
    runtime.state(entity_of(0))  # the parent continues
    if plan.end.startswith("close"):
        orders.recv_bytes()
        is_over.set()
        runtime.close()
        lines.say("closed")
    ended()
    os._exit(0)


def _send_on(runtime: BlockingRuntime, lines: LineSender, before: int, reached: Event, is_over: Event) -> None:
    number = 0
    try:
        while not is_over.is_set():
            _send(runtime, lines, number)
            number += 1
            if number == before:
                reached.set()
    except UnavailableError as error:
        if error.code not in {"runtime.closed", "store.closed"}:
            lines.say("other", error.code)
    except InterlockError as error:
        lines.say("other", error.code)
    finally:
        reached.set()


def child(runtime: BlockingRuntime, lines: LineSender, url: str, folder: str, plan: Plan, depth: int = 1) -> None:
    """Run the child. It cannot use the inherited store: it opens its own, or is refused. It also uses another store."""
    lines.say("pid", os.getpid())
    if plan.fault == "inherits":
        files._inherited.clear()
        patch.object(files.DatabaseFiles, "problem", lambda _: None).start()
    try:
        runtime.state(entity_of(0))
        lines.say("other", "the inherited runtime answered")
    except UsageError as error:
        if error.code != "runtime.forked":
            lines.say("other", error.code)
    runtime.close()
    try:
        with opening(url, charts=[parcels()], work=False).blocking() as own:
            for number in range(CHILD_SENDS):
                _send(own, lines, number)
    except InterlockError as error:
        lines.say("refused", error.code)
    path = Path(folder) / f"own-{plan.number}-{depth}.db"
    with opening(f"sqlite:///{path}", charts=[parcels()], work=False).blocking() as own:
        own.create(entity_of(0))
        versions = [own.send(entity_of(0), "noted", key=str(each)).version for each in range(OWN_SENDS)]
        if versions != list(range(2, OWN_SENDS + 2)):
            lines.say("other", f"its own store gave {versions}")
    if plan.has_grandchild and depth == 1:
        grandchild = lines.named(f"{plan.number}g")
        _forked(plan, partial(child, runtime, grandchild, url, folder, plan, depth=2))()
    lines.say("done")


def _forked(plan: Plan, work: Callable[[], None]) -> Callable[[], object]:
    """Start a child as planned; return a function that waits until it ends."""
    if plan.start == "multiprocessing":
        process = multiprocessing.get_context("fork").Process(target=work)
        process.start()
        return process.join
    pid = os.fork()
    if pid:
        return partial(os.waitpid, pid, 0)
    code = 1
    try:
        work()
        code = 0
    finally:
        if plan.start == "fork" or code:
            os._exit(code)
    sys.exit(0)  # all finalizers run


def _send(runtime: BlockingRuntime, lines: LineSender, number: int) -> Receipt:
    key, entity = f"{lines._name}.{number}", entity_of(number)
    lines.say("asked", key)
    for _ in range(TRIES_MAX - 1):
        with suppress(ConflictError):
            receipt = runtime.send(entity, "noted", key=key)
            break
    else:
        receipt = runtime.send(entity, "noted", key=key)
    lines.say("kept", key, entity, receipt.version)
    return receipt


def third(pipe: Connection, url: str, name: str) -> None:
    """Run the third process: send a few events."""
    logging.disable(logging.CRITICAL)
    lines = LineSender(pipe, name)
    try:
        with opening(url, charts=[parcels()], work=False).blocking() as runtime:
            for number in range(THIRD_SENDS):
                _send(runtime, lines, number)
    except InterlockError as error:
        lines.say("other", error.code)


# The round


def fork_storm(url: str, folder: Path, *, rounds: int, seed: int, fault: str = "") -> Forks:
    """Run rounds on one store while another process sends; then read everything."""
    chance = random.Random(seed)
    outcome = Forks()
    asyncio.run(born(url))
    for number in range(rounds):
        plan = Plan(
            number,
            STARTS[number % len(STARTS)],
            ENDS[number % len(ENDS)],
            chance.randrange(1, 12),
            chance.randrange(2, LINES_MAX),
            chance.random() < 0.3,
            number % 2 == 0,
            fault,
        )
        _run_round(url, folder, plan, outcome)
    try:
        asyncio.run(judge(url, outcome))
        asyncio.run(_verified(url, outcome))
    except (AssertionError, InterlockError) as error:  # a journal that cannot be read or replayed
        outcome.other.append(f"other: {error}")
    return outcome


def _run_round(url: str, folder: Path, plan: Plan, outcome: Forks) -> None:
    ours, theirs = CONTEXT.Pipe(duplex=False)
    waiting, orders = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=parent, args=(theirs, waiting, url, str(folder), plan))
    process.start()
    theirs.close()
    waiting.close()
    round_ = Round(plan, outcome, url, orders)
    try:
        while True:  # until all processes of the round have ended
            if not ours.poll(HANG_SECONDS):
                outcome.other.append(f"other: {plan} hangs after {round_.last}")
                round_.kill_all()
            round_.hear(ours.recv_bytes())
    except EOFError:
        pass
    finally:
        ours.close()
        process.join()
        process.close()
        round_.end()


class Round:
    """The lines that the processes of a round sent, and when to close or kill them."""

    def __init__(self, plan: Plan, outcome: Forks, url: str, orders: Connection) -> None:
        self._plan = plan
        self._outcome = outcome
        self._url = url
        self._orders = orders
        self._child, self._parent = f"{plan.number}c", f"{plan.number}p"
        self._pids: dict[str, int] = {}
        self._done: set[str] = set()
        self._answered: set[str] = set()
        self._lines = 0
        self._is_struck = self._is_closed = False
        self._third: Worker | None = None if plan.is_third_late else self._third_started()
        self.last = ""

    def hear(self, line: bytes) -> None:
        """Receive one line, and close or kill a process if it is time."""
        self.last = line.decode()
        who, what, *rest = self.last.split()
        outcome = self._outcome
        match what:
            case "pid":
                self._pids[who] = int(rest[0])
            case "asked":
                outcome.asked.add(rest[0])
            case "kept":
                outcome.kept[rest[0]] = (rest[1], int(rest[2]))
                outcome.child_sends += who.endswith(("c", "g"))
                self._answered.add(who)
            case "refused":
                outcome.refusals[rest[0]] += 1
                self._answered.add(who)
            case "done":
                self._done.add(who)
            case "closed":
                self._is_closed, self._lines = True, 0
                self._third = self._third or self._third_started()
            case _:
                outcome.other.append(f"other: {self.last} in {self._plan}")
        if who != self._child:
            return
        self._lines += 1
        if not self._is_struck and (self._lines >= self._plan.lines or what in {"refused", "done"}):
            self._is_struck, self._lines = True, 0
            self._strike()
        if self._is_closed and self._plan.end == "close, kill child" and self._lines == self._plan.lines:
            self._kill(self._child)

    def _strike(self) -> None:
        if self._plan.end.startswith("close"):
            self._orders.send_bytes(b"close")
            return
        self._kill(self._parent if self._plan.end == "kill parent" else self._child)
        self._third = self._third or self._third_started()

    def _third_started(self) -> Worker:
        return started(third, self._url, f"{self._plan.number}t")

    def _kill(self, who: str) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._pids[who], signal.SIGKILL)
            self._outcome.kills += 1

    def kill_all(self) -> None:
        """Kill processes that hang."""
        for who in self._pids:
            self._kill(who)

    def end(self) -> None:
        """Receive the lines of the third process, and record what is missing.

        A child that was not killed must have sent events or been refused, and must have ended.
        """
        self._orders.close()
        outcome = self._outcome
        for line in self._third.ended() if self._third is not None else ():
            self.hear(line)
        outcome.rounds += 1
        children = {who for who in self._pids if who != self._parent}
        outcome.children += len(children)
        if not self._plan.end.endswith("kill child"):
            unfinished = children - (self._done & self._answered)
            outcome.other += [f"other: {who} did not come to its end, {self._plan}" for who in unfinished]
        if not children or self._third is None:
            outcome.other.append(f"other: not all processes were there, {self._plan}")


async def _verified(url: str, outcome: Forks) -> None:
    async with opening(url, charts=[parcels()], work=False) as runtime:
        async for proof in runtime.verify_all():
            if proof.problem is not None:
                outcome.other.append(f"other: {proof.entity}: {proof.problem}")


# The table


def fork_row(store: str, folder: Path, rounds: int, *, seed: int = 1) -> Row | str:
    """Return the result of a storm on one kind of store, or the reason why it cannot run here."""
    folder.mkdir(parents=True)
    try:
        url = {"sqlite": f"sqlite:///{folder}/forks.db", "files": f"file://{folder}/forks"}.get(store) or new_schema()
    except NoServerError as error:
        return f"no PostgreSQL here: {error}"
    outcome = fork_storm(url, folder, rounds=rounds, seed=seed)
    return Row(outcome.rounds, [*outcome.found(), *unexpected(store, outcome)], summary(outcome))


def unexpected(store: str, outcome: Forks) -> list[str]:
    """Return unexpected answers to children of a store."""
    wrong = [f"other: {count} children got {code}" for code, count in outcome.refusals.items()]
    if store != "sqlite":
        return wrong
    wrong = [each for each in wrong if "store.forked" not in each]
    return wrong + [f"other: {outcome.child_sends} sends of children went through"] * (outcome.child_sends > 0)


def summary(outcome: Forks) -> str:
    """The figures of a storm."""
    refused = ", ".join(f"{count} {code}" for code, count in sorted(outcome.refusals.items())) or "none refused"
    return f"{outcome.children} children ({refused}), {outcome.kills} kills, {len(outcome.kept):,} receipts"


def is_found(fault: str, folder: Path) -> bool:
    """Whether a store with a fault loses entries, doubles versions or breaks within some rounds."""
    folder.mkdir(parents=True)
    return bool(fork_storm(f"sqlite:///{folder}/faulty.db", folder, rounds=8, seed=1, fault=fault).found())


def main(rounds: int) -> int:
    """Runs the storm on each store."""
    table = Table()
    table.head()
    with tempfile.TemporaryDirectory(prefix="interlock-forks-") as folder:
        for store in STORES:
            table.row(f"forks: {store}", partial(fork_row, store, Path(folder) / store, rounds))
        table.control("faulty stores by forks", FAULTS, lambda fault: is_found(fault, Path(folder) / fault))
    return table.foot()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100))
