"""Handlers that the tests of the pool run in its workers."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from time import monotonic
from typing import Any

from interlock.errors import DeniedError
from interlock.shm.pool.worker import spawn
from tests.support.eventually import eventually_blocking

not_callable = 5


def echo(value: Any) -> Any:
    """Return the argument."""
    return value


class WithoutText:
    """An object whose text cannot be computed."""

    def __repr__(self) -> str:
        raise LookupError("detached")


def obey(order: list[Any]) -> Any:
    """Run the command in the first item."""
    match order:
        case ["pid"]:
            return os.getpid()
        case ["raise", message]:
            raise LookupError(message)
        case ["deny"]:
            raise DeniedError("not you", code="test.denied", hint="ask an administrator")
        case ["exit"]:
            raise SystemExit(3)
        case ["interrupt"]:
            raise KeyboardInterrupt
        case ["half a character"]:
            raise ValueError("half \udcff")
        case ["mute"]:
            raise ValueError(WithoutText())
        case ["large", size]:
            return b"x" * size
        case ["strange"]:
            return object()
        case ["die"]:
            os.kill(os.getpid(), signal.SIGKILL)
        case ["die once", mark]:
            if not Path(mark).exists():
                Path(mark).touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return "survived"
        case ["hold", started, mark]:
            Path(started).write_text(str(os.getpid()))
            _await(mark)
            return os.getpid()
        case ["spawn", folder, depth]:
            Path(folder, f"{os.getpid()}-{depth}-{monotonic()}").touch()
            return depth and [spawn(["spawn", folder, depth - 1], priority=1) for _ in range(2)]
        case _:
            pass
    return None


async def never(_: object) -> None:
    """A coroutine function, which a pool refuses."""


def _await(mark: str) -> None:
    eventually_blocking(Path(mark).exists, "the mark that lets this handler go")
