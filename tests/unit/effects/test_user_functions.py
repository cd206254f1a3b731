"""Functions of users that raise what usually ends more than themselves."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import warnings
from typing import Any

import pytest

from interlock.effects.handlers import Attempt
from interlock.effects.retry import HandlerFailed
from interlock.effects.user_functions import call_in_loop, result_of
from interlock.ports.work import Settlement
from tests.unit.effects.scene import NOW, ONE, Scene, invoke


class Odd(BaseException):
    """Of a library that wants to get past every `except Exception`."""


EXITS = [SystemExit(3), GeneratorExit("closed"), Odd("timeout")]
NAMES = ["SystemExit", "GeneratorExit", "Odd"]


@pytest.mark.parametrize("error", EXITS, ids=NAMES)
@pytest.mark.parametrize("plain", [False, True], ids=["coroutine", "thread"])
async def test_a_handler_that_raises_system_exit_has_failed(
    error: BaseException, plain: bool, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene()

    async def leave(attempt: Attempt) -> None:
        raise error

    def leave_thread(attempt: Attempt) -> None:
        raise error

    with caplog.at_level(logging.WARNING, "interlock.effects"):
        await scene.performed(leave_thread if plain else leave, invoke())
    ((_, data, fenced),) = scene.delivered()

    assert (type(error).__name__, "unknown", True) == (data["code"], data["done"], fenced)
    assert repr(error) in data["message"]
    assert ["a handler raised"] == [each.getMessage() for each in caplog.records]


async def test_a_handler_that_raises_system_exit_is_retried() -> None:
    scene, held = Scene(), invoke(retry=ONE)

    async def leave(attempt: Attempt) -> None:
        await asyncio.sleep(0)
        sys.exit("no licence")

    settled = await scene.performed(leave, held)

    assert settled is not None
    assert Settlement(held.claim, "again", NOW + 1_000, settled.error) == settled
    assert "SystemExit" == settled.error["code"]


async def test_cancelling_a_call_is_not_a_failure() -> None:
    started = asyncio.Event()

    async def wait(_: None) -> None:
        started.set()
        await asyncio.Event().wait()

    task = asyncio.ensure_future(call_in_loop(wait, None))
    await started.wait()
    task.cancel()
    await asyncio.wait({task})

    assert task.cancelled()


async def test_a_call_cancelled_before_it_starts_leaves_no_coroutine() -> None:
    started = []

    async def begin(given: str) -> None:
        started.append(given)

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        task = asyncio.ensure_future(call_in_loop(begin, "now"))
        task.cancel()
        await asyncio.wait({task})
        gc.collect()

    assert ([], []) == (started, [str(each.message) for each in told if issubclass(each.category, RuntimeWarning)])


async def test_closing_a_call_is_not_a_failure() -> None:
    ends = []

    async def wait(_: None) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ends.append("closed")

    call = call_in_loop(wait, None)
    call.send(None)
    call.close()

    assert ["closed"] == ends


async def test_results_and_exceptions_are_passed_on_unchanged() -> None:
    async def give(value: Any) -> Any:
        if isinstance(value, Exception):
            raise value
        return value

    lost = LookupError("lost")
    found = [asyncio.ensure_future(call_in_loop(give, value)) for value in (3, lost)]
    await asyncio.wait(found)

    assert 3 == result_of(found[0])
    with pytest.raises(LookupError) as raised:
        result_of(found[1])
    assert lost is raised.value


async def test_a_converted_exit_keeps_its_cause() -> None:
    error = SystemExit(3)

    async def leave(_: None) -> None:
        raise error

    with pytest.raises(HandlerFailed) as raised:
        await call_in_loop(leave, None)

    assert (error, "SystemExit") == (raised.value.__cause__, raised.value.failure.code)


class Mute:
    """What an exception may hold, and cannot be shown: such as a row whose connection is closed."""

    def __repr__(self) -> str:
        raise LookupError("the row is detached")


@pytest.mark.parametrize(
    "error",
    [ValueError(Mute()), Odd(Mute()), ValueError("half \udcff"), Odd("half \udcff")],
    ids=["mute", "odd and mute", "half a character", "odd half a character"],
)
@pytest.mark.parametrize("plain", [False, True], ids=["coroutine", "thread"])
async def test_an_exception_whose_text_raises_is_a_failure(
    error: BaseException, plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("interlock.effects"), "disabled", True)  # no report can carry such a text
    scene = Scene()

    async def fail(attempt: Attempt) -> None:
        raise error

    def fail_thread(attempt: Attempt) -> None:
        raise error

    await scene.performed(fail_thread if plain else fail, invoke())
    ((_, data, _),) = scene.delivered()

    assert type(error).__name__ == data["code"]
    assert data["message"].isprintable(), "it can be kept"
