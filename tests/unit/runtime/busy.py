"""CPU handlers that other processes can import."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from interlock.effects.handlers import Attempt
from interlock.errors import RejectedError


def squared(attempt: Attempt) -> dict[str, int]:
    """A result, and where it was worked out."""
    return {"square": attempt.input["number"] ** 2, "pid": os.getpid()}


def paused(attempt: Attempt) -> None:
    """Ask for a later call."""
    raise attempt.pause(until="5s", reason="429")


def refused(attempt: Attempt) -> None:
    """An error that keeps its class."""
    raise RejectedError(f"no {attempt.key}", code="card.unknown")


def odd(attempt: Attempt) -> None:
    """A rejection whose code no store can keep as it is."""
    raise RejectedError("declined", code="bank.\ud83d" + "x" * 1_000_000)


def lost(attempt: Attempt) -> None:
    """An error that may pass."""
    raise ConnectionError("gone")


def leaves(attempt: Attempt) -> None:
    """Wants its process to end."""
    raise SystemExit(3)


def interrupts(attempt: Attempt) -> None:
    """Raises KeyboardInterrupt."""
    raise KeyboardInterrupt


def garbage(attempt: Attempt) -> Any:
    """What cannot be kept."""
    return {1: 2}


def killed_once(attempt: Attempt) -> str:
    """Kills its own process the first time."""
    mark = Path(attempt.input["mark"])
    if mark.exists():
        return "done"
    mark.touch()
    os.kill(os.getpid(), signal.SIGKILL)
    return ""


def hangs(attempt: Attempt) -> None:
    """Says who runs it, and does not end."""
    mark = Path(attempt.input["mark"])
    mark.with_suffix(".new").write_text(str(os.getpid()), encoding="utf-8")
    mark.with_suffix(".new").rename(mark)
    signal.pause()


def spins(attempt: Attempt) -> int:
    """Reports its process; runs without end the first time, and returns immediately the second time."""
    mark = Path(attempt.input["mark"])
    if mark.exists():
        return os.getpid()
    mark.with_suffix(".new").write_text(str(os.getpid()), encoding="utf-8")
    mark.with_suffix(".new").rename(mark)
    while True:  # on purpose: it must be killed
        pass


def pages(attempt: Attempt) -> list[int]:
    """Continues from its details, reports its progress, and fails once in the middle."""
    done = []
    for page in range(attempt.details or 0, 5):  # fewer than a socket holds, or one might be lost
        done.append(page)
        attempt.heartbeat(page + 1)
        if page == 2 and attempt.number == 1:
            raise ConnectionError("in the middle")
    attempt.heartbeat({"too": "x" * 100_000})
    attempt.heartbeat(object())
    return done
