"""Writers killed one after the other, a server process killed under them, and the server itself stopped at once.

The promise is the same as for every store: what was acknowledged is in the journals, once. The server is one of its
own, and flushes.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from contextlib import suppress

from interlock.errors import InterlockError
from tests.crash.kills.forked_workers import started
from tests.crash.kills.postgres_writers import insists, waited
from tests.crash.kills.storm import WRITERS, Outcome, Writer, born, hear, judge
from tests.support.postgres_server import Server

LINES_MAX = 40
"""How much is heard between two kills, at most."""


class Insisting(Writer):
    """A writer that waits for a server that is away."""

    def start(self) -> None:
        """Begin, each task at its first key that was not acknowledged."""
        self._under_way.clear()
        self.has_spoken = False
        self.worker = started(insists, self._url, self._name, tuple(self._next), self._fault)


def postgres_storm(kills: int, *, seed: int = 1, fault: str = "") -> Outcome:
    """Kills writers so often; one of the server's processes after a third of that, the server after two thirds.

    Raises NoServerError where there is none. With a fault of `postgres_writers` the outcome must be bad.
    """
    server = Server(wal_writer_delay="10s")  # the server flushes when it is told to, not by chance
    try:
        server.start()
        return _stormed(server, kills, random.Random(seed), fault)
    finally:
        server.remove()


def _stormed(server: Server, kills: int, chance: random.Random, fault: str) -> Outcome:
    outcome = Outcome()
    url = server.url() + ("?unsafe=1" if fault else "")
    asyncio.run(born(url))
    fleet: list[Writer] = [Insisting(url, f"w{number}", fault, outcome) for number in range(WRITERS)]
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
                outcome.other.append(f"other: a writer ended by itself after {outcome.kills} kills")
                break
            victim = chance.choice([each for each in fleet if each.has_spoken] or fleet)  # not one that only begins
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
    """Kill -9 of a process that serves a writer: the server then ends all others, and recovers from its log."""
    serving = "SELECT pid FROM pg_stat_activity WHERE application_name = 'interlock'"
    pids = [int(row[0]) for row in server.asked(serving)]
    if pids:
        with suppress(ProcessLookupError):  # it ended meanwhile, with its writer
            os.kill(chance.choice(pids), signal.SIGKILL)
