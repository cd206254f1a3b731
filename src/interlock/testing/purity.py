"""Find guard and assign functions that are not pure: each call is made twice, and the results are compared.

Rule 1: the same arguments must give the same result, of the same types, or the same class of exception.
Rule 2: the arguments must be unchanged after the call.
Rule 3: the kernel handles what a function raises, so a problem is recorded here and reported after the step.
Rule 4: a function that changes its result rarely, such as once a day, is not found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import wraps
from typing import Any

from interlock.errors import ImpureFunctionError
from interlock.kernel.step import Kernel

HINT = "use only the arguments: no clock, no random number, no database, no global variable; and change none of them"


class PurityCheck:
    """The impure functions that were found in some kernels."""

    def __init__(self) -> None:
        self.problems: dict[str, str] = {}

    def kernel(self, kernel: Kernel) -> Kernel:
        """Return the kernel with every registered function called twice; the same one if it has none."""
        actions = kernel.actions
        if not actions.guards and not actions.assigns:
            return kernel
        return Kernel(
            kernel.chart,
            guards=self._twice("guard", actions.guards),
            assigns=self._twice("assign", actions.assigns),
            language=actions.language,
            fast=kernel.fast,
        )

    def raise_problem(self) -> None:
        """Raise ImpureFunctionError if a function was found since the last call."""
        if self.problems:
            name, problem = next(iter(self.problems.items()))
            self.problems.clear()
            raise ImpureFunctionError(problem, function=name, hint=HINT)

    def _twice(self, what: str, functions: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
        return {name: self._checked(what, name, function) for name, function in functions.items()}

    def _checked(self, what: str, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def checked(*arguments: Any) -> Any:
            before = deepcopy(arguments)
            try:
                result = function(*arguments)
            except Exception as error:
                self._note(what, name, _difference(function, arguments, before, type(error), "raises"))
                raise
            self._note(what, name, _difference(function, arguments, before, result, "returns"))
            return result

        return checked

    def _note(self, what: str, name: str, difference: str | None) -> None:
        if difference is not None:
            self.problems[name] = f"the {what} `{name}` {difference}"


def _difference(function: Callable[..., Any], given: Any, before: Any, first: Any, verb: str) -> str | None:
    """Call a function again with a copy of its arguments; return what is different, or None."""
    if not is_same(given, before):
        return "changes its arguments"
    again, verb_again = first, verb
    try:
        again, verb_again = function(*before), "returns"
    except Exception as error:  # noqa: BLE001  # users' functions may raise anything; the class is compared
        again, verb_again = type(error), "raises"
    if verb == verb_again and is_same(first, again):
        return None
    return (
        f"is not pure: called twice with the same arguments it {verb} {_short(first)}, "
        f"then {verb_again} {_short(again)}"
    )


def is_same(left: Any, right: Any) -> bool:
    """Whether two values are equal, also in type: 1 is not 1.0, nor true."""
    if type(left) is not type(right):
        return False
    if isinstance(left, Mapping):
        return left.keys() == right.keys() and all(is_same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(is_same, left, right))
    return bool(left == right or left is right)


def _short(value: Any) -> str:
    text = value.__name__ if isinstance(value, type) else repr(value)
    return text if len(text) <= 60 else text[:59] + "…"
