"""The pages suite: stores of several sizes, each served by `interlock serve` and asked what the console asks.

`BENCH_FLEET=FILE` names a store of ten million entities, filled by `make_fleet.py`; it is used instead of a new one,
and not deleted. The goal is for ten million entities; the smaller size is shown for comparison.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

from bench.http.servers import BEARER, Running
from bench.measure import ROOT, Measurement, PeerUnavailableError, file_system, report, run_module, stores_folder
from bench.results import Figure, Line, Run
from bench.suite import Column, Found, Goal, Suite, Workload
from interlock.trust.api_keys import key_digest

CHART = ROOT / "bench" / "pages" / "order.yaml"
LARGEST = 10_000_000
BYTES_EACH = 1_600
"""Size of the file and its log per entity."""
FILL_SECONDS_MAX = 3_600

LIST = "/api/v1/kinds/order/entities"


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """The sizes of the stores, and how often each question is asked."""

    sizes: tuple[int, ...]
    rounds: int = 9


FULL = Effort(sizes=(100_000, LARGEST))
QUICK = Effort(sizes=(2_000,), rounds=2)


def questions(entities: int) -> dict[str, str]:
    """Return the paths that the pages request in a store of this size, by name."""
    middle = f"ord-{entities // 2:09d}"
    return {
        "fleet": "/api/v1/kinds",
        "a kind: chart, counts, stuck": "/api/v1/kinds/order",
        "its picture": "/api/v1/kinds/order/chart.svg",
        "list": LIST,
        "list, a state": f"{LIST}?state=paid",
        "list, a state for 30 days": f"{LIST}?state=unpaid&older=30d",
        "list, a tag of a quarter": f"{LIST}?tag=open",
        "list, a tag of few": f"{LIST}?tag=alert",
        "list, an unknown revision": f"{LIST}?revision=none",
        "list, ids with a prefix": f"{LIST}?q={middle[:9]}",
        "list, ids with a prefix, a state": f"{LIST}?q={middle[:9]}&state=held",
        "list, dead letters": f"{LIST}?error=any",
        "entity": f"/api/v1/entity/order/{middle}",
        "its journal": f"/api/v1/journal/order/{middle}",
        "work": "/api/v1/work",
        "dead work": "/api/v1/work?dead=true",
        "refusals": "/api/v1/refusals",
    }


def run(measurement: Measurement[Effort]) -> None:
    """Measure the chosen sizes."""
    sizes = {str(each): each for each in measurement.effort.sizes}
    for name in measurement.chosen(sizes) or list(sizes):
        report(f"bench: pages, {sizes[name]:,} entities ...")
        with measurement.or_left_out(f"{sizes[name]:,} entities"), stores_folder() as folder:
            _run_size(measurement, folder, sizes[name])


def _run_size(measurement: Measurement[Effort], folder: Path, size: int) -> None:
    given = os.environ.get("BENCH_FLEET")
    path = Path(given) if given and size == max(measurement.effort.sizes) else folder / "fleet.db"
    filled = "" if path.exists() else f", written in {fill(path, size):,.0f} s"
    gigabytes, disk = path.stat().st_size / 1e9, file_system(folder)
    measurement.facts.append(f"{size:,} entities: {gigabytes:,.1f} GB{filled}. Files on {disk}.")
    for name, samples in ask(path, size, folder, measurement.effort.rounds).items():
        figure = measurement.figures.setdefault("pages", {}).setdefault(name, Figure())
        figure.samples[str(size)] = samples
        measurement.lines[name] = Line(name=name)


def fill(path: Path, size: int) -> float:
    """Fill a store and return the seconds. Raises PeerUnavailableError if it fails or the disk is too small."""
    free, needed = shutil.disk_usage(path.parent).free, size * BYTES_EACH
    if free < needed:
        raise PeerUnavailableError(f"it needs {needed / 1e9:,.1f} GB, and {free / 1e9:,.1f} GB are free")
    start = time.perf_counter()
    run_module("bench.pages.make_fleet", path, "--entities", size, "--only-fill", seconds_max=FILL_SECONDS_MAX)
    return time.perf_counter() - start


def ask(path: Path, size: int, folder: Path, rounds: int) -> dict[str, list[float]]:
    """Return the milliseconds of every request. Raises PeerUnavailableError on a wrong answer."""
    keys = folder / "keys.toml"
    keys.touch(mode=0o600)
    keys.write_text(
        f'[[key]]\nid = "bench"\nsha256 = "{key_digest(BEARER)}"\nrights = ["read", "read:audit"]\n'
        "[rates.read]\nper_second = 1_000_000\nburst = 1_000_000\n",  # counted, and never reached
        encoding="utf-8",
    )
    options = ["--port", "0", "--key-file", str(keys), "--chart", str(CHART)]
    server = Running([sys.executable, "-m", "interlock", "serve", f"sqlite:///{path}", *options])
    connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
    paths = questions(size)
    samples: dict[str, list[float]] = {name: [] for name in paths}
    try:
        for _ in range(rounds):
            for name, asked in paths.items():
                start = time.perf_counter()
                connection.request("GET", asked, headers={"Authorization": f"Bearer {BEARER}"})
                answer = connection.getresponse()
                body = answer.read()
                samples[name].append((time.perf_counter() - start) * 1000)
                if answer.status != 200:
                    raise PeerUnavailableError(f"{asked} answered {answer.status}: {body[:120].decode()}")
    finally:
        connection.close()
        server.end()
    return samples


def _column(size: int) -> Column:
    def cell(run: Run, workload: str, figure: Figure) -> str:
        samples = figure.samples.get(str(size))
        return "" if samples is None else f"{figure.median(str(size)):,.1f} ({max(samples):,.1f})"

    return Column(f"{size:,} entities", cell)


def _slowest(run: Run) -> Found:
    samples = [each.samples.get(str(LARGEST), []) for each in run.figures.get("pages", {}).values()]
    if not any(samples):
        return Found(None, "; ".join(run.left_out.values()))
    slowest = max(max(each) for each in samples)
    return Found(slowest, f"{slowest:,.1f} ms")


PAGES = Suite(
    name="pages",
    title="Pages of the console",
    introduction="A page is read from an index, so its time depends on what it shows, not on the size of the table.",
    method="""\
- `interlock serve` on a SQLite file that `bench/pages/make_fleet.py` has filled, as its own process.
- Each question is a request of a page of the console, over loopback, until the last byte of the answer.
- The questions are asked in turn; the maximum includes the first request of each.""",
    run=run,
    efforts=(FULL, QUICK),
    choices=tuple(str(each) for each in (*FULL.sizes, *QUICK.sizes)),
    workloads=(
        Workload(
            name="pages",
            title="pages: requests of the console, milliseconds (median, and the maximum)",
            columns=tuple(_column(each) for each in (*QUICK.sizes, *FULL.sizes)),
        ),
    ),
    goals=(Goal(f"the slowest page with {LARGEST:,} entities", "<= 100 ms", _slowest),),
)
