"""Handlers that use the ORM in a worker: their database connections are fresh, as those of a request are.

Django closes connections that are too old or broken at the start and end of each request. A worker has no requests:
without this, each thread of handlers would keep a connection after the server has closed it, and fail from then on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from django.db import close_old_connections

from interlock.assemble.charts import BoundChart
from interlock.effects.handler_calls import is_asynchronous

_REFRESHES = "_interlock_refreshes_connections"


def refresh_connections(chart: BoundChart[Any]) -> None:
    """Wrap the plain handlers of a chart, which run in threads. Coroutines use the ORM in threads of `asgiref`."""
    for name, function in chart.handlers.items():
        if not (is_asynchronous(function) or name in chart.busy or hasattr(function, _REFRESHES)):
            chart.handlers[name] = _refreshing(function)


def _refreshing(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        close_old_connections()
        try:
            return function(*arguments)
        finally:
            close_old_connections()

    setattr(call, _REFRESHES, True)
    return call
