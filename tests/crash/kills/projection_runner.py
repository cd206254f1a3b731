"""A process that runs a projection until it is killed: `python -m tests.crash.kills.projection_runner FILE`."""

from __future__ import annotations

import sqlite3
import sys
import threading
from collections.abc import Sequence

import interlock
from interlock.ports.reading.journal_feed import FeedEntry

LAMP = """
interlock: 1
kind: lamp
context: {presses: {type: integer, default: 0}}
initial: dark
states: {dark: {}}
on: {press: {actions: [{assign: {presses: "= context.presses + 1"}}]}}
"""
TABLE = "CREATE TABLE lamp_versions (entity TEXT PRIMARY KEY, version INTEGER NOT NULL, entries INTEGER NOT NULL)"
UPSERT = """
    INSERT INTO lamp_versions VALUES (?, ?, 1)
    ON CONFLICT (entity) DO UPDATE SET version = excluded.version, entries = entries + 1"""


def count(connection: sqlite3.Connection, entries: Sequence[FeedEntry]) -> None:
    """Count the entries of each entity, and say so before the commit: that is when this process is killed."""
    for each in entries:
        connection.execute(UPSERT, (each.entity, each.entry.version))
    sys.stdout.write("batch\n")
    sys.stdout.flush()


def main() -> None:
    """Run until killed."""
    with interlock.connect(f"sqlite:///{sys.argv[1]}", charts=[interlock.loads(LAMP)]) as lamps:
        lamps.projection("counts", batch=3)(count)
        threading.Event().wait()


if __name__ == "__main__":
    main()
