"""The services, in a process on loopback that outlives every worker and fails as services fail.

One request per connection, one line of JSON each way. A seeded random number decides for each key whether the operation
is refused for good or done; some calls are cut off before or after the operation, or exceed every timeout.
Rule: no call fails more than `TROUBLES_MAX` times, so a caller that retries succeeds in the end.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections import Counter
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from interlock.errors import RejectedError, UnavailableError
from tests.crash.chaos.ledger import Ledger, RefusedError

HOST = "127.0.0.1"
TROUBLES_MAX = 2
REFUSED = 0.12
"""The part of operations that is refused: each refusal is a saga that must be compensated."""
TROUBLED = 0.3
TROUBLES = ("cut before", "cut after", "late", "late answer")


class Town:
    """All services, with their ledger."""

    def __init__(self, seed: int, slow_s: float, *, kind: bool = False) -> None:
        self.ledger = Ledger()
        self._chance = random.Random(seed)
        self._slow_s = slow_s
        self._refused, self._troubled = (0.0, 0.0) if kind else (REFUSED, TROUBLED)
        self._troubles: Counter[str] = Counter()
        self._decided: set[str] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handle one request."""
        with suppress(OSError, ValueError):  # the client may have been killed in the middle of a line
            request = json.loads(await reader.readline())
            answer = await self._answer(request)
            if answer is not None:
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    async def _answer(self, request: dict[str, str]) -> dict[str, Any] | None:
        """Return the answer; None to cut the connection."""
        if request["ask"] == "book":
            return self.ledger.book()
        trouble = self._trouble(request)
        if trouble == "cut before":
            return None
        if trouble == "late":
            await asyncio.sleep(self._slow_s)
        answer = self._perform(request)
        if trouble == "late answer":
            await asyncio.sleep(self._slow_s)
        return None if trouble == "cut after" else answer

    def _trouble(self, request: dict[str, str]) -> str | None:
        call = f"{request['ask']} {request['name']}"
        if request.get("plainly") or self._troubles[call] >= TROUBLES_MAX or self._chance.random() >= self._troubled:
            return None
        self._troubles[call] += 1
        trouble = self._chance.choice(TROUBLES)
        self.ledger.counts[trouble] += 1
        return trouble

    def _perform(self, request: dict[str, str]) -> dict[str, Any]:
        name = request["name"]
        if request["ask"] == "undo":
            self.ledger.undo(name)
            return {}
        if request["ask"] == "find":
            return {"number": self.ledger.find(name)}
        if name not in self._decided:
            self._decided.add(name)
            if name not in self.ledger.closed and self._chance.random() < self._refused:
                self.ledger.refuse(name)
        try:
            return {"number": self.ledger.do(request["operation"], name, request["entity"])}
        except RefusedError:
            return {"refused": True}


class Line:
    """The services as a handler uses them: a call may be refused, or fail."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def do(self, operation: str, key: str, entity: str) -> str:
        """Do it once per key. Raises RejectedError when it is refused, UnavailableError without an answer."""
        answer = await self._request(ask="do", operation=operation, name=key, entity=entity)
        if answer.get("refused"):
            raise RejectedError(f"no {operation} for {entity}", code=f"{operation}.refused")
        number: str = answer["number"]
        return number

    async def undo(self, name: str, *, plainly: bool = False) -> None:
        """Undo an operation; `plainly`: without failures."""
        await self._request(ask="undo", name=name, plainly=plainly)

    async def find(self, key: str) -> str | None:
        """Return the number of the operation of a key."""
        number: str | None = (await self._request(ask="find", name=key))["number"]
        return number

    async def book(self) -> dict[str, Any]:
        """Return the whole ledger."""
        return await self._request(ask="book")

    async def _request(self, **request: Any) -> dict[str, Any]:
        try:
            reader, writer = await asyncio.open_connection(HOST, self._port, limit=1 << 26)
            try:
                writer.write(json.dumps(request).encode() + b"\n")
                line = await reader.readline()
            finally:
                writer.close()
        except OSError as error:
            raise UnavailableError(f"the connection failed: {error}", code="bank.unreachable") from error
        if not line:
            raise UnavailableError("the connection was cut", code="bank.unreachable")
        answer: dict[str, Any] = json.loads(line)
        return answer


def serves(pipe: Connection, seed: int, slow_s: float, kind: bool = False) -> None:
    """Run the process: report the port, and serve until killed; `kind`: without refusals and failures."""
    asyncio.run(_serve(pipe, Town(seed, slow_s, kind=kind)))


async def _serve(pipe: Connection, town: Town) -> None:
    server = await asyncio.start_server(town.serve, HOST, 0)
    asyncio.get_running_loop().add_reader(pipe.fileno(), os._exit, 1)  # the parent has ended
    pipe.send_bytes(str(server.sockets[0].getsockname()[1]).encode())
    await server.serve_forever()
