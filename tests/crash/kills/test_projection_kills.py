"""A projection on SQLite whose runner is killed in the middle of batches, while entries are written.

`INTERLOCK_PROJECTION_KILLS=100` kills more often.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import interlock
from tests.crash.kills.projection_runner import LAMP, TABLE, count
from tests.support.eventually import eventually

KILLS = int(os.environ.get("INTERLOCK_PROJECTION_KILLS", "4"))


async def test_a_projection_equals_the_store_after_its_runners_were_killed(tmp_path: Path) -> None:
    path = tmp_path / "lamps.db"
    sent = {f"lamp/{number}": 0 for number in range(4)}
    async with interlock.open(f"sqlite:///{path}", charts=[interlock.loads(LAMP)], work=False) as lamps:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(TABLE)
        is_done = asyncio.Event()

        async def send(entity: str) -> None:
            await lamps.create(entity)
            sent[entity] += 1
            while not is_done.is_set() or sent[entity] < 10:
                await lamps.send(entity, "press")
                sent[entity] += 1
                await asyncio.sleep(0.001)

        senders = asyncio.ensure_future(asyncio.gather(*map(send, sent)))
        killed = 0
        for _ in range(KILLS):
            child = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.crash.kills.projection_runner", str(path), stdout=asyncio.subprocess.PIPE
            )
            assert child.stdout is not None
            for _ in range(2 + killed % 3):
                assert b"batch\n" == await child.stdout.readline()
            child.send_signal(signal.SIGKILL)
            killed += await child.wait() == -signal.SIGKILL
            with closing(sqlite3.connect(path)) as connection:  # as if its lease had expired
                connection.execute("UPDATE lease SET until_ms = 0 WHERE name = 'projection/counts'")
                connection.commit()
        is_done.set()
        await senders
        lamps.projection("counts")(count)

        def is_filled() -> bool:
            with closing(sqlite3.connect(path)) as connection:
                rows = connection.execute("SELECT entity, version, entries FROM lamp_versions").fetchall()
            return {row[0]: row[1:] for row in rows} == {entity: (number, number) for entity, number in sent.items()}

        await eventually(is_filled)
        (status,) = await lamps.projections()
        assert (KILLS, sum(sent.values()), None) == (killed, status.entries, status.error)
