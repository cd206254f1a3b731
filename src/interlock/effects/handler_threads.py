"""Plain functions in threads of their own, for handlers that wait in the ordinary way.

Rule 1: a thread cannot be stopped. Whoever gives an attempt up leaves its thread running, and it counts until it ends:
beyond `THREADS_MAX` nothing is begun, and the work waits in the store.
Rule 2: threads hold no process up: what one was doing when its process ended is done again elsewhere, under its key.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any

from interlock.effects.user_functions import as_exception
from interlock.model.limits import THREADS_MAX
from interlock.ports.threads import start_thread


class HandlerThreads:
    """Runs functions in threads, and knows how many still run."""

    def __init__(self, threads_max: int = THREADS_MAX) -> None:
        self._threads_max = threads_max
        self._names = count()
        self._running: set[asyncio.Future[None]] = set()

    def __len__(self) -> int:
        return len(self._running)

    @property
    def is_full(self) -> bool:
        """Whether one more would be one too many."""
        return len(self._running) >= self._threads_max

    def run(self, function: Callable[[], Any]) -> tuple[asyncio.Future[Any], asyncio.Future[None]]:
        """What the function will return, which may be cancelled, and its end, which may not. Not when it is full.

        Raises UnavailableError when the system refuses the thread; then nothing was called.
        """
        assert not self.is_full
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        ended: asyncio.Future[None] = loop.create_future()
        context = contextvars.copy_context()

        def work() -> None:
            result, error = _called(context, function)
            with suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits
                loop.call_soon_threadsafe(_tell, answer, ended, result, error)

        start_thread(threading.Thread(target=work, name=f"interlock-handler-{next(self._names)}", daemon=True))
        self._running.add(ended)  # its end is told in this loop, later
        ended.add_done_callback(self._running.discard)
        return answer, ended


def _called(context: contextvars.Context, function: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return context.run(function), None
    except StopIteration as error:  # a future cannot hold one: whoever waits for it would wait for ever
        failed = RuntimeError("the handler raised StopIteration")
        failed.__cause__ = error
        return None, failed
    except BaseException as error:  # noqa: BLE001 - a thread has nobody else to tell, not even of SystemExit
        return None, as_exception(error)


def _tell(answer: asyncio.Future[Any], ended: asyncio.Future[None], result: Any, error: BaseException | None) -> None:
    ended.set_result(None)
    if answer.done():  # given up
        return
    if error is None:
        answer.set_result(result)
    else:
        answer.set_exception(error)
