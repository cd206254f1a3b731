"""A worker process of the deployment: it runs effects and timers, and answers requests of clients through a socket.

A request and its answer are one line of JSON each. The process ends orderly when the socket is closed, or is killed.

Faults, for the controls: `late definition` saves the definitions after some answers, not before the first entry;
`no sequence` lets entities move to any other revision; `own chart` steps each entity on the newest chart of the
process; `new key` forgets the key of a request.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from multiprocessing.connection import Connection
from typing import Any
from unittest.mock import patch

import interlock
from interlock.errors import InterlockError
from interlock.kernel.step import Kernel
from interlock.model.snapshot import Snapshot
from interlock.runtime.charts import upgrades
from interlock.runtime.charts.revisions import Revisions, restamped
from tests.crash.rolling.charts import Edition, Policy, parcels

LEASE_MS = 1_500
"""Short, so that work of a killed process is performed by another one soon."""

LATE_ANSWERS = 400
"""Answers of a process with a late definition before it saves."""

FAULTS = ("late definition", "no sequence", "own chart", "new key")


def serve(pipe: Connection, url: str, edition: Edition, policy: Policy, has_code: bool, fault: str) -> None:
    """Open the store and answer until the other end is closed."""
    logging.disable(logging.CRITICAL)  # other processes are killed in the middle of a call
    asyncio.run(_Server(url, edition, policy, has_code, fault).run(pipe))


class _Server:
    def __init__(self, url: str, edition: Edition, policy: Policy, has_code: bool, fault: str) -> None:
        self._url = url
        self._chart = parcels(edition, policy, has_code=has_code)
        self._fault = fault
        self._answers = 0
        self._late: list[Callable[[], Awaitable[object]]] = []

    async def run(self, pipe: Connection) -> None:
        connection = socket.socket(fileno=pipe.fileno())
        reader, writer = await asyncio.open_connection(sock=connection, limit=1 << 20)
        with _planted(self._fault, self._late):
            async with interlock.open(self._url, charts=[self._chart], lease_ms=LEASE_MS) as runtime:
                writer.write(b"{}\n")
                async with asyncio.TaskGroup() as requests:
                    while line := await reader.readline():
                        requests.create_task(self._answer(runtime, json.loads(line), writer))
        with suppress(OSError):
            writer.close()
        connection.detach()

    async def _answer(self, runtime: interlock.Runtime, request: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        try:
            answer = await self._perform(runtime, request)
        except InterlockError as error:
            answer = {"error": error.code, "class": type(error).__name__, "message": error.message}
        writer.write(json.dumps({"id": request["id"], **answer}).encode() + b"\n")
        self._answers += 1
        if self._answers >= LATE_ANSWERS and self._late:
            waiting, self._late[:] = list(self._late), []
            for save in waiting:
                await save()

    async def _perform(self, runtime: interlock.Runtime, request: dict[str, Any]) -> dict[str, Any]:
        key = None if self._fault == "new key" else request["key"]
        if request["event"] is None:
            receipt = await runtime.create(request["entity"], key=key)
        else:
            receipt = await runtime.send(request["entity"], request["event"], key=key)
        return {"outcome": receipt.outcome, "version": receipt.version, "reason": receipt.reason}


def _planted(fault: str, late: list[Callable[[], Awaitable[object]]]) -> AbstractContextManager[object]:
    """Return a context in which the process has the fault."""
    if fault == "late definition":
        original = Revisions._register_one

        async def register(self: Revisions, kernel: Kernel) -> Kernel:
            late.append(lambda: original(self, kernel))
            return restamped(kernel, upgrades.behaviour_of(kernel.chart), set())

        return patch.object(Revisions, "_register_one", register)
    if fault == "no sequence":
        return patch.object(upgrades, "is_later", lambda *_, **__: True)
    if fault == "own chart":
        found = Revisions.for_step

        async def own(self: Revisions, snapshot: Snapshot) -> Kernel:
            newest = self.charts.current(snapshot.kind)
            return await (found(self, snapshot) if newest is None else self.register(newest))

        return patch.multiple(Revisions, for_step=own, known=lambda *_: None)
    return nullcontext()
