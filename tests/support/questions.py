"""Records the statements that a SQL store asks its database, for tests of their plans."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from interlock.stores.sql.database import Ask, Questions
from interlock.stores.sql.store import SqlStore


@contextmanager
def recorded(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Ask]]:
    """Record every statement that the store reads with, in this block. The database answers as ever."""
    found: list[Ask] = []
    read, read_snapshot = store.database.read, store.database.read_snapshot

    def record(questions: Callable[[], Questions[Any]]) -> Callable[[], Questions[Any]]:
        return lambda: _recording(questions(), found)

    with monkeypatch.context() as patch:
        patch.setattr(store.database, "read", lambda questions: read(record(questions)))
        patch.setattr(store.database, "read_snapshot", lambda questions: read_snapshot(record(questions)))
        yield found


def _recording(questions: Questions[Any], found: list[Ask]) -> Questions[Any]:
    """Pass questions on and note them."""
    try:
        ask = next(questions)
        while True:
            found.append(ask)
            ask = questions.send((yield ask))
    except StopIteration as end:
        return end.value
