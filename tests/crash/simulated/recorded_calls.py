"""The calls of one caller to a store in a simulated world, each recorded as a moment."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

from interlock.ports.store import Duplicate
from interlock.stores.files.blocking_store import BlockingFileStore
from interlock.stores.files.durable_io import Settings
from tests.crash.life import ENTITY, Ledger, append_blindly, opened, send, violations
from tests.crash.simulated.file_system import Simulated, World

FAULTS = (errno.EIO, errno.ENOSPC, Simulated.SHORT)
Processes = Callable[[World, int], Simulated]
Family = Callable[[Processes], Iterator["Moment"]]
Judge = Callable[[World, Ledger, str | None], list[str]]


@dataclass
class Moment:
    """A world as it was at one call, what the caller knew then, and the key it was sending.

    `judge` holds what a crash left of it against that.
    """

    world: World
    ledger: Ledger
    key: str | None
    judge: Judge


class Mutant(NamedTuple):
    """A faulty store: its processes, what is patched while they run, and the family of crashes that finds it."""

    processes: Processes
    patched: Callable[[], AbstractContextManager[Any]] = nullcontext
    shown_by: str = "one"


class Story:
    """The calls of one caller to a store; each call of watched processes is recorded as a moment."""

    def __init__(self, processes: Processes, settings: Settings) -> None:
        self.world = World()
        self.ledger = Ledger()
        self.moments: list[Moment] = []
        self.key: str | None = None
        self.settings = settings
        self._processes = processes

    def opened(self, fs: Simulated) -> BlockingFileStore:
        """A process that opens the store."""
        return opened(fs, self.settings)

    def judged(self, world: World, ledger: Ledger, retry: str | None) -> list[str]:
        """What is wrong after a crash."""
        return violations(world, ledger, retry=retry, settings=self.settings)

    def process(self, number: int, *, watched: bool) -> Simulated:
        """A process of this story."""
        fs = self._processes(self.world, number)
        if watched:
            self.watch(fs)
        return fs

    def watch(self, fs: Simulated) -> None:
        """Record every call of this process from now on."""
        fs.watch = lambda _: self.note()

    def note(self) -> None:
        """Record the moment."""
        self.moments.append(Moment(self.world.copy(), self.ledger.copy(), self.key, self.judged))

    def append(self, journals: BlockingFileStore, key: str, version: int) -> None:
        """One append of a version that is known."""
        self.key = key
        append_blindly(journals, self.ledger, key, version)
        self.key = None

    def send(self, journals: BlockingFileStore, key: str) -> None:
        """One append of the next version."""
        self.key = key
        send(journals, self.ledger, key)
        self.key = None

    def ask(self, journals: BlockingFileStore, key: str) -> None:
        """Ask whether a key was appended: a yes is an acknowledgement."""
        answer = journals.load(ENTITY, key=key)
        if isinstance(answer, Duplicate):
            self.ledger.acknowledged[key] = answer.version

    def life(self, fs: Simulated) -> None:
        """Open, append past a snapshot, send a key twice, close."""
        journals = self.opened(fs)
        for version in range(1, 4):
            self.append(journals, f"k{version}", version)
        self.send(journals, "k3")
        self.append(journals, "k4", 4)
        self.append(journals, "k5", 5)
        journals.close()
        self.note()


def simulated(world: World, number: int) -> Simulated:
    """A process without a fault."""
    return Simulated(world, process=number)


class SnapshotFailedError(Exception):
    """A snapshot failed in a world without faults."""


class JournalChangedError(Exception):
    """The caller got an error, and yet the journal changed."""
