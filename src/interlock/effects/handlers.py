"""Handlers: the work of named actions and invokes performed by registered functions, once per attempt.

Rule 1: a handler begins only after the entry that asks for it is durable: only committed work can be claimed.
Rule 2: a result ends the work in the entry that brings it. Success counts from any attempt, since the key was the same;
a failure only from the newest one.
Rule 3: a coroutine that takes too long is cancelled. A thread cannot be stopped, so its attempt is the last one: no
second run beside it.
Rule 4: a state that was left calls its invokes off: a coroutine is cancelled, unless it is a step of a saga, which must
know whether it was done. What succeeds all the same is told: the chart may have to make up for it.
Rule 5: a process that does not have the entity's chart does not begin: it could not bring the result back.
Rule 6: what a handler returns must be plain JSON of an event's size; anything else is an error that names it.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from inspect import iscoroutinefunction
from typing import Any

from msgspec import Struct

from interlock.effects.lane import Held
from interlock.effects.retry import (
    CALL_POLICY,
    Again,
    Failed,
    HandlerFailed,
    Policy,
    Spent,
    decided,
    failed_by,
    policy_of,
)
from interlock.errors import InterlockError, UsageError
from interlock.model.limits import ATTEMPTS_MAX, LOOK_MS_MAX, RUNNING_MAX
from interlock.model.payload import payload_refusal
from interlock.model.results import call_failed, invoke_done, invoke_failed
from interlock.ports.clock import Clock
from interlock.ports.driver import Driver
from interlock.ports.work import Claim, Settled

Handler = Callable[["Attempt"], Any]
"""A registered function: of an attempt, to its result; a coroutine function, or one that runs in a thread."""

_log = logging.getLogger("interlock.effects")


Elsewhere = Callable[[Handler, "Attempt"], Awaitable[Any]]
"""Runs a function for an attempt in another process."""


class Attempt(Struct, frozen=True):
    """One attempt at an effect, as a handler sees it.

    `key` is the same for every attempt: give it to the service that does the deed, so that a repeated one is done once.
    """

    entity: str
    name: str
    input: Any
    key: str
    number: int
    timeout_ms: int | None
    called_off: asyncio.Event

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for the result any more: the state that asked was left."""
        return self.called_off.is_set()


class Handlers:
    """Performs the work of one runtime's handlers."""

    def __init__(
        self,
        functions: Mapping[str, Handler],
        driver: Driver,
        clock: Clock,
        *,
        key_prefix: str = "",
        busy: frozenset[str] = frozenset(),
        elsewhere: Elsewhere | None = None,
    ) -> None:
        self._functions = functions
        self._busy = busy
        self._elsewhere = elsewhere
        self._driver = driver
        self._clock = clock
        self._key_prefix = key_prefix
        self._threads = ThreadPoolExecutor(RUNNING_MAX, thread_name_prefix="interlock-handler")

    @property
    def names(self) -> tuple[str, ...]:
        """The handlers there are: work for others waits."""
        return tuple(self._functions)

    def close(self) -> None:
        """Let the threads go; one that is still busy ends by itself."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def perform(self, held: Held) -> Settled | None:
        """One attempt: from claim to answer."""
        claim = held.claim
        if not await self._driver.is_here(claim.entity):  # the deed would be asked for, and its result be lost
            return Settled(claim, "again", self._clock.now_ms() + LOOK_MS_MAX, lapsed=True, begun=False)
        failed = self._before(claim)
        if failed is None:
            if claim.cancelled and not claim.work.is_saga_step:
                return Settled(claim, "done")  # its worker died after the state was left: nobody asks any more
            outcome = await self._attempted(held)
        else:
            outcome = Spent(failed)
        claim = held.claim
        if isinstance(outcome, _Later):
            return Settled(claim, "again", outcome.next_ms, error=_facts(claim, outcome.failed))
        if isinstance(outcome, Spent):
            return await self._spent(claim, outcome.failed)
        return await self._succeeded(claim, outcome.value)

    def _before(self, claim: Claim) -> Failed | None:
        """Why this attempt must not begin."""
        if claim.attempt > ATTEMPTS_MAX:
            return Failed("lapsed", f"its workers died {ATTEMPTS_MAX} times")
        lapsed = claim.attempt > claim.failures + 1
        if lapsed and claim.work.body.get("restore") == "fail":
            return Failed("interrupted", "its worker died, and the chart says not to begin again")
        if claim.cancelled and claim.work.is_saga_step:
            return Failed("lapsed", "the saga was left before it was known whether this was done")
        return None

    async def _attempted(self, held: Held) -> _Value | _Later | Spent:
        claim = held.claim
        function = self._functions[claim.work.name]
        attempt = Attempt(
            claim.entity,
            claim.work.name,
            claim.work.body.get("input"),
            self._key(claim),
            claim.attempt,
            claim.work.body.get("timeout_ms"),
            held.called_off,
        )
        try:
            result, finished = await self._run(function, attempt, stops=not claim.work.is_saga_step)
        except Exception as error:  # noqa: BLE001  # whatever a handler raises is its answer
            if not isinstance(error, InterlockError | HandlerFailed):
                _log.warning("a handler raised", exc_info=error, extra={"handler": claim.work.name})
            return self._decided(held.claim, failed_by(error))
        if finished is not None:
            return Spent(finished) if not iscoroutinefunction(function) else self._decided(held.claim, finished)
        problem = payload_refusal(result)
        if problem is not None:
            return Spent(Failed("result.malformed", f"what `{attempt.name}` returned cannot be kept: {problem}"))
        return _Value(result)

    async def _run(self, function: Handler, attempt: Attempt, *, stops: bool) -> tuple[Any, Failed | None]:
        """What the function returns; or, when it was stopped, why."""
        work = asyncio.ensure_future(self._called(function, attempt))
        waits: dict[asyncio.Future[Any], Failed] = {}
        if attempt.timeout_ms is not None:
            waits[asyncio.ensure_future(self._clock.sleep_ms(attempt.timeout_ms))] = Failed(
                "timeout", f"no answer in {attempt.timeout_ms} ms"
            )
        if stops:
            waits[asyncio.ensure_future(attempt.called_off.wait())] = Failed("cancelled", "the state was left")
        try:
            await asyncio.wait({work, *waits}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                work.cancel()
                await asyncio.wait({work})
            if not work.cancelled():
                return work.result(), None
            return None, next((why for each, why in waits.items() if each.done()), Failed("cancelled", "stopped"))
        finally:
            for each in (work, *waits):
                each.cancel()

    def _called(self, function: Handler, attempt: Attempt) -> Awaitable[Any]:
        if iscoroutinefunction(function):
            coroutine: Awaitable[Any] = function(attempt)
            return coroutine
        if attempt.name in self._busy:
            assert self._elsewhere is not None  # whoever says that some are busy says where they run
            return self._elsewhere(function, attempt)
        context = contextvars.copy_context()
        return asyncio.get_running_loop().run_in_executor(self._threads, context.run, _in_thread, function, attempt)

    def _decided(self, claim: Claim, failed: Failed) -> _Later | Spent:
        otherwise = CALL_POLICY if _is_call(claim) else Policy()
        answer = decided(
            policy_of(claim.work.body, otherwise=otherwise),
            failed,
            failures=claim.failures,
            attempts=claim.attempt,
            now_ms=self._clock.now_ms(),
            jitter=self._clock.jitter(),
        )
        return _Later(answer.next_ms, failed) if isinstance(answer, Again) else answer

    # Answers

    async def _succeeded(self, claim: Claim, value: Any) -> Settled | None:
        if _is_call(claim):
            return Settled(claim, "done")
        event = invoke_done(claim.work.body["id"], claim.key, value)
        receipt = await self._driver.deliver(
            claim.entity, event, key=claim.work.place.answer_key, answers=claim.work.place
        )
        return None if receipt.outcome == "applied" else Settled(claim, "done")

    async def _spent(self, claim: Claim, failed: Failed) -> Settled | None:
        """It failed for good: the chart hears, or else a person must."""
        if claim.cancelled and not claim.work.is_saga_step:
            return Settled(claim, "done")
        if _is_call(claim):
            event = call_failed(claim.work.name, self._key(claim), failed.code)
        else:
            event = invoke_failed(
                claim.work.body["id"],
                claim.key,
                failed.code,
                failed.message,
                done=failed.done,
                attempts=claim.attempt,
            )
        receipt = await self._driver.deliver(
            claim.entity, event, key=claim.work.place.answer_key, answers=claim.work.place, fence=claim.attempt
        )
        if receipt.outcome in ("applied", "duplicate"):
            return None
        if _is_call(claim):
            return Settled(claim, "dead", error=_facts(claim, failed))
        return Settled(claim, "done")

    def _key(self, claim: Claim) -> str:
        """The key that the handler sees: the author's, or that of the work; anew for each attempt where so asked."""
        body = claim.work.body
        key = body.get("key") or f"{self._key_prefix}{claim.key}"
        return f"{key}~{claim.attempt}" if body.get("restore") == "restart" else str(key)


class _Value(Struct, frozen=True):
    value: Any


class _Later(Struct, frozen=True):
    """The next attempt may begin at this time; why this one failed is kept for whoever asks meanwhile."""

    next_ms: int
    failed: Failed


def _facts(claim: Claim, failed: Failed) -> dict[str, Any]:
    return {"code": failed.code, "message": failed.message, "attempts": claim.attempt, "done": failed.done}


def _in_thread(function: Handler, attempt: Attempt) -> Any:
    """What the function returns. A future cannot hold a StopIteration: whoever waits for it would wait for ever."""
    try:
        return function(attempt)
    except StopIteration as error:
        raise RuntimeError("the handler raised StopIteration") from error


def _is_call(claim: Claim) -> bool:
    return "id" not in claim.work.body


def check_functions(functions: Mapping[str, Any]) -> None:
    """Every handler must be a function. Raises UsageError for one that is not."""
    for name, function in functions.items():
        if not callable(function):
            raise UsageError(f"the handler `{name}` is no function", code="handler.malformed")
