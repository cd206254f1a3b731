"""Durable runs as values, made up: no test here depends on how fast anything is."""

from __future__ import annotations

from bench.durable.measure import COMMANDS, WORKLOADS
from bench.durable.results import DurableRun, Figure, Recovery, Sample, Scale
from bench.results import Line, Machine

RATES = {
    ("seq1", "raw-file"): 1_000.0,
    ("seq1", "interlock-file"): 750.0,
    ("seq1", "raw-sqlite"): 1_000.0,
    ("seq1", "interlock-sqlite"): 500.0,
    ("fleet", "interlock-sqlite-each"): 1_000.0,
    ("fleet", "interlock-sqlite"): 4_000.0,
    ("fleet", "dbos-sqlite"): 40.0,
    ("fleet", "interlock-postgres-each"): 1_000.0,
    ("fleet", "interlock-postgres"): 2_500.0,
}
"""Every goal met exactly."""


def figure(*rates: float, count: int = 100) -> Figure:
    """A figure with these rates, one per round."""
    samples = [Sample(rate=rate, p50_ms=1.0, p99_ms=2.0, cpu_us=50.0, server_cpu_us=5.0) for rate in rates]
    return Figure(count=count, samples=samples)


def good_run() -> DurableRun:
    """A whole run in which every goal is met exactly, or just."""
    figures = {
        workload: {key: figure(*[RATES.get((workload, key), 100.0)] * 3) for key in COMMANDS} for workload in WORKLOADS
    }
    return DurableRun(
        date="2026-01-31",
        quick=False,
        partial=False,
        rounds=3,
        python="3.11.0",
        commit="abc1234",
        file_system="ext4",
        servers={"postgres": "postgres 18"},
        machine=Machine(
            system="Linux", architecture="x86_64", processors=2, memory_gib=8.0, load_before=0.1, load_after=1.0
        ),
        lines={key: Line(name=key.replace("-", " "), version="1.0", workloads=list(WORKLOADS)) for key in COMMANDS},
        left_out={},
        figures=figures,
        recovery={
            store: Recovery(entries=100_000, journal_ms=[1_999.0], snapshot_ms=[49.0]) for store in ("file", "sqlite")
        },
        scale=[
            Scale(entities=1_000, megabytes=1.0, recent_us=[100.0] * 3, anywhere_us=[100.0] * 3),
            Scale(entities=1_000_000, megabytes=900.0, recent_us=[125.0] * 3, anywhere_us=[180.0] * 3),
        ],
    )
