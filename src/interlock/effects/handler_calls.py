"""How a handler is called: `f(attempt)`, or `f(input, attempt)` with its input as the type that it declares.

Rule 1: a function with two parameters gets its input first, read as the annotation of that parameter: a model, a
datetime, a Decimal and so on. Without an annotation it is plain JSON.
Rule 2: what a handler returns may be a model; `model.convert` gives its JSON form.
Rule 3: an async generator yields `Progress`, which is a heartbeat, and last its result.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from inspect import Parameter, isasyncgenfunction, iscoroutinefunction, signature
from typing import Any, Generic, Protocol, TypeVar

from interlock.model.encoding.convert import from_json, type_hints

T = TypeVar("T")

FUNCTIONS_MAX = 4_096
"""Functions whose signatures are remembered: each attempt would inspect its handler again."""

_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


class HandlerAttempt(Protocol):
    """What a call needs of an attempt."""

    @property
    def name(self) -> str:
        """The name of the handler."""

    @property
    def input(self) -> Any:
        """Its input, as JSON."""

    def heartbeat(self, details: Any = None) -> None:
        """Report that the attempt is alive, and its progress."""


class Progress(Generic[T]):
    """What an async generator handler yields before its result: it is stored as by `Attempt.heartbeat`."""

    __slots__ = ("value",)

    def __init__(self, value: T, /) -> None:
        self.value = value


def handler_arguments(function: Callable[..., Any], attempt: HandlerAttempt) -> tuple[Any, ...]:
    """Return the arguments of a handler for an attempt. Raises UsageError when its input does not fit its type."""
    takes_input, expected = _parameters(function)
    if not takes_input:
        return (attempt,)
    if expected is None:
        return attempt.input, attempt
    what = f"the input of handler `{attempt.name}`"
    return from_json(attempt.input, expected, what=what, code="handler.input"), attempt


@lru_cache(FUNCTIONS_MAX)
def _parameters(function: Callable[..., Any]) -> tuple[bool, Any]:
    """Return whether a handler takes its input as first parameter, and the type of that; None if it declares none."""
    try:
        parameters = list(signature(function).parameters.values())
    except (TypeError, ValueError):  # written in C, without a signature
        return False, None
    needed = [each for each in parameters if each.kind in _POSITIONAL and each.default is Parameter.empty]
    if len(needed) < 2:  # the input and the attempt
        return False, None
    hint = type_hints(function).get(needed[0].name)
    return True, None if hint is Any else hint


def is_asynchronous(function: Callable[..., Any]) -> bool:
    """Whether a handler runs in the event loop: a coroutine function, or an async generator."""
    return iscoroutinefunction(function) or isasyncgenfunction(function)


@lru_cache(FUNCTIONS_MAX)
def _is_generator(function: Callable[..., Any]) -> bool:
    return isasyncgenfunction(function)


async def call_asynchronous(function: Callable[..., Any], attempt: HandlerAttempt) -> Any:
    """Await a handler that runs in the event loop, and return its result."""
    arguments = handler_arguments(function, attempt)
    if not _is_generator(function):
        return await function(*arguments)
    result: Any = None
    async for each in function(*arguments):
        if isinstance(each, Progress):
            attempt.heartbeat(each.value)
        else:
            result = each
    return result


def call_plain(function: Callable[..., Any], attempt: HandlerAttempt) -> Any:
    """Call a handler that runs in a thread or in another process, and return its result."""
    return function(*handler_arguments(function, attempt))
