"""A process that sends to entities of a PostgreSQL store until it is killed, whatever happens to the server meanwhile.

It says what `store_writer` says: `asked <key> <entity>` before each send, `kept <key> <entity> <version> <outcome>`
after its receipt. It differs in patience: a server that recovers is waited for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from multiprocessing.connection import Connection
from typing import TypeVar

from interlock.assemble.runtimes import open as opening
from interlock.errors import ConflictError, InterlockError, UnavailableError
from interlock.runtime.runtime import Runtime
from interlock.stores.postgres import connection
from tests.crash.kills.store_writer import entity_of, parcels
from tests.support.eventually import PATIENCE_SECONDS

T = TypeVar("T")


def insists(pipe: Connection, url: str, name: str, starts: tuple[int, ...], fault: str) -> None:
    """Sends without end, a task per start; the caller ends the process.

    The fault `unsynced` does not wait for the flush; only a server that ends at once can show it.
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
    """The answer of a call that is made until the server is there: that is what keys are for."""
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return await call()
        except (ConflictError, UnavailableError):
            if time.monotonic() > end:
                raise
            await asyncio.sleep(0.02)
