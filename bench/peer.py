"""What a peer in Python gives to the worker: a name, a version, and functions that do the workloads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

Drive = Callable[[int], int]
"""Drives that many events through a started entity, checks where it ended, and gives the nanoseconds of CPU it took."""

Make = Callable[[], object]
"""Makes one started entity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One line of the tables. A workload that is not in `drives` is one that this peer cannot express."""

    name: str
    version: str
    drives: Mapping[str, Drive] = field(default_factory=dict)
    create: Callable[[], Make] | None = None

    @property
    def workloads(self) -> list[str]:
        """The workloads that this peer does."""
        return sorted([*self.drives, *(["W5"] if self.create is not None else [])])
