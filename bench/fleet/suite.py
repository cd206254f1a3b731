"""The pages part of a run: stores of several sizes, each filled, served by `interlock serve`, asked, and deleted.

`BENCH_FLEET=FILE` names a store that `make_fleet.py` has filled with ten million: it is asked instead, and it stays.
"""

from __future__ import annotations

import datetime as dt
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path

from bench.durable.measure import without_folders
from bench.durable.suite import disk, file_system
from bench.fleet.results import Fleet, PagesRun
from bench.http.servers import BEARER, Running, ServerFailedError, last_words
from bench.measure import ROOT, environment, tell
from bench.results import Machine
from interlock.web.auth import key_digest

CHART = ROOT / "bench" / "fleet" / "order.yaml"
FULL = (100_000, 10_000_000)
QUICK = (2_000,)
TIMES = 9
BYTES_EACH = 1_600
"""Of the file and its log, for one entity."""

LIST = "/api/v1/kinds/order/entities"


def questions(entities: int) -> dict[str, str]:
    """What the pages ask, where so many entities are: by name, the path."""
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
        "list, a revision of none": f"{LIST}?revision=none",
        "list, ids that begin so": f"{LIST}?q={middle[:9]}",
        "list, ids that begin so, a state": f"{LIST}?q={middle[:9]}&state=held",
        "list, work that died": f"{LIST}?error=any",
        "entity": f"/api/v1/entity/order/{middle}",
        "its journal": f"/api/v1/journal/order/{middle}",
        "work": "/api/v1/work",
        "dead work": "/api/v1/work?dead=true",
        "refusals": "/api/v1/refusals",
    }


def measured(names: list[str], *, quick: bool, commit: str, computer: Callable[[], Machine]) -> PagesRun:
    """One run. `names` are sizes, such as 10000000; without names, all. Raises SystemExit on a name of none."""
    sizes = QUICK if quick else FULL
    for name in names:
        if name not in map(str, sizes):
            known = ", ".join(map(str, sizes))
            raise SystemExit(f"bench: there is no size {name!r} of pages; there are {known}")
    left_out: dict[str, str] = {}
    fleets: list[Fleet] = []
    for size in sizes:
        if not names or str(size) in names:
            tell(f"bench: pages, {size:,} entities ...")
            try:
                fleets.append(_measured(size))
            except (ServerFailedError, OSError) as error:
                left_out[f"{size:,} entities"] = without_folders(str(error))[:200]
                tell(f"FAILED: pages: {left_out[f'{size:,} entities']}")
    return PagesRun(
        date=dt.datetime.now(dt.UTC).date().isoformat(),
        quick=quick,
        partial=bool(names),
        python=platform.python_version(),
        commit=commit,
        file_system=file_system(disk()),
        machine=computer(),
        left_out=left_out,
        fleets=fleets,
    )


def _measured(size: int) -> Fleet:
    with tempfile.TemporaryDirectory(dir=disk(), prefix="bench-", ignore_cleanup_errors=True) as folder:
        given = os.environ.get("BENCH_FLEET")
        path = Path(given) if given and size == max(FULL) else Path(folder) / "fleet.db"
        fill_s = None if path.exists() else _fill(path, size)
        return Fleet(
            entities=size, fill_s=fill_s, gigabytes=path.stat().st_size / 1e9, pages=_asked(path, size, folder)
        )


def _fill(path: Path, size: int) -> float:
    """How long it took. Raises OSError when the disk has no room, ServerFailedError when it could not be written."""
    free, needed = shutil.disk_usage(path.parent).free, size * BYTES_EACH
    if free < needed:
        raise OSError(f"it takes {needed / 1e9:,.1f} GB, and {free / 1e9:,.1f} GB are free")
    command = [sys.executable, "-m", "bench.fleet.make_fleet", str(path), "--entities", str(size), "--only-fill"]
    began = time.perf_counter()
    with tempfile.TemporaryFile() as errors:
        done = subprocess.run(command, cwd=ROOT, env=environment(), stderr=errors, check=False)
        if done.returncode != 0:
            raise ServerFailedError(last_words(errors))
    return time.perf_counter() - began


def _asked(path: Path, size: int, folder: str) -> dict[str, list[float]]:
    """The milliseconds of every question, each time that it was asked. Raises ServerFailedError on a wrong answer."""
    keys = Path(folder) / "keys.toml"
    keys.touch(mode=0o600)
    keys.write_text(
        f'[[key]]\nid = "bench"\nsha256 = "{key_digest(BEARER)}"\nrights = ["read", "read:audit"]\n', encoding="utf-8"
    )
    options = ["--port", "0", "--key-file", str(keys), "--chart", str(CHART)]
    server = Running([sys.executable, "-m", "interlock", "serve", f"sqlite:///{path}", *options])
    connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
    taken: dict[str, list[float]] = {name: [] for name in questions(size)}
    try:
        for _ in range(TIMES):
            for name, asked in questions(size).items():
                began = time.perf_counter()
                connection.request("GET", asked, headers={"Authorization": f"Bearer {BEARER}"})
                answer = connection.getresponse()
                body = answer.read()
                taken[name].append((time.perf_counter() - began) * 1000)
                if answer.status != 200:
                    raise ServerFailedError(f"{asked} answered {answer.status}: {body[:120].decode()}")
    finally:
        connection.close()
        server.end()
    return taken
