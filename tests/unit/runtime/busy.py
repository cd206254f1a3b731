"""Handlers that other processes can find."""

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


def refused(attempt: Attempt) -> None:
    """An error that keeps its class."""
    raise RejectedError(f"no {attempt.key}", code="card.unknown")


def lost(attempt: Attempt) -> None:
    """An error that may pass."""
    raise ConnectionError("gone")


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
