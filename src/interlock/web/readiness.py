"""Whether a process is ready for work, and if not, why: what `/readyz` answers.

Rule 1: a process is ready when its store answers, this release can use its schema, and it does not drain.
Rule 2: a reason has a stable code. It never contains an address or a password of the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from msgspec import Struct

from interlock.effects.waiting import first_of
from interlock.errors import InterlockError, UsageError
from interlock.runtime.runtime import Runtime

ANSWER_MS_MAX = 2_000
"""How long the store may take to answer: probes give up after a few seconds themselves."""

SCHEMA_MS = 30_000
"""How often the schema is read: that needs a connection of its own."""


class Reason(Struct, frozen=True):
    """Why a process is not ready."""

    code: str
    text: str


class Readiness:
    """The readiness of one process, from its start to its end.

    `read_upgrade` returns the statements that the schema of the store lacks; it raises UsageError when this release
    cannot use the schema: `stores.registry.upgrade_script`.
    """

    def __init__(self, read_upgrade: Callable[[], Awaitable[str | None]]) -> None:
        self._read_upgrade = read_upgrade
        self._runtime: Runtime | None = None
        self._draining = False
        self._schema: tuple[Reason, ...] = ()
        self._schema_ms: int | None = None

    def open(self, runtime: Runtime) -> None:
        """From now on the store is open."""
        self._runtime = runtime
        runtime.on_drain(self.drain)

    def drain(self) -> None:
        """From now on the process drains."""
        self._draining = True

    async def reasons(self) -> tuple[Reason, ...]:
        """Return why the process is not ready; empty if it is."""
        runtime = self._runtime
        if self._draining:
            return (Reason("draining", "the process is draining and accepts no new events"),)
        if runtime is None:
            return (Reason("starting", "the store is not open yet"),)
        stopped = runtime.entities.process.stopped
        if stopped is not None:
            return (Reason(stopped.code, stopped.message),)
        if runtime.entities.is_closed:
            return (Reason("draining", "the runtime is closed"),)
        asked = asyncio.ensure_future(self._ask(runtime))
        await first_of(asyncio.shield(asked), runtime.clock.sleep_ms(ANSWER_MS_MAX))
        if not asked.done():
            asked.cancel()
            return (Reason("store.unreachable", f"the store did not answer within {ANSWER_MS_MAX:,} ms"),)
        return asked.result()

    async def _ask(self, runtime: Runtime) -> tuple[Reason, ...]:
        try:
            await runtime.store.kinds()
            now_ms = runtime.clock.now_ms()
            if self._schema_ms is None or not 0 <= now_ms - self._schema_ms < SCHEMA_MS:
                self._schema = await self._check_schema()
                self._schema_ms = now_ms
        except InterlockError as error:
            return (Reason("store.unreachable", f"the store cannot be read ({error.code})"),)
        return self._schema

    async def _check_schema(self) -> tuple[Reason, ...]:
        try:
            missing = await self._read_upgrade()
        except UsageError as error:
            if error.code != "schema.newer":
                raise
            return (Reason(error.code, "the store has a newer schema, which this release cannot use"),)
        return (Reason("schema.older", "the store lacks tables of this release"),) if missing else ()
