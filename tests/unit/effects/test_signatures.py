"""What can be a handler, and what is refused when it is registered."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import pytest

from interlock.effects.signatures import check_handler
from interlock.errors import UsageError


class Service:
    """An object with callable and awaitable parts."""

    def __call__(self, attempt: Any) -> None:
        """A plain call."""

    async def charge(self, attempt: Any) -> None:
        """A coroutine method."""


class Awaitable:
    """An object whose call is a coroutine function, which looks like a plain one."""

    async def __call__(self, attempt: Any) -> None:
        """It would never run."""


def _two(order: Any, attempt: Any) -> None: ...


def _three(order: Any, attempt: Any, extra: int) -> None: ...


def _swapped(amount: int, currency: str) -> None: ...


def _optional(attempt: Any, retries: int = 3, **rest: Any) -> None: ...


def _none() -> None: ...


def _keyword(attempt: Any, *, amount: int) -> None: ...


def _stream(attempt: Any) -> Iterator[int]:
    yield 1


async def _async_stream(attempt: Any) -> AsyncIterator[int]:
    yield 1


async def _coroutine(attempt: Any) -> None: ...


@pytest.mark.parametrize(
    "function",
    [
        Service(),
        Service().charge,
        _optional,
        _coroutine,
        _two,
        _async_stream,
        partial(_two, "order"),
        lambda *given: given,
        len,
    ],
)
def test_a_function_of_an_attempt_or_of_its_input_and_the_attempt_is_a_handler(function: Any) -> None:
    check_handler("payment.charge", function)


@pytest.mark.parametrize(
    "function", [_three, _swapped, _none, _keyword, _stream, Awaitable(), lambda **given: given, partial(_two, 1, 2)]
)
def test_a_function_that_cannot_be_called_with_an_attempt_is_refused(function: Any) -> None:
    with pytest.raises(UsageError) as caught:
        check_handler("payment.charge", function)

    assert "handler.signature" == caught.value.code
    assert "payment.charge" in caught.value.message


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        check_handler("payment.charge", 3)
    assert "handler.malformed" == caught.value.code


def test_a_coroutine_function_does_not_run_in_a_process() -> None:
    check_handler("payment.charge", _optional, cpu=True)
    with pytest.raises(UsageError) as caught:
        check_handler("payment.charge", _coroutine, cpu=True)
    assert "handler.cpu" == caught.value.code
