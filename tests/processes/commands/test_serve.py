"""`interlock serve` as a process: sign-in links, key files, signals."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

import interlock
from interlock.cli.main import main
from interlock.trust.used_keys import read_used
from tests.support.eventually import PATIENCE_SECONDS, eventually_blocking
from tests.unit.cli.commands.operation.test_serve import CHART


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with a lamp, its chart, and a project that names both."""
    (tmp_path / "lamp.yaml").write_text(CHART, encoding="utf-8")
    (tmp_path / "interlock.toml").write_text('store = "sqlite:///lamps.db"\ncharts = ["lamp.yaml"]\n', encoding="utf-8")
    with interlock.open(f"sqlite:///{tmp_path}/lamps.db", charts=[interlock.loads(CHART)]).blocking() as lamps:
        lamps.create("lamp/a")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server as a process, and the first line it printed."""
    command = [sys.executable, "-m", "interlock", "serve", "--port", "0", *arguments]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_server_with_an_open_stream(folder: Path, end: signal.Signals) -> None:
    with serving() as (process, link):
        base, _, token = link.partition("/#login=")
        with httpx.Client(base_url=base) as client:
            me = client.post("/api/v1/login", json={"secret": token}, headers={"Origin": base})
            client.headers["X-Interlock-CSRF"] = me.json()["csrf"]
            kinds = client.get("/api/v1/kinds")
            with client.stream("GET", "/api/v1/streams/fleet") as stream:
                pieces = stream.iter_text()
                first = next(pieces)
                process.send_signal(end)
                rest = "".join(pieces)
        output, errors = process.communicate(timeout=PATIENCE_SECONDS)

    assert (200, 200, ["lamp"]) == (me.status_code, kinds.status_code, [each["kind"] for each in kinds.json()["kinds"]])
    assert "retry" in first + rest
    assert (0, "") == (process.returncode, output)
    assert "Ctrl-C" in errors


def test_what_was_answered_while_it_ends_is_kept(folder: Path) -> None:
    with serving() as (process, link):
        base, _, token = link.partition("/#login=")
        with httpx.Client(base_url=base) as client:
            csrf = client.post("/api/v1/login", json={"secret": token}, headers={"Origin": base}).json()["csrf"]
            headers = {"Origin": base, "X-Interlock-CSRF": csrf}
            process.send_signal(signal.SIGINT)
            try:
                answer = client.post("/api/v1/send/lamp/a", json={"event": "flip", "key": "k"}, headers=headers)
                kept = answer.json()["outcome"] == "applied"
            except httpx.TransportError:
                kept = False
        process.communicate(timeout=PATIENCE_SECONDS)
    with interlock.open("sqlite:///lamps.db", charts=[interlock.loads(CHART)]).blocking() as lamps:
        version = lamps.state("lamp/a").version

    assert version in ({2} if kept else {1, 2})


def test_the_link_leads_where_browsers_reach_it(folder: Path) -> None:
    with serving("--origin", "https://console.example.org/") as (_, link):
        found = link.partition("/#login=")[0]

    assert "https://console.example.org" == found


def test_a_new_key_opens_the_server_until_it_is_revoked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["keys", "create", "ada"])
    key, file = capsys.readouterr().out.strip(), folder / "keys.toml"
    with serving("--key-file", str(file)) as (process, base):
        with httpx.Client(base_url=base, headers={"Authorization": f"Bearer {key}"}) as client:
            answers = [client.get("/api/v1/kinds"), client.post("/api/v1/send/lamp/a", json={"event": "flip"})]
            assert 0 == main(["keys", "revoke", "ada"])
            eventually_blocking(lambda: client.get("/api/v1/kinds").status_code == 401, "the revocation")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_SECONDS)

    assert key not in file.read_text(encoding="utf-8")
    assert [200, 403] == [each.status_code for each in answers]
    assert 1 == len(read_used(file))


def test_without_a_chart_the_console_shows_and_steps_by_the_stored_definition(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))  # not below the project
    with serving(f"sqlite:///{folder}/lamps.db") as (process, link):
        base, _, token = link.partition("/#login=")
        with httpx.Client(base_url=base, headers={"Origin": base}) as client:
            me = client.post("/api/v1/login", json={"secret": token})
            client.headers["X-Interlock-CSRF"] = me.json()["csrf"]
            page = client.get("/api/v1/entity/lamp/a").json()
            sent = client.post("/api/v1/send/lamp/a", json={"event": "flip"})
            created = client.post("/api/v1/kinds/lamp/entities", json={"id": "b"})
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_SECONDS)
    refused = main(["serve", f"sqlite:///{folder}/lamps.db", "--work", "--port", "0"])

    assert "flip" in [each["event"] for each in page["accepted"]]
    assert (200, "applied") == (sent.status_code, sent.json()["outcome"])
    assert 404 == created.status_code
    assert 2 == refused  # handlers cannot come from the store
