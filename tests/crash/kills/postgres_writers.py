"""A process that sends to entities of a PostgreSQL store until it is killed, and waits while the server is unavailable.

It reports as `store_writer` does: `asked <key> <entity>` before each send, `kept <key> <entity> <version> <outcome>`
after its receipt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import TypeVar

from interlock.assemble.runtimes import open as opening
from interlock.errors import ConflictError, InterlockError, UnavailableError
from interlock.runtime.runtime import Runtime
from interlock.stores.postgres import connection
from tests.crash.kills.store_writer import entity_of, parcels
from tests.support.eventually import eventually

T = TypeVar("T")


def write_patiently(pipe: Connection, url: str, name: str, starts: tuple[int, ...], fault: str) -> None:
    """Send until the process is killed, with one task per first key.

    The fault `unsynced` does not wait for the flush; only an immediate stop of the server reveals it.
    """
    if fault == "unsynced":
        connection.SETTINGS["synchronous_commit"] = "off"
    try:
        asyncio.run(_writing(pipe, url, name, starts))
    except InterlockError as error:
        pipe.send_bytes(f"failed {error}".encode())


async def _writing(pipe: Connection, url: str, name: str, starts: tuple[int, ...]) -> None:
    place = opening(url, charts=[parcels()])
    runtime = await waited(place.__aenter__)
    await asyncio.gather(*(_task(pipe, runtime, name, task, at) for task, at in enumerate(starts)))


async def _task(pipe: Connection, runtime: Runtime, name: str, task: int, at: int) -> None:
    while True:  # until it is killed
        key, entity = f"{name}.{task}.{at}", entity_of(task + at)
        pipe.send_bytes(f"asked {key} {entity}".encode())
        receipt = await waited(partial(runtime.send, entity, "noted", key=key))
        pipe.send_bytes(f"kept {key} {entity} {receipt.version} {receipt.outcome}".encode())
        at += 1


async def waited(call: Callable[[], Awaitable[T]]) -> T:
    """Repeat a call until the server answers; the key makes that safe."""
    answers: list[T] = []

    async def is_answered() -> bool:
        with suppress(ConflictError, UnavailableError):
            answers.append(await call())
        return bool(answers)

    await eventually(is_answered)
    return answers[0]
