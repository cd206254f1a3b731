"""A process that is killed while it creates, fills and erases an entity. Run as a script: erasing.py ADDRESS KEYRING.

For each k, a child opens the store, creates `member/<k>` with a personal value and erases it, and is killed at the
k-th point: before or after a call by which the keys, the journal or the work of the store changes. Prints how many
children were killed before one finished, and the exit code of that one.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import interlock
from tests.crash.kills.sqlite_writers import say

EMAIL = "ada.canary@example.org"
KILLS_MAX = 200
MEMBER = """
interlock: 1
kind: member
context: {email: {type: string, nullable: true, personal: true}}
events: {join: {payload: {email: {type: string, personal: true}}}}
states: {out: {on: {join: {target: in, actions: [{assign: {email: = event.data.email}}]}}}, in: {}}
"""


class Countdown:
    """Kills its process at the k-th point."""

    def __init__(self, kill_at: int) -> None:
        self._left = kill_at

    def point(self) -> None:
        """Count a point."""
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1

    def around(self, call: Callable[..., Awaitable[Any]], times: int) -> Callable[..., Awaitable[Any]]:
        """Count the points before and after the first calls. Later ones finish the work of killed processes."""
        left = times

        async def counted(*arguments: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                return await call(*arguments, **named)
            self.point()
            answer = await call(*arguments, **named)
            self.point()
            return answer

        return counted


async def life(address: str, keyring: str, kill_at: int) -> None:
    """Create, fill and erase one entity; the process is killed during it, unless the life has fewer points."""
    countdown = Countdown(kill_at)
    async with interlock.open(address, charts=[interlock.loads(MEMBER)], keyring=keyring, work=False) as runtime:
        assert runtime.vault is not None
        for owner, calls in (
            (runtime.vault.keys, {"add_keys": 1, "destroy_key": 1}),
            (runtime.store, {"append": 3, "claim": 1, "settle": 1}),
        ):
            for name, times in calls.items():
                setattr(owner, name, countdown.around(getattr(owner, name), times))
        entity = f"member/{kill_at}"
        await runtime.create(entity, {"email": EMAIL})
        await runtime.send(entity, "join", {"email": EMAIL})
        await runtime.erase(entity, reason="a test", live=True)


async def _import_everything() -> None:
    async with interlock.open("memory:", charts=[interlock.loads(MEMBER)], work=False) as runtime:
        await runtime.create("member/0", {"email": EMAIL})
        await runtime.erase("member/0", reason="a test", live=True)


def main(address: str, keyring: str) -> None:
    """Start a child for each place to die at, until one finishes."""
    asyncio.run(_import_everything())  # once, before the children
    for kill_at in range(KILLS_MAX):
        child = os.fork()
        if child == 0:
            try:
                asyncio.run(life(address, keyring, kill_at))
            except BaseException as error:  # noqa: BLE001 - printed, and reported by the exit code
                os.write(2, repr(error).encode())
                os._exit(1)
            os._exit(0)
        _, ending = os.waitpid(child, 0)
        if not os.WIFSIGNALED(ending):
            say(kill_at, os.waitstatus_to_exitcode(ending))
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
