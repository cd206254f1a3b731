"""Runs of the benchmark as values, made up: no test here depends on how fast anything is."""

from __future__ import annotations

from bench.goals import INNER, PEERS_WITH_HIERARCHY
from bench.measure import COMMANDS, FOLD_COUNT
from bench.results import Figure, Line, Machine, Memory, Run
from bench.workloads import WORKLOADS

HAND_NS = 100.0


def figure(ns: float, *, count: int = 1_001, bytes: float | None = None) -> Figure:
    """Three equal samples."""
    return Figure(count=count, samples=[ns] * 3, bytes=[] if bytes is None else [bytes] * 3)


def good_run() -> Run:
    """A whole run in which every goal is met exactly, or just."""
    figures: dict[str, dict[str, Figure]] = {}
    for workload, inner in INNER.items():
        figures[workload] = {
            "hand-written": figure(HAND_NS),
            inner: figure(2 * HAND_NS, count=FOLD_COUNT),
            "interlock-step": figure(2 * HAND_NS + 149),
            "xstate-actor": figure(5 * 2 * HAND_NS),
            **{key: figure(20 * 2 * HAND_NS) for key in PEERS_WITH_HIERARCHY},
        }
    figures["W5"] = {
        "hand-written": figure(HAND_NS, bytes=88),
        "interlock-step": figure(3_000, bytes=600),
        "interlock-written": figure(4_000, bytes=900),
    }
    lines = {key: Line(name=key.replace("-", " "), version="1.0", workloads=list(WORKLOADS)) for key in COMMANDS}
    return Run(
        date="2026-01-31",
        quick=False,
        partial=False,
        repeats=3,
        python="3.11.0",
        commit="abc1234",
        machine=Machine(
            system="Linux", architecture="x86_64", processors=2, memory_gib=8.0, load_before=0.1, load_after=1.0
        ),
        lines=lines,
        left_out={},
        figures=figures,
        imports={"import interlock": [59.0, 59.9, 60.5], "first chart loaded": [100.0]},
        memory=Memory(count=FOLD_COUNT, resident=4_096, peak=0),
    )
