"""The runtime of each store in this process: opened when it is first used, and closed when the process ends.

Rule 1: nothing is opened when modules are imported, so a server may load the application and fork its workers. What a
child inherits is forgotten there, and it opens its own.
Rule 2: one runtime serves all threads of a process. It runs no effects: `manage.py interlock_run` does.
Rule 3: a runtime belongs to one address. When tests put another database in its place, another one is opened.
"""

from __future__ import annotations

import atexit
from threading import Lock
from typing import NamedTuple

from django.utils.asyncio import async_unsafe

from interlock.assemble.runtimes import connect
from interlock.contrib.django.settings import DEFAULT, StoreSettings, store_settings
from interlock.errors import NotFoundError, UsageError
from interlock.ports.fork import after_fork
from interlock.runtime.blocking import BlockingRuntime

MIGRATE = "run python manage.py migrate interlock"
NOT_MIGRATED = ("schema.older", "store.not_found")
"""The codes of errors that `migrate` mends."""


class _Open(NamedTuple):
    url: str
    runtime: BlockingRuntime


class _Runtimes:
    """The open runtimes of this process, by the name of their store."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._open: dict[str, _Open] = {}
        after_fork(self, _Runtimes._forget)
        atexit.register(self.close)

    def _forget(self) -> None:
        """In a forked child: the lock and the runtimes belong to the parent."""
        self._lock = Lock()
        self._open = {}

    def get(self, store: StoreSettings) -> BlockingRuntime:
        """Return the runtime of a store, opened if needed."""
        url = store.url()
        found = self._open.get(store.name)
        if found is not None and found.url == url:
            return found.runtime
        with self._lock:
            found = self._open.get(store.name)
            if found is None or found.url != url:
                if found is not None:
                    del self._open[store.name]
                    found.runtime.close()
                found = self._open[store.name] = _Open(url, open_runtime(store))
            return found.runtime

    def close(self) -> None:
        """Close all of them."""
        with self._lock:
            while self._open:
                self._open.popitem()[1].runtime.close()


def open_runtime(store: StoreSettings, *, work: bool = False) -> BlockingRuntime:
    """Return a new runtime of a store, which the caller closes.

    Raises UsageError (`schema.older`) or NotFoundError (`store.not_found`) when its tables must be migrated.
    """
    try:
        return connect(store.url(), charts=store.bound_charts(), work=work, **store.options())
    except (UsageError, NotFoundError) as error:
        if error.code not in NOT_MIGRATED:
            raise
        hint = f"{MIGRATE} --database={store.database}" if store.database != DEFAULT else MIGRATE
        raise type(error)(error.message, code=error.code, hint=hint) from error


_runtimes = _Runtimes()


@async_unsafe
def runtime(store: str = DEFAULT) -> BlockingRuntime:
    """Return the runtime of a store of `INTERLOCK` in this process. Do not close it.

    It is blocking: a coroutine calls it in `sync_to_async`, as it calls the database. Raises UsageError for an unknown
    store or a database without its tables, and `SynchronousOnlyOperation` in a coroutine.

        runtime().state("order/7").configuration
    """
    return _runtimes.get(store_settings(store))


def close_runtimes() -> None:
    """Close the runtimes of this process, for tests that delete their database; the next use opens new ones."""
    _runtimes.close()
