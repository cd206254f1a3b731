"""`interlock serve`: a process that prints its address, answers requests, and stops on a signal."""

import os
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

import interlock
from interlock.cli.commands import serve
from interlock.cli.main import main
from interlock.errors import UsageError
from interlock.web.auth import read_keys
from tests.support.eventually import PATIENCE_SECONDS
from tests.support.missing import run_without

CHART = (
    "interlock: 1\nkind: lamp\nrevision: 1.0.0\ninitial: off\nstates: {off: {on: {flip: on}}, on: {on: {flip: off}}}\n"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with a lamp, its chart, and a project that names both."""
    (tmp_path / "lamp.yaml").write_text(CHART, encoding="utf-8")
    (tmp_path / "interlock.toml").write_text('store = "sqlite:///lamps.db"\ncharts = ["lamp.yaml"]\n', encoding="utf-8")
    with interlock.open(f"sqlite:///{tmp_path}/lamps.db", charts=[interlock.loads(CHART)]) as lamps:
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
    with interlock.open("sqlite:///lamps.db", charts=[interlock.loads(CHART)]) as lamps:
        version = lamps.state("lamp/a").version

    assert version in ({2} if kept else {1, 2})


def test_the_link_leads_where_browsers_reach_it(folder: Path) -> None:
    with serving("--origin", "https://console.example.org/") as (_, link):
        found = link.partition("/#login=")[0]

    assert "https://console.example.org" == found


def test_other_machines_need_a_key(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["serve", "--host", "0.0.0.0", "--port", "0"])

    assert 2 == code
    assert "--key-file" in capsys.readouterr().err


def test_a_port_in_use_is_an_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code = main(["serve", "--port", str(taken.getsockname()[1])])

    assert 7 == code
    assert "--port" in capsys.readouterr().err


def test_a_public_address_without_keys_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = folder / "keys.toml"
    keys.write_text(f'[[key]]\nid = "ada"\nsha256 = "{"0" * 64}"\nroles = []\nrights = ["read"]\n', encoding="utf-8")
    keys.chmod(0o600)
    code = main(["serve", "--host", "203.0.113.1", "--port", "0", "--key-file", str(keys)])
    said = capsys.readouterr().err

    assert (7, True, False) == (code, "--host" in said, "--port" in said)


def test_a_missing_store_is_not_created(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lamp.yaml").write_text(CHART, encoding="utf-8")

    assert 6 == main(["serve", "sqlite:///none.db", "--chart", "lamp.yaml", "--port", "0"])
    assert "store not found" in capsys.readouterr().err
    assert not (tmp_path / "none.db").exists()


def test_serve_uses_the_key_prefix_of_the_option_or_the_project(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[tuple[bool, str]]()

    def opening(url: str, *, work: bool, key_prefix: str, **_: object) -> None:
        asked.append((work, key_prefix))
        raise UsageError(f"{url} is enough", code="test.enough")

    monkeypatch.setattr(serve, "open_runtime", opening)
    with (folder / "interlock.toml").open("a", encoding="utf-8") as file:
        file.write('key_prefix = "eu/"\n')
    codes = [main(["serve", "--work", *options]) for options in ((), ("--key-prefix", "us/"))]

    assert ([2, 2], [(True, "eu/"), (True, "us/")]) == (codes, asked)


def test_a_new_key_goes_into_a_key_file_and_opens_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["serve", "--new-key", "ada"])
    key, _, table = capsys.readouterr().out.partition("\n")
    file = folder / "keys.toml"
    file.write_text(table, encoding="utf-8")
    file.chmod(0o600)
    with serving("--key-file", str(file)) as (process, base):
        with httpx.Client(base_url=base, headers={"Authorization": f"Bearer {key}"}) as client:
            answers = [client.get("/api/v1/kinds"), client.post("/api/v1/send/lamp/a", json={"event": "flip"})]
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_SECONDS)

    assert key not in table
    assert ["ada"] == [each.name for each in read_keys(file).values()]
    assert [200, 403] == [each.status_code for each in answers]


def test_a_new_key_has_the_given_id(capsys: pytest.CaptureFixture[str]) -> None:
    name = 'ada"\nrights = ["bulk"] # \\ ü'
    assert 0 == main(["serve", "--new-key", name])
    table = tomllib.loads(capsys.readouterr().out.partition("\n")[2])

    assert (name, ["read"]) == (table["key"][0]["id"], table["key"][0]["rights"])


def test_a_missing_extra_names_the_package(folder: Path) -> None:
    code = "from interlock.cli.main import main\nsys.exit(main(['serve', '--port', '0']))"
    ended = run_without("starlette", code=code, cwd=folder)

    assert (9, True) == (ended.returncode, "interlock[web]" in ended.stderr)
