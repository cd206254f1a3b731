"""Whether a function can be a handler: checked when it is registered, before any work depends on it.

Rule 1: a handler is called with one positional argument, the attempt.
Rule 2: it must give a result. A generator gives none, and a coroutine runs only if the function is known as one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import Parameter, getattr_static, isasyncgenfunction, iscoroutinefunction, isgeneratorfunction, signature
from typing import Any

from interlock.errors import UsageError

_HINT = "write `async def {name}(attempt):`, or `def`; what it needs is in `attempt.input`"


def check_handler(name: str, function: Any, *, cpu: bool = False) -> None:
    """Raise UsageError for a function that cannot be the handler `name`. `cpu`: it is to run in another process."""
    if not callable(function):
        raise UsageError(f"the handler `{name}` is not callable", code="handler.malformed")
    shown = _name_of(function)
    if isgeneratorfunction(function) or isasyncgenfunction(function):
        message = f"`{shown}` cannot be the handler `{name}`: it is a generator, which returns no result"
        raise UsageError(message, code="handler.signature", hint="return the result instead of `yield`")
    call = getattr_static(type(function), "__call__", None)
    if not iscoroutinefunction(function) and iscoroutinefunction(call):
        message = f"`{shown}` cannot be the handler `{name}`: its `__call__` is a coroutine function"
        raise UsageError(message, code="handler.signature", hint="register a function or a method: `async def`")
    if cpu and iscoroutinefunction(function):
        message = f"the handler `{name}` is a coroutine function, which cannot run in a process of the pool"
        raise UsageError(message, code="handler.cpu", hint="write `def` instead of `async def`, or omit cpu=True")
    problem = _problem(function)
    if problem is not None:
        message = f"`{shown}` cannot be the handler `{name}`: {problem}"
        raise UsageError(
            message, code="handler.signature", hint=_HINT.format(name=shown if shown.isidentifier() else "handle")
        )


def _problem(function: Callable[..., Any]) -> str | None:
    """Return why a function cannot be called with the attempt alone; None when it can."""
    try:
        parameters = signature(function).parameters.values()
    except (TypeError, ValueError):  # written in C, without a signature: the call itself shows it
        return None
    positional = [
        each for each in parameters if each.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    ]
    if not positional and all(each.kind is not Parameter.VAR_POSITIONAL for each in parameters):
        return "a handler has one parameter, the attempt"
    required = [each.name for each in parameters if each.default is Parameter.empty and not _is_variable(each)]
    missing = [each for each in required if not positional or each != positional[0].name]
    if missing:
        names = ", ".join(f"`{each}`" for each in missing)
        return f"a handler is called with the attempt alone, but it also requires {names}"
    return None


def _is_variable(parameter: Parameter) -> bool:
    return parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


def _name_of(function: Callable[..., Any]) -> str:
    while isinstance(function, partial):
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))
