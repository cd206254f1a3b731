"""Stores as an earlier release left them: without definitions."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path


def forget_definitions(path: Path) -> None:
    """Delete the definitions of a SQLite store. Its entities keep the names of their revisions."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for table in ("definition", "definition_body", "definition_alias"):
            connection.execute(f"DELETE FROM {table}")
