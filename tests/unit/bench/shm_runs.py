"""Runs of shared memory as values, made up: no test here depends on how fast anything is."""

from __future__ import annotations

from bench.results import Line, Machine
from bench.shm.measure import COMMANDS, WORKLOADS
from bench.shm.results import Figure, SharedRun

LANES = {"interlock-lanes": 3_000.0, "pipe": 1_500.0, "faster-fifo": 600.0, "queue": 200.0}

FIGURES: dict[str, dict[str, float]] = {
    "pair": {
        "c-gate": 10.0,
        "c-lifecycle": 10.0,
        "interlock-gate-bare": 50.0,
        "interlock-lifecycle-bare": 50.0,
        "interlock-gate": 60.0,
        "interlock-lifecycle": 60.0,
        "atomicshm": 50.0,
        "atomicshm-add": 40.0,
    },
    "with": {"interlock-gate": 35.0, "interlock-lifecycle": 35.0, "lock-gate": 100.0},
    **{workload: LANES for workload in WORKLOADS if workload.startswith("lanes")},
    "wake": {"interlock-inbox": 30.0, "threadsafe": 25.0, "threadsafe-task": 30.0, "executor-queue": 100.0},
    "callback": {"interlock-callback": 1_000.0},
    "pool-1ms": {"interlock-pool": 1_900.0, "executor-pool": 1_500.0},
    "pool-10us": {"interlock-pool": 50_000.0, "executor-pool": 7_000.0},
    "operations": {
        "interlock-native": 0.04,
        "interlock-libatomic": 2.0,
        "interlock-mutex": 2.0,
        "interlock-flock": 2.5,
        "raw-flock": 1.0,
    },
}
"""Every goal met exactly."""


def good_run() -> SharedRun:
    """A whole run in which every goal is met exactly, or just."""
    return SharedRun(
        date="2026-01-31",
        quick=False,
        partial=False,
        rounds=3,
        python="3.11.0",
        commit="abc1234",
        machine=Machine(
            system="Linux", architecture="x86_64", processors=2, memory_gib=8.0, load_before=0.1, load_after=1.0
        ),
        lines={key: Line(name=key.replace("-", " "), version="1.0", workloads=[]) for key in COMMANDS},
        left_out={},
        figures={
            workload: {key: Figure(count=100, samples=[value] * 3) for key, value in row.items()}
            for workload, row in FIGURES.items()
        },
    )
