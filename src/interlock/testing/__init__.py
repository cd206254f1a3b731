"""The public test kit: run charts in one process on a clock that the test advances, and check your own store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock.lazy_names import lazy_names

if TYPE_CHECKING:
    from interlock.testing.clock import VirtualClock
    from interlock.testing.join_suite import JOIN_CASES, JoinProgram, JoinSubject
    from interlock.testing.simulation import Simulation, SimulationRecord
    from interlock.testing.store_suite.subject import StoreSubject
    from interlock.testing.store_suite.suite import (
        definition_cases,
        feed_cases,
        field_cases,
        lease_cases,
        statistics_cases,
        store_cases,
    )

_HOMES = {
    "JOIN_CASES": "interlock.testing.join_suite",
    "JoinProgram": "interlock.testing.join_suite",
    "JoinSubject": "interlock.testing.join_suite",
    "Simulation": "interlock.testing.simulation",
    "SimulationRecord": "interlock.testing.simulation",
    "StoreSubject": "interlock.testing.store_suite.subject",
    "VirtualClock": "interlock.testing.clock",
    "definition_cases": "interlock.testing.store_suite.suite",
    "feed_cases": "interlock.testing.store_suite.suite",
    "field_cases": "interlock.testing.store_suite.suite",
    "lease_cases": "interlock.testing.store_suite.suite",
    "statistics_cases": "interlock.testing.store_suite.suite",
    "store_cases": "interlock.testing.store_suite.suite",
}

__all__ = (
    "JOIN_CASES",
    "JoinProgram",
    "JoinSubject",
    "Simulation",
    "SimulationRecord",
    "StoreSubject",
    "VirtualClock",
    "definition_cases",
    "feed_cases",
    "field_cases",
    "lease_cases",
    "statistics_cases",
    "store_cases",
)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
