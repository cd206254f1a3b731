"""What an implementation in Python gives to its process: a name, a version, and a function per workload."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

Drive = Callable[[int], int]
"""Sends so many events to a started entity, checks the result, and returns the nanoseconds of CPU time."""

Make = Callable[[], object]
"""Creates one started entity."""


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
        return sorted([*self.drives, *(["W5"] if self.create is not None else [])])
