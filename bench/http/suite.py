"""The HTTP part of a run: both servers in rounds, a whole minute, and a kill; every file that it made is deleted."""

from __future__ import annotations

import datetime as dt
import platform
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import uvicorn

from bench.durable.measure import without_folders
from bench.durable.suite import disk, file_system
from bench.http import servers
from bench.http.kill import killed
from bench.http.load import Answer, Question
from bench.http.results import HttpRun, Killed, Line, Sample
from bench.http.servers import BEARER, Running, ServerFailedError, prepared, sent
from bench.measure import tell
from bench.results import Machine
from interlock.web.server import uvicorn_config

LINES = ("hello", "serve")
NAMES = (*LINES, "minute", "kill")
"""What `--only http,...` may name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How long everything takes. Rounds of a line together are a minute, too."""

    rounds: int
    seconds: float
    minute_seconds: float
    kill_seconds: float
    warm_seconds: float
    clients: int = 64
    hot: int = 4


FULL = Effort(rounds=5, seconds=12.0, minute_seconds=60.0, kill_seconds=60.0, warm_seconds=2.0)
QUICK = Effort(rounds=2, seconds=0.5, minute_seconds=1.0, kill_seconds=2.0, warm_seconds=0.2)


def measured(names: list[str], effort: Effort, *, quick: bool, commit: str, computer: Callable[[], Machine]) -> HttpRun:
    """One run. `names` are some of `NAMES`; without names, all. Raises SystemExit on a name of none."""
    for name in names:
        if name not in NAMES:
            raise SystemExit(f"bench: nothing of http is named {name!r}; there are {', '.join(NAMES)}")
    wanted = names or list(NAMES)
    left_out: dict[str, str] = {}
    with tempfile.TemporaryDirectory(dir=disk(), prefix="bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        kind = file_system(folder)
        lines = _in_rounds([each for each in LINES if each in wanted], folder, effort, left_out)
        minute = _minute(folder, effort, left_out) if "minute" in wanted else None
        ended = _killed(folder, effort, left_out) if "kill" in wanted else None
    return HttpRun(
        date=dt.datetime.now(dt.UTC).date().isoformat(),
        quick=quick,
        partial=bool(names),
        rounds=effort.rounds,
        clients=effort.clients,
        python=platform.python_version(),
        commit=commit,
        file_system=kind,
        stack=stack(),
        machine=computer(),
        left_out=left_out,
        lines=lines,
        minute=minute,
        killed=ended,
    )


def stack() -> dict[str, str]:
    """What serves both lines: uvicorn reads HTTP with whatever is installed, and that makes a difference."""
    loaded: uvicorn.Config = uvicorn_config(_nothing)
    loaded.load()
    reader = getattr(loaded.http_protocol_class, "__name__", "")
    found = "httptools" if "HttpTools" in reader else "h11"
    return {each: version(each) for each in ("starlette", "uvicorn", found)} | {"asyncio": ""}


async def _nothing(scope: object, receive: object, send: object) -> None:
    """An application that is never asked."""


def _in_rounds(names: list[str], folder: Path, effort: Effort, left_out: dict[str, str]) -> dict[str, Line]:
    """The lines, asked in turn. One that fails is left out from then on."""
    lines = {name: Line() for name in names}
    with ExitStack() as stack:
        running: dict[str, Running] = {}
        for name in names:
            with _told(name, lines[name], left_out):
                running[name] = stack.enter_context(_started(name, folder, effort))
        for number in range(effort.rounds):
            for name, server in running.items():
                line = lines[name]
                if line.error is None:
                    tell(f"bench: http {name}, round {number + 1} of {effort.rounds} ...")
                    with _told(name, line, left_out):
                        question = _question(server, effort, f"round{number}", effort.seconds)
                        line.samples.append(sample(sent(question)))
    return lines


@contextmanager
def _started(name: str, folder: Path, effort: Effort) -> Iterator[Running]:
    """A server, for a while."""
    if name == "hello":
        with servers.hello() as server:
            yield server
    else:
        with servers.serve(_prepared(folder, "rounds", effort)) as server:
            yield server


@contextmanager
def _told(name: str, line: Line, left_out: dict[str, str]) -> Iterator[None]:
    """Whatever fails in here is told, and ends nothing but its line."""
    try:
        yield
    except ServerFailedError as error:
        line.error = left_out[name] = without_folders(str(error))
        line.samples = []
        tell(f"FAILED: http {name}: {line.error}")


def _minute(folder: Path, effort: Effort, left_out: dict[str, str]) -> Sample | None:
    """The whole minute on a fresh store; None when it failed, which is told."""
    tell("bench: http minute ...")
    line = Line()
    with _told("minute", line, left_out), servers.serve(_prepared(folder, "minute", effort)) as server:
        return sample(sent(_question(server, effort, "minute", effort.minute_seconds)))
    return None


def _killed(folder: Path, effort: Effort, left_out: dict[str, str]) -> Killed | None:
    """The kill on a fresh store; None when it failed, which is told."""
    tell("bench: http kill ...")
    line = Line()
    with _told("kill", line, left_out):
        place = folder / "kill"
        place.mkdir()
        return killed(place, clients=effort.clients, seconds=effort.kill_seconds, hot=effort.hot)
    return None


def _prepared(folder: Path, name: str, effort: Effort) -> Path:
    place = folder / name
    place.mkdir()
    prepared(place, effort.clients, effort.hot)
    return place


def _question(server: Running, effort: Effort, name: str, seconds: float) -> Question:
    return Question(
        port=server.port,
        server_pid=server.pid,
        bearer=BEARER,
        name=name,
        clients=effort.clients,
        seconds=seconds,
        warm_seconds=effort.warm_seconds,
        hot=effort.hot,
    )


def sample(answer: Answer) -> Sample:
    """What a load found, per request. Raises ServerFailedError when nothing was answered."""
    if not answer.answers:
        raise ServerFailedError("nothing was answered")
    return Sample(
        answers=answer.answers,
        seconds=answer.wall_s,
        cpu_us=1e6 * answer.server_cpu_s / answer.answers,
        load_cpu_us=1e6 * answer.own_cpu_s / answer.answers,
        load_share=answer.own_cpu_s / answer.wall_s,
        latencies_ms=answer.latencies_ms,
        own_latencies_ms=answer.own_latencies_ms,
        hot_latencies_ms=answer.hot_latencies_ms,
    )
