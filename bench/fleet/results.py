"""A run of the console's pages as a value, and how it goes to and from `results/<date>-pages.json`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from bench.results import Machine, keep, newest_whole


class Fleet(msgspec.Struct, kw_only=True):
    """What pages took on a store of so many entities.

    `fill_s` is None for a store that was there already. `pages` maps what was asked to the milliseconds of each time,
    in order: the first found nothing prepared.
    """

    entities: int
    fill_s: float | None
    gigabytes: float
    pages: dict[str, list[float]]

    @property
    def most_ms(self) -> float:
        """The longest that any page took, first times included."""
        return max(max(each) for each in self.pages.values())


class PagesRun(msgspec.Struct, kw_only=True):
    """All of one run. A `quick` one shows that the suite works, and stands for nothing else."""

    date: str
    quick: bool
    partial: bool
    python: str
    commit: str
    file_system: str
    machine: Machine
    left_out: dict[str, str]
    fleets: list[Fleet]


def write(run: PagesRun, folder: Path) -> Path:
    """Keep a run."""
    return keep(run, folder, "pages")


def read(path: Path) -> PagesRun:
    """A run that was kept."""
    return msgspec.json.decode(path.read_bytes(), type=PagesRun)


def newest(folder: Path) -> Path | None:
    """The newest whole run, if there is one."""
    return newest_whole(folder, "pages")
