"""Whether a function can be a handler: checked when it is registered, before any work depends on it.

Rule 1: a handler is called with one positional argument, the attempt, or with two, its input and the attempt.
Rule 2: it must give a result. A generator gives none, except an asynchronous one, whose last value it is; a coroutine
runs only if the function is known as one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import Parameter, getattr_static, isasyncgenfunction, iscoroutinefunction, isgeneratorfunction, signature
from typing import Any

from interlock.errors import UsageError
from interlock.model.encoding.convert import type_hints

_HINT = "write `async def {name}(attempt):`, `async def {name}(input, attempt):`, or `def`"


def check_handler(name: str, function: Any, *, cpu: bool = False) -> None:
    """Raise UsageError for a function that cannot be the handler `name`. `cpu`: it is to run in another process."""
    if not callable(function):
        raise UsageError(f"the handler `{name}` is not callable", code="handler.malformed")
    shown = _name_of(function)
    if isgeneratorfunction(function):
        message = f"`{shown}` cannot be the handler `{name}`: it is a generator, which returns no result"
        raise UsageError(message, code="handler.signature", hint="return the result instead of `yield`")
    call = getattr_static(type(function), "__call__", None)
    if not iscoroutinefunction(function) and iscoroutinefunction(call):
        message = f"`{shown}` cannot be the handler `{name}`: its `__call__` is a coroutine function"
        raise UsageError(message, code="handler.signature", hint="register a function or a method: `async def`")
    if cpu and (iscoroutinefunction(function) or isasyncgenfunction(function)):
        message = f"the handler `{name}` is a coroutine function, which cannot run in a process of the pool"
        raise UsageError(message, code="handler.cpu", hint="write `def` instead of `async def`, or omit cpu=True")
    problem = _problem(function)
    if problem is not None:
        message = f"`{shown}` cannot be the handler `{name}`: {problem}"
        raise UsageError(
            message, code="handler.signature", hint=_HINT.format(name=shown if shown.isidentifier() else "handle")
        )


def _problem(function: Callable[..., Any]) -> str | None:
    """Return why a function can be called neither with the attempt nor with its input and the attempt."""
    try:
        parameters = signature(function).parameters.values()
    except (TypeError, ValueError):  # written in C, without a signature: the call itself shows it
        return None
    positional = [
        each for each in parameters if each.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    ]
    if not positional and all(each.kind is not Parameter.VAR_POSITIONAL for each in parameters):
        return "a handler has the parameters `attempt`, or `input, attempt`"
    required = [each.name for each in parameters if each.default is Parameter.empty and not _is_variable(each)]
    missing = [each for each in required if each not in {one.name for one in positional[:2]}]
    if missing:
        names = ", ".join(f"`{each}`" for each in missing)
        return f"a handler is called with its input and the attempt, but it also requires {names}"
    return _attempt_problem(positional[:2], required, type_hints(function))


def _attempt_problem(positional: list[Parameter], required: list[str], hints: dict[str, Any]) -> str | None:
    """Return why the second of two parameters is not for the attempt: it is annotated as a built-in type."""
    if not all(each.name in required for each in positional) or len(positional) < 2:  # input, attempt
        return None
    hint = hints.get(positional[1].name)
    if isinstance(hint, type) and hint.__module__ == "builtins" and hint is not object:
        return f"its second parameter `{positional[1].name}` gets the attempt, but is a `{hint.__name__}`"
    return None


def _is_variable(parameter: Parameter) -> bool:
    return parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


def _name_of(function: Callable[..., Any]) -> str:
    while isinstance(function, partial):
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))
