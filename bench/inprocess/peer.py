"""What an implementation in Python gives to its process: a name, a version, and a function per workload."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bench.inprocess.workloads import Entity, drive_effects

Drive = Callable[[int], int]
"""Sends so many events to a started entity, checks the result, and returns the nanoseconds of CPU time."""

Make = Callable[[], object]
"""Creates one started entity."""


def effect_drives(entities: Mapping[str, Callable[[], Entity]]) -> dict[str, Drive]:
    """Return the drives of W7 to W10, from a function per workload that creates a started entity."""

    def drive(workload: str, make: Callable[[], Entity]) -> Drive:
        return lambda count: drive_effects(workload, make(), count)

    return {workload: drive(workload, make) for workload, make in entities.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One line of the tables. `unsupported` gives the reason for each workload that the library cannot express."""

    name: str
    version: str
    drives: Mapping[str, Drive] = field(default_factory=dict)
    create: Callable[[], Make] | None = None
    unsupported: Mapping[str, str] = field(default_factory=dict)

    @property
    def workloads(self) -> list[str]:
        """Return the workloads that this line can do."""
        return [*self.drives, *(["W5"] if self.create is not None else [])]
