"""Keyrings: in a file, a variable, a command, and of this process."""

import sys
from base64 import b64encode
from pathlib import Path

import pytest

from interlock.errors import CorruptionError, InterlockError, NotFoundError, UnavailableError, UsageError
from interlock.ports.trust.keyring import Keyring
from interlock.trust.keyrings import FileKeyring, ProcessKeyring, open_keyring

KID = "0123456789abcdef"
KEY = bytes(range(64))
FIRST, SECOND = b64encode(b"1" * 32).decode(), b64encode(b"2" * 32).decode()


def code_of(call: object) -> str:
    """The code of the error that a call raises."""
    assert callable(call)
    with pytest.raises(InterlockError) as caught:
        call()
    return caught.value.code


@pytest.fixture(params=["file", "process", "env", "command"])
def ring(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Keyring:
    match request.param:
        case "file":
            return FileKeyring.create(tmp_path / "keyring.json")
        case "process":
            return ProcessKeyring()
        case "env":
            monkeypatch.setenv("KEYS", f"1={FIRST}")
            return open_keyring("env:KEYS")
        case _:
            script = tmp_path / "keys.py"
            script.write_text(f"print('1={FIRST}')")
            return open_keyring(f"command:{sys.executable} {script}")


def test_a_data_key_is_unwrapped_under_its_epoch_id_and_tenant_only(ring: Keyring) -> None:
    wrapped = ring.wrap(1, KEY, kid=KID, tenant="a")

    assert ring.epochs() == (1,)
    assert KEY not in wrapped
    assert ring.unwrap(1, wrapped, kid=KID, tenant="a") == KEY
    for kid, tenant in ((KID, "b"), ("00" * 8, "a")):
        with pytest.raises(CorruptionError):
            ring.unwrap(1, wrapped, kid=kid, tenant=tenant)
    with pytest.raises(NotFoundError):
        ring.unwrap(2, wrapped, kid=KID, tenant="a")


def test_a_file_ends_epochs_and_other_processes_see_it(tmp_path: Path) -> None:
    path = tmp_path / "keyring.json"
    ring, other = FileKeyring.create(path), open_keyring(f"file:{path}")
    wrapped = ring.wrap(1, KEY, kid=KID, tenant="")
    before = path.read_bytes()

    assert ring.add_epoch() == 2
    assert other.epochs() == (1, 2)
    ring.destroy_epoch(1)

    assert other.epochs() == (2,)
    with pytest.raises(NotFoundError):
        other.unwrap(1, wrapped, kid=KID, tenant="")
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["keyring.json"]
    first_key = before.split(b'"1": "')[1].split(b'"')[0]
    assert first_key not in path.read_bytes()


def test_a_process_keyring_ends_epochs() -> None:
    ring = ProcessKeyring()

    assert ring.add_epoch() == 2
    ring.destroy_epoch(1)

    assert ring.epochs() == (2,)


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keyring.json"
    FileKeyring.create(path)
    path.chmod(0o640)

    assert code_of(lambda: open_keyring(f"file:{path}")) == "keyring.mode"


def test_an_existing_file_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "keyring.json"
    FileKeyring.create(path)

    assert code_of(lambda: FileKeyring.create(path)) == "keyring.exists"


@pytest.mark.parametrize(
    "content", ["", "{}", '{"interlock_keyring": 1}', '{"interlock_keyring": 1, "epochs": {"1": "AA"}}']
)
def test_another_file_is_not_a_keyring(tmp_path: Path, content: str) -> None:
    path = tmp_path / "keyring.json"
    path.touch(mode=0o600)
    path.write_text(content)

    assert code_of(lambda: open_keyring(f"file:{path}")) == "keyring.malformed"


@pytest.mark.parametrize("text", ["x", "1=AA", "0=" + FIRST, "1=!!", "one=" + FIRST, ","])
def test_another_text_is_not_a_keyring(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("KEYS", text)

    assert code_of(lambda: open_keyring("env:KEYS")) == "keyring.malformed"


def test_a_variable_with_two_epochs_wraps_with_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEYS", f"1={FIRST}, 2={SECOND}")
    ring = open_keyring("env:KEYS")

    assert ring.epochs() == (1, 2)
    assert code_of(ring.add_epoch) == "keyring.read_only"
    assert code_of(lambda: ring.destroy_epoch(1)) == "keyring.read_only"


def test_a_text_is_read_again_when_an_epoch_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEYS", f"1={FIRST}")
    ring = open_keyring("env:KEYS")
    monkeypatch.setenv("KEYS", f"1={FIRST},2={SECOND}")
    wrapped = open_keyring("env:KEYS").wrap(2, KEY, kid=KID, tenant="")

    assert ring.unwrap(2, wrapped, kid=KID, tenant="") == KEY


@pytest.mark.parametrize("address", ["", "file:", "keyring.json", "vault:x", "env:"])
def test_an_unknown_address_is_refused(address: str) -> None:
    assert code_of(lambda: open_keyring(address)) == "keyring.address"


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        open_keyring(f"file:{tmp_path / 'none.json'}")

    assert caught.value.code == "keyring.missing"
    assert "keyring init" in str(caught.value.hint)
    assert code_of(lambda: open_keyring("env:INTERLOCK_NO_SUCH_KEYS")) == "keyring.missing"


def test_a_failed_command_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError):
        open_keyring(f"command:{sys.executable} -c 'raise SystemExit(3)'")
    with pytest.raises(UnavailableError):
        open_keyring(f"command:{tmp_path / 'none'}")
