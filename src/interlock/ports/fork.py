"""Fork handling: what a child process does with the objects that it inherits, before any other code of it runs.

A child has a copy of every object of its parent and none of its threads. Its descriptors, sockets and epoll instances
are shared with the parent, and a lock that another thread of the parent held stays locked in the child for good.

Rule 1: an object that must not work in a child as it is registers a rule with `after_fork`.
Rule 2: a rule waits for nothing. It replaces locks and forgets or closes descriptors.
Rule 3: an object whose finalizer would act on the parent's resources is kept forever in the child (`keep_forever`). The
finalizer of a SQLite connection deletes the write-ahead log; that of an asyncio transport removes its socket from the
epoll instance of the parent.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable
from typing import TypeVar

from interlock.errors import UsageError

FORKED_HINT = (
    "open it after the fork, in each process; or start the process by the method 'spawn' or 'forkserver' or by exec, "
    "which inherit no open store"
)

T = TypeVar("T")

_is_child = False

_rules: dict[int, Callable[[], None]] = {}
_kept: list[object] = []


def after_fork(target: T, rule: Callable[[T], None]) -> None:
    """Call `rule(target)` in every forked child in which the object is still alive. An object has one rule."""
    key = id(target)
    known = weakref.ref(target, lambda _: _rules.pop(key, None))

    def call() -> None:
        living = known()
        if living is not None:
            rule(living)

    _rules[key] = call


def forked_error(what: str, *, code: str = "store.forked") -> UsageError:
    """The error of a child that uses what its parent opened."""
    return UsageError(f"{what} was opened before the process was forked", code=code, hint=FORKED_HINT)


def is_forked() -> bool:
    """Return whether this process was forked after Interlock was imported."""
    return _is_child


def keep_forever(target: object) -> None:
    """Never free an object, not even when the interpreter exits: its finalizer never runs."""
    _kept.append(target)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(target))  # the list itself is cleared when the interpreter exits


def _run_rules() -> None:
    """Run every rule; an error in one of them does not keep the others from running."""
    global _is_child  # noqa: PLW0603 - a fact of the process
    _is_child = True
    errors: list[Exception] = []
    for call in list(_rules.values()):
        try:
            call()
        except Exception as error:  # noqa: BLE001 - raised below, once all rules have run
            errors.append(error)
    if errors:
        raise ExceptionGroup("rules for a forked child failed", errors)


os.register_at_fork(after_in_child=_run_rules)
