"""The measured servers and the process of the clients.

Rule 1: Interlock is started as users start it: `interlock serve` on a SQLite file, with a key file.
Rule 2: every process that is started here is ended here, by its id; after a failure its last error is reported.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import msgspec

import interlock
from bench.http.load import HALF, Answer, Question, hot_entity, own_entity
from bench.measure import ROOT, PeerUnavailableError, environment, last_error
from interlock.trust.api_keys import key_digest

CHART = ROOT / "bench" / "charts" / "parcel.interlock.yaml"
BEARER = "ilk_of_the_load"
END_S = 30.0
"""How long a server may take to end before it is killed."""


class Running:
    """A server that answers."""

    def __init__(self, command: list[str]) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # open as long as the process is
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self._errors, text=True, env=environment(), cwd=ROOT
        )
        try:
            assert self._process.stdout is not None
            address = self._process.stdout.readline().strip()
            if not address:
                self._process.wait()
                raise _failure(self._errors)
            self.port = int(address.rpartition(":")[2])
        except BaseException:  # the caller has no handle of the process yet
            self.end()
            raise

    @property
    def pid(self) -> int:
        """The id of its process."""
        return self._process.pid

    def kill(self) -> None:
        """Kill it without an orderly shutdown."""
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        """End it as its users do, and wait for its end."""
        self._process.terminate()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.kill()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()


@contextmanager
def hello() -> Iterator[Running]:
    """The bare application."""
    server = Running([sys.executable, "-m", "bench.http.hello"])
    try:
        yield server
    finally:
        server.end()


def prepared(folder: Path, clients: int, hot: int) -> None:
    """A store with the entities of so many clients, and a key file, in an empty folder."""
    chart = interlock.load(CHART)
    with interlock.open(store_url(folder), charts=[chart]).blocking() as parcels:
        for entity in [own_entity(each) for each in range(clients)] + [hot_entity(each) for each in range(hot)]:
            parcels.create(entity, key=f"create-{entity}").expect()
    keys = folder / "keys.toml"
    keys.touch(mode=0o600)
    keys.write_text(
        f'[[key]]\nid = "load"\nkind = "service"\nsha256 = "{key_digest(BEARER)}"\nrights = ["read", "send"]\n'
        "[rates.send]\nper_second = 1_000_000\nburst = 1_000_000\n"  # counted, and never reached
        "[rates.read]\nper_second = 1_000_000\nburst = 1_000_000\n",
        encoding="utf-8",
    )


def started(folder: Path, port: int = 0, *, program: str = "interlock") -> Running:
    """`interlock serve` on the store of a folder that was prepared; `program` is the module that is run."""
    options = ["--port", str(port), "--key-file", str(folder / "keys.toml"), "--chart", str(CHART)]
    return Running([sys.executable, "-m", program, "serve", store_url(folder), *options])


@contextmanager
def serve(folder: Path) -> Iterator[Running]:
    """`interlock serve`, for a while."""
    server = started(folder)
    try:
        yield server
    finally:
        server.end()


def store_url(folder: Path) -> str:
    """The address of a folder's store."""
    return f"sqlite:///{folder}/parcels.db"


class Sending:
    """A load under way."""

    def __init__(self, question: Question) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # open as long as the process is
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.http.load"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment(),
            cwd=ROOT,
        )
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(question))
        self._process.stdin.close()

    def half(self) -> None:
        """Wait until half is over. Raises PeerUnavailableError when it never is."""
        if self._line().strip() != HALF.encode():
            raise self._failed()

    def answer(self) -> Answer:
        """What it found. Raises PeerUnavailableError when it found something wrong."""
        lines = [line for line in (self._line(), self._line()) if line.strip() not in (b"", HALF.encode())]
        if self._process.wait() != 0 or not lines:
            raise self._failed()
        return msgspec.json.decode(lines[-1], type=Answer)

    def end(self) -> None:
        """Let go of the process, which by now has ended, or is ended."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def _failed(self) -> PeerUnavailableError:
        self._process.wait()
        return _failure(self._errors)


def _failure(errors: IO[bytes]) -> PeerUnavailableError:
    errors.seek(0)
    return PeerUnavailableError(last_error(errors.read()))


def sent(question: Question) -> Answer:
    """Run a whole load and return its answer."""
    sending = Sending(question)
    try:
        return sending.answer()
    finally:
        sending.end()
