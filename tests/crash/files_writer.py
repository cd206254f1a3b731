"""A process that appends to one entity of a file store until it is killed. It says what it was promised.

Arguments: the root, a name for its keys, the entity. A line `asked <key>` goes out before each append, `kept <key>
<version>` after its receipt; both are written at once, so what a killed process said is what it knew.
"""

from __future__ import annotations

import os
import sys

from interlock.ports.store import Conflict, Loaded
from interlock.stores.files_journals import Journals
from interlock.stores.files_shared import Settings
from interlock.stores.filesystem import OperatingSystem
from tests.crash.life import step


def main(root: str, name: str, entity: str) -> None:
    """Appends without end; the caller ends the process."""
    journals = Journals(root, OperatingSystem(), Settings(snapshot_every=7))
    number = 0
    while True:
        number += 1
        key = f"{name}-{number}"
        _say(f"asked {key}")
        while True:
            loaded = journals.load(entity)
            version = loaded.version if isinstance(loaded, Loaded) else 0
            answer = journals.append(step(version + 1, key, entity=entity))
            if not isinstance(answer, Conflict):
                break
        _say(f"kept {key} {answer.version}")


def _say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
