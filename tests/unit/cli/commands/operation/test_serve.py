"""`interlock serve`: a process that prints its address, answers requests, and stops on a signal."""

import socket
from pathlib import Path

import pytest

import interlock
from interlock.cli.commands.operation import serve
from interlock.cli.commands.operation.serve import known_roles
from interlock.cli.main import main
from interlock.cli.session import open_for_writing
from interlock.errors import UsageError
from interlock.runtime.charts.registry import JOB_KIND

CHART = (
    "interlock: 1\nkind: lamp\nrevision: 1.0.0\ninitial: off\nstates: {off: {on: {flip: on}}, on: {on: {flip: off}}}\n"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with a lamp, its chart, and a project that names both."""
    (tmp_path / "lamp.yaml").write_text(CHART, encoding="utf-8")
    (tmp_path / "interlock.toml").write_text('store = "sqlite:///lamps.db"\ncharts = ["lamp.yaml"]\n', encoding="utf-8")
    with interlock.open(f"sqlite:///{tmp_path}/lamps.db", charts=[interlock.loads(CHART)]).blocking() as lamps:
        lamps.create("lamp/a")
    monkeypatch.chdir(tmp_path)
    return tmp_path


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


async def test_the_local_user_has_the_roles_of_stored_definitions_but_not_that_of_the_console(folder: Path) -> None:
    guarded = CHART.replace("kind: lamp", "kind: lamp\nevents: {flip: {roles: [warden]}}")
    url = f"sqlite:///{folder}/guarded.db"
    async with interlock.open(url, charts=[interlock.loads(guarded)], work=False) as lamps:
        await lamps.create("lamp/1")
        await lamps.revisions.register_kind(JOB_KIND)  # as the first job of a console does
    async with open_for_writing(url) as runtime:
        assert runtime.store.definitions is not None
        kinds = {each.kind for each in await runtime.store.definitions.list_definitions()}
        roles = await known_roles(runtime)

    assert {"lamp", JOB_KIND} <= kinds
    assert ["warden"] == roles
