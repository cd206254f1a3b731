"""The one thread that writes a store of layout C: it takes what arrived, keeps it as one batch, then answers.

Rule 1: a batch is what arrived during the last flush, or in one round of an event loop; nothing else is waited for.
Receipts go out after the flush returned.
Rule 2: the queue is bounded; beyond it callers are told to come back, at once.
Rule 3: whatever happens to this thread, every waiting caller gets an answer.
Rule 4: checkpoints are made between batches: when the log is long, and when nothing arrives for a while.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from copy import copy
from threading import Lock, Thread
from typing import NamedTuple

from interlock.errors import InterlockError, InternalError, UnavailableError
from interlock.model.codec import encode
from interlock.ports.store import Append
from interlock.ports.threads import start_thread, thread_future
from interlock.stores.files.log_layout.layout import Answer, BatchedJournals
from interlock.stores.threads.wakeup import LoopEntryQueue, WakeupPipe

BATCH_STEPS_MAX = 1_024
"""Steps of one batch: there the flush is a hundredth of its cost, and more would only make the first ones wait."""

BATCH_BYTES_MAX = 4_194_304
"""Bytes of the entries of one batch (4 MiB), so that one write stays one write."""

QUEUE_MAX = 8_192
"""Steps waiting for the writer: a fraction of a second of work."""

IDLE_SECONDS = 1.0
"""Silence after which the journals are written, so that people and other processes find them up to date."""


class Waiting(NamedTuple):
    """A caller: what it wants kept, the bytes of its entry, and where it waits for the answer."""

    append: Append
    size: int
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Answer]


class Writer:
    """Takes appends from event loops, and keeps them."""

    def __init__(self, journals: BatchedJournals) -> None:
        self._journals = journals
        self._queue: deque[Waiting] = deque()
        self._guard = Lock()
        self._bell = WakeupPipe()
        self._loops = LoopEntryQueue()
        self._asleep = False
        self._is_closing = False
        self._thread = Thread(target=self._run, name="interlock-files-writer", daemon=True)
        start_thread(self._thread)

    async def append(self, append: Append) -> Answer:
        """Keep one step, if the entity still is at the expected version and its key is new."""
        loop = asyncio.get_running_loop()
        waiting = Waiting(append, len(encode(append.entry)), loop, thread_future(loop))
        self._loops.listen(loop)
        with self._guard:
            if self._is_closing:
                raise UnavailableError("the store is closed", code="store.closed")
            if len(self._queue) >= QUEUE_MAX:
                message = f"{QUEUE_MAX:,} steps wait for the writer already"
                raise UnavailableError(message, code="store.busy", hint="send again later with the same key")
            self._queue.append(waiting)
        if self._asleep:  # once those have come, too, who are about to in this round of the loop
            loop.call_soon(self._wake)
        return await waiting.future

    def _wake(self) -> None:
        """Ring for the thread if it sleeps; not under the guard, which it asks for first. Twice does no harm."""
        if self._asleep:
            self._asleep = False
            self._bell.ring()

    def close(self) -> None:
        """Ends the thread, after everything that waits has its answer."""
        with self._guard:
            self._is_closing = True
        self._bell.ring()
        self._thread.join()
        self._bell.close()
        self._loops.close()

    def _run(self) -> None:
        batch: list[Waiting] = []
        try:
            while (batch := self._taken()) or not self._is_closing:
                if batch:
                    self._give(batch, self._journals.commit([each.append for each in batch]))
                self._journals.settle(now=not batch)
        except BaseException as error:
            broken = InternalError(f"the writer of the store ended: {error!r}", code="store.writer")
            with self._guard:
                self._is_closing = True
                left = [*batch, *self._queue]
                self._queue.clear()
            self._give(left, [broken] * len(left))
            raise

    def _taken(self) -> list[Waiting]:
        """What arrived, up to a batch; nothing after a while of silence, or at the end."""
        while True:
            with self._guard:
                if self._queue or self._is_closing:
                    return self._batch()
                self._asleep = True
            if not self._bell.wait(IDLE_SECONDS):  # a ring that comes too late only makes it look once more
                with self._guard:
                    return self._batch()

    def _batch(self) -> list[Waiting]:
        batch: list[Waiting] = []
        size = 0
        while self._queue and len(batch) < BATCH_STEPS_MAX and size < BATCH_BYTES_MAX:
            batch.append(self._queue.popleft())
            size += batch[-1].size
        return batch

    def _give(self, batch: Iterable[Waiting], answers: Iterable[Answer | InterlockError]) -> None:
        """Hands out the answers, one call into each event loop."""
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Answer], Answer | InterlockError]]] = {}
        for waiting, answer in zip(batch, answers, strict=True):
            by_loop.setdefault(waiting.loop, []).append((waiting.future, answer))
        for loop, given in by_loop.items():
            self._loops.call(loop, _resolve, given)


def _resolve(given: list[tuple[asyncio.Future[Answer], Answer | InterlockError]]) -> None:
    for future, answer in given:
        if future.done():  # cancelled: the caller is gone, the step stands
            continue
        if isinstance(answer, InterlockError):
            future.set_exception(copy(answer))  # each caller its own: a traceback is added to what is raised
        else:
            future.set_result(answer)
