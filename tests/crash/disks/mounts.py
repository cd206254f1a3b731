"""Small real disks for tests that may mount: a tmpfs of a given size, also read-only."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def tmpfs(place: Path, size: str) -> Iterator[Path]:
    """Mount a file system at a path. Skips the test if mounting is not allowed."""
    place.mkdir()
    _mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place))
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def make_read_only(place: Path) -> None:
    """Remount read-only."""
    _mount("-o", "remount,ro", str(place))


def mount_refusal() -> str | None:
    """Return why nothing can be mounted here, as far as is known without trying."""
    return None if os.geteuid() == 0 else "mounting a small disk needs root; the simulated one is tested everywhere"


def _mount(*arguments: str) -> None:
    why = mount_refusal()
    if why is not None:
        pytest.skip(why)
    answer = subprocess.run(["mount", *arguments], check=False, capture_output=True, text=True)
    if answer.returncode:
        pytest.skip(f"no mount here ({answer.stderr.strip()}); the simulated one is tested everywhere")
