"""`interlock demo` as a process: it serves, stops on a signal, and resumes."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.support.cli import Caller
from tests.support.eventually import PATIENCE_SECONDS

CLOSED = re.compile(
    r"stopped: ([\d,]+) new entit(?:y|ies), ([\d,]+) events? sent, ([\d,]+) effects? run, "
    r"([\d,]+) sagas? compensated"
)


LEFT = re.compile(r"([\d,]+) of ([\d,]+) entities active(?:, \d+ effects requeued)?, [\d,]+ dead letters?; state saved")


@contextmanager
def playing(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A demo as a process, ended with the test."""
    command = [sys.executable, "-u", "-m", "interlock", "demo", "--no-browser", *arguments]
    environment = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR"}}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def link_of(process: subprocess.Popen[str]) -> tuple[str, str]:
    """The address that it printed, and the token of its login."""
    assert process.stdout is not None
    base, _, token = process.stdout.readline().strip().partition("/#login=")
    return base, token


def log_in(client: httpx.Client, base: str, token: str) -> None:
    """Logs in by the link's token, as the page does."""
    answer = client.post("/api/v1/login", json={"secret": token}, headers={"Origin": base}).raise_for_status()
    client.headers["X-Interlock-CSRF"] = answer.json()["csrf"]


def entities_of(client: httpx.Client) -> int:
    """How many entities the console counts."""
    return sum(each["entities"] for each in client.get("/api/v1/kinds").json()["kinds"])


def numbers(pattern: re.Pattern[str], text: str) -> list[int]:
    """The numbers of a line of the report."""
    found = pattern.search(text)

    assert found is not None, text
    return [int(each.replace(",", "")) for each in found.groups()]


@pytest.mark.slow
def test_the_demo_serves_the_console_stops_cleanly_and_resumes(call: Caller, folder: Path) -> None:
    with playing("--port", "0", "--rate", "20", "--duration", "50s") as process:
        base, token = link_of(process)
        with httpx.Client(base_url=base, timeout=PATIENCE_SECONDS) as client:
            log_in(client, base, token)
            first = entities_of(client)
            while (later := entities_of(client)) < first + 30:
                assert process.poll() is None
            page = client.get("/")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    with playing("--no-console", "--rate", "20", "--duration", "1s") as process:
        again, heard = process.communicate(timeout=PATIENCE_SECONDS)
    new, events, effects, _ = numbers(CLOSED, out)
    _, kept = numbers(LEFT, out)
    proof = call("verify", "sqlite:///interlock-demo/demo.db", *charts(folder))

    assert (200, 0, 0) == (page.status_code, process.returncode, proof.code)
    assert new == kept >= later
    assert (True, True) == (events >= 40, effects > 0)
    assert err.startswith("started: orders and virtual machines on interlock-demo/demo.db\n")
    assert heard.startswith(f"resumed with {kept:,} entities: ")
    assert kept + numbers(CLOSED, again)[0] == numbers(LEFT, again)[1] > kept
    assert f"{numbers(LEFT, again)[1]:,} entities" in proof.out


def charts(folder: Path) -> list[str]:
    """The charts in the folder of the store."""
    return [word for each in sorted((folder / "interlock-demo").glob("*.yaml")) for word in ("--chart", str(each))]


@pytest.mark.slow
def test_the_next_free_port_is_used_and_sigterm_stops_the_demo(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with playing("--port", str(port)) as process:
            base, _ = link_of(process)
            status = httpx.get(base, timeout=PATIENCE_SECONDS).status_code
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=PATIENCE_SECONDS)

    assert (200, 0) == (status, process.returncode)
    assert base.startswith("http://127.0.0.1:")
    assert f":{port}" not in base
    assert f"port {port} is in use" in err
    assert CLOSED.search(out)


@pytest.mark.slow
def test_the_demo_stops_after_its_duration(folder: Path) -> None:
    with playing("--port", "0", "--duration", "500ms") as process:
        out, _ = process.communicate(timeout=PATIENCE_SECONDS)

    assert (0, True) == (process.returncode, out.startswith("http://127.0.0.1:"))
    assert CLOSED.search(out)


@pytest.mark.slow
def test_a_killed_demo_resumes(call: Caller, folder: Path) -> None:
    with playing("--port", "0", "--rate", "20") as process:
        base, token = link_of(process)
        with httpx.Client(base_url=base, timeout=PATIENCE_SECONDS) as client:
            log_in(client, base, token)
            while (seen := entities_of(client)) < 60:
                assert process.poll() is None
        process.kill()
        process.wait()
    with playing("--no-console", "--rate", "20", "--duration", "1s") as process:
        again, heard = process.communicate(timeout=PATIENCE_SECONDS)
    proof = call("verify", "sqlite:///interlock-demo/demo.db", *charts(folder))

    assert (0, 0) == (process.returncode, proof.code), proof.out
    assert heard.startswith("resumed with ")
    assert seen <= int(heard.split()[2].replace(",", "")) < numbers(LEFT, again)[1]
