"""Writers are killed one after the other; then a backend process is killed, then the server is stopped immediately.

As for every store, each acknowledged entry is in the journals, once. The storm starts its own server, which flushes.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from contextlib import suppress

from interlock.errors import InterlockError
from tests.crash.kills.forked_workers import started
from tests.crash.kills.postgres_writers import waited, write_patiently
from tests.crash.kills.storm import WRITERS, Outcome, Writer, born, hear, judge
from tests.support.postgres_server import Server

LINES_MAX = 40
"""How much is heard between two kills, at most."""


class PatientWriter(Writer):
    """A writer that waits until the server is available."""

    def start(self) -> None:
        """Start each task at its first key that was not acknowledged."""
        self._under_way.clear()
        self.has_spoken = False
        self.worker = started(write_patiently, self._url, self._name, tuple(self._next), self._fault)


def postgres_storm(kills: int, *, seed: int = 1, fault: str = "") -> Outcome:
    """Kill writers, one backend after a third of the kills, and the server after two thirds.

    Raises NoServerError. With a fault of `postgres_writers` the storm must find it.
    """
    server = Server(wal_writer_delay="10s")  # the server flushes only on request
    try:
        server.start()
        return _stormed(server, kills, random.Random(seed), fault)
    finally:
        server.remove()


def _stormed(server: Server, kills: int, chance: random.Random, fault: str) -> Outcome:
    outcome = Outcome()
    url = server.url() + ("?unsafe=1" if fault else "")
    asyncio.run(born(url))
    fleet: list[Writer] = [PatientWriter(url, f"w{number}", fault, outcome) for number in range(WRITERS)]
    for each in fleet:
        each.start()
    try:
        while outcome.kills < kills:
            if outcome.kills == kills // 3:
                _kill_backend(server, chance)
            if outcome.kills == 2 * kills // 3:
                server.stop(immediate=True)
                server.start()
            if not hear(fleet, chance.randrange(1, LINES_MAX)):
                outcome.other.append(f"other: a writer ended without a kill after {outcome.kills} kills")
                break
            victim = chance.choice(
                [each for each in fleet if each.has_spoken] or fleet
            )  # not one that is still starting
            outcome.inside += victim.kill()
            outcome.kills += 1
            victim.start()
    finally:
        for each in fleet:
            each.kill()
    try:
        asyncio.run(waited(lambda: judge(url, outcome)))
    except (AssertionError, InterlockError) as error:  # a journal that cannot be read or replayed
        outcome.other.append(f"other: {error}")
    return outcome


def _kill_backend(server: Server, chance: random.Random) -> None:
    """Kill the backend of a writer: the server then ends all other backends, and recovers from its log."""
    serving = "SELECT pid FROM pg_stat_activity WHERE application_name = 'interlock'"
    pids = [int(row[0]) for row in server.asked(serving)]
    if pids:
        with suppress(ProcessLookupError):  # it ended meanwhile, with its writer
            os.kill(chance.choice(pids), signal.SIGKILL)
