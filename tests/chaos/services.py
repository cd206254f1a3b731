"""The services as a process of their own on loopback, which outlives every worker, and fails as services fail.

One request per connection, one line of JSON each way. Chance, seeded, decides about each key: a deed is refused for
good, or done; and some calls are cut off before or after the deed, or take longer than anybody waits.
Rule: no call is made to fail more than `TROUBLES_MAX` times, so whoever keeps asking is answered in the end.
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
from tests.chaos.ledger import Ledger, RefusedError

HOST = "127.0.0.1"
TROUBLES_MAX = 2
REFUSED = 0.12
"""How many deeds in a hundred are refused: each refusal is a saga that must be compensated."""
TROUBLED = 0.3
TROUBLES = ("cut before", "cut after", "late", "late answer")


class Town:
    """All services, with their book."""

    def __init__(self, seed: int, slow_s: float, *, kind: bool = False) -> None:
        self.ledger = Ledger()
        self._chance = random.Random(seed)
        self._slow_s = slow_s
        self._refused, self._troubled = (0.0, 0.0) if kind else (REFUSED, TROUBLED)
        self._troubles: Counter[str] = Counter()
        self._decided: set[str] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request."""
        with suppress(OSError, ValueError):  # whoever asked may have been killed in the middle of a word
            request = json.loads(await reader.readline())
            answer = await self._answered(request)
            if answer is not None:
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    async def _answered(self, request: dict[str, str]) -> dict[str, Any] | None:
        """The answer; None when the line is cut."""
        if request["ask"] == "book":
            return self.ledger.book()
        trouble = self._trouble(request)
        if trouble == "cut before":
            return None
        if trouble == "late":
            await asyncio.sleep(self._slow_s)
        answer = self._performed(request)
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

    def _performed(self, request: dict[str, str]) -> dict[str, Any]:
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
            return {"number": self.ledger.do(request["deed"], name, request["entity"])}
        except RefusedError:
            return {"refused": True}


class Line:
    """The services as a handler sees them: a call may be refused, or break."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def do(self, deed: str, key: str, entity: str) -> str:
        """Do it once per key. Raises RejectedError when it will not be done, UnavailableError when nobody answered."""
        answer = await self._asked(ask="do", deed=deed, name=key, entity=entity)
        if answer.get("refused"):
            raise RejectedError(f"no {deed} for {entity}", code=f"{deed}.refused")
        number: str = answer["number"]
        return number

    async def undo(self, name: str, *, plainly: bool = False) -> None:
        """Make up for a deed; `plainly`: by hand, without troubles."""
        await self._asked(ask="undo", name=name, plainly=plainly)

    async def find(self, key: str) -> str | None:
        """What was done under a key."""
        number: str | None = (await self._asked(ask="find", name=key))["number"]
        return number

    async def book(self) -> dict[str, Any]:
        """The whole ledger."""
        return await self._asked(ask="book")

    async def _asked(self, **request: Any) -> dict[str, Any]:
        try:
            reader, writer = await asyncio.open_connection(HOST, self._port, limit=1 << 26)
            try:
                writer.write(json.dumps(request).encode() + b"\n")
                line = await reader.readline()
            finally:
                writer.close()
        except OSError as error:
            raise UnavailableError(f"the line is dead: {error}", code="bank.unreachable") from error
        if not line:
            raise UnavailableError("the line was cut", code="bank.unreachable")
        answer: dict[str, Any] = json.loads(line)
        return answer


def serves(pipe: Connection, seed: int, slow_s: float, kind: bool = False) -> None:
    """The process: says its port, and serves until it is killed; `kind`: without refusals and troubles."""
    asyncio.run(_served(pipe, Town(seed, slow_s, kind=kind)))


async def _served(pipe: Connection, town: Town) -> None:
    server = await asyncio.start_server(town.serve, HOST, 0)
    asyncio.get_running_loop().add_reader(pipe.fileno(), os._exit, 1)  # its end: nobody is there to end us
    pipe.send_bytes(str(server.sockets[0].getsockname()[1]).encode())
    await server.serve_forever()
