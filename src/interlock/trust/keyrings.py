"""Keyrings: master keys in a file, in an environment variable, from a command, or of this process only.

    file:keyring.json      a file that only its owner may read; rotates itself
    env:INTERLOCK_KEYS     1=<base64 of 32 bytes>,2=<...>
    command:vault-keys     prints the same text; run again when an epoch is missing

Rule 1: a data key is wrapped by AES-GCM-SIV. The nonce is the id of the data key, which is used once per epoch; the
associated data binds the wrap to the tenant and the epoch.
Rule 2: errors and logs name epochs and places, never a key.
"""

from __future__ import annotations

import os
import secrets  # noqa: TID251 - keys are not an input: no program may choose them
import shlex
import stat
import subprocess
from abc import ABC, abstractmethod
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import Any

import msgspec

from interlock.errors import CorruptionError, NotFoundError, UnavailableError, UsageError
from interlock.model.limits import KEYRING_BYTES_MAX, KEYRING_COMMAND_SECONDS
from interlock.ports.trust.keyring import EPOCH_MAX, Keyring
from interlock.trust.sealing import KID_BYTES, missing_cryptography

MASTER_KEY_BYTES = 32
"""Bytes of a master key: AES-256."""

_NONCE_TAIL = b"\0" * (12 - KID_BYTES)


class MasterKeys(ABC):
    """The master keys of a keyring by epoch: wraps and unwraps with them. The base of every adapter here."""

    is_durable = True

    @abstractmethod
    def _keys(self) -> Mapping[int, bytes]:
        """Return the master keys as they are now."""

    def epochs(self) -> tuple[int, ...]:
        """Return the epochs with a master key, ascending."""
        return tuple(sorted(self._keys()))

    def wrap(self, epoch: int, key: bytes, *, kid: str, tenant: str) -> bytes:
        """Return a data key wrapped under an epoch."""
        wrapped: bytes = self._cipher(epoch).encrypt(_nonce(kid), key, _associated(tenant, epoch))
        return wrapped

    def unwrap(self, epoch: int, wrapped: bytes, *, kid: str, tenant: str) -> bytes:
        """Return a data key."""
        cipher = self._cipher(epoch)
        from cryptography.exceptions import InvalidTag

        try:
            key: bytes = cipher.decrypt(_nonce(kid), wrapped, _associated(tenant, epoch))
        except InvalidTag as error:
            hint = "the keyring belongs to another store, or the key table was changed"
            message = f"a data key cannot be unwrapped with the master key of epoch {epoch}"
            raise CorruptionError(message, code="keyring.unwrap", hint=hint) from error
        return key

    def add_epoch(self) -> int:
        """Raise UsageError: keys are managed elsewhere."""
        raise _read_only("add the key of the next epoch there, and restart every process")

    def destroy_epoch(self, epoch: int) -> None:
        """Raise UsageError: keys are managed elsewhere."""
        raise _read_only(f"remove epoch {epoch} there")

    def _cipher(self, epoch: int) -> Any:
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV
        except ImportError as error:
            raise missing_cryptography() from error
        found = self._keys().get(epoch)
        if found is None:
            hint = "it was destroyed, or this process has an older keyring: restart it with the current one"
            message = f"the keyring has no master key for epoch {epoch}"
            raise NotFoundError(message, code="keyring.epoch", hint=hint)
        return AESGCMSIV(found)


def _nonce(kid: str) -> bytes:
    return bytes.fromhex(kid) + _NONCE_TAIL


def _associated(tenant: str, epoch: int) -> bytes:
    return b"interlock-data-key\0%b\0%d" % (tenant.encode(), epoch)


def _read_only(hint: str) -> UsageError:
    return UsageError("this keyring is read-only: its keys are managed elsewhere", code="keyring.read_only", hint=hint)


class ProcessKeyring(MasterKeys):
    """Master keys of this process: what is sealed with them is lost when it ends. For memory stores and tests."""

    is_durable = False

    def __init__(self) -> None:
        self._by_epoch = {1: secrets.token_bytes(MASTER_KEY_BYTES)}

    def _keys(self) -> Mapping[int, bytes]:
        return self._by_epoch

    def add_epoch(self) -> int:
        """Create the next master key."""
        epoch = max(self._by_epoch) + 1
        self._by_epoch = {**self._by_epoch, epoch: secrets.token_bytes(MASTER_KEY_BYTES)}
        return epoch

    def destroy_epoch(self, epoch: int) -> None:
        """Forget a master key."""
        self._by_epoch = {number: key for number, key in self._by_epoch.items() if number != epoch}


class FileKeyring(MasterKeys):
    """Master keys in a file of mode 600. Another process's change is seen at the next use."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._guard = Lock()
        self._seen: tuple[int, int, int] | None = None
        self._by_epoch: Mapping[int, bytes] = {}
        self._keys()

    @classmethod
    def create(cls, path: str | Path) -> FileKeyring:
        """Create a keyring with its first master key. Raises UsageError (`keyring.exists`) if the file exists."""
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            raise UsageError(f"the file {path} exists already", code="keyring.exists", hint="use it") from None
        _write_all(descriptor, _file_text({1: secrets.token_bytes(MASTER_KEY_BYTES)}))
        _sync_folder(Path(path).resolve().parent)
        return cls(path)

    def _keys(self) -> Mapping[int, bytes]:
        with self._guard:
            return self._read()

    def _read(self) -> Mapping[int, bytes]:
        try:
            found = self.path.stat()
        except OSError as error:
            hint = f"create one: interlock keyring init {self.path}"
            message = f"cannot read the keyring {self.path}: {error.strerror}"
            raise UsageError(message, code="keyring.missing", hint=hint) from error
        mark = (found.st_ino, found.st_mtime_ns, found.st_size)
        if mark != self._seen:
            if stat.S_IMODE(found.st_mode) & 0o077:
                message = f"the keyring {self.path} can be read by others"
                raise UsageError(message, code="keyring.mode", hint=f"chmod 600 {self.path}")
            self._by_epoch, self._seen = _parse_file(self.path), mark
        return self._by_epoch

    def add_epoch(self) -> int:
        """Create the next master key."""
        with self._guard:
            known = self._read()
            epoch = max(known) + 1
            self._replace({**known, epoch: secrets.token_bytes(MASTER_KEY_BYTES)})
        return epoch

    def destroy_epoch(self, epoch: int) -> None:
        """Overwrite the file without this master key. Copies elsewhere, such as backups of the file, are yours."""
        with self._guard:
            known = self._read()
            if epoch in known:
                self._replace({number: key for number, key in known.items() if number != epoch})

    def _replace(self, keys: Mapping[int, bytes]) -> None:
        """Replace the file atomically, then overwrite the bytes of the old one as well as a file system allows."""
        old = os.open(self.path, os.O_WRONLY)
        beside = self.path.with_name(f"{self.path.name}.{secrets.token_hex(4)}")
        try:
            _write_all(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), _file_text(keys))
            beside.replace(self.path)
            _sync_folder(self.path.resolve().parent)
            os.pwrite(old, b"\0" * os.fstat(old).st_size, 0)
            os.fsync(old)
        finally:
            os.close(old)
        self._seen = None


def _write_all(descriptor: int, text: bytes) -> None:
    with open(descriptor, "wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _file_text(keys: Mapping[int, bytes]) -> bytes:
    listed = {str(epoch): b64encode(key).decode() for epoch, key in sorted(keys.items())}
    return msgspec.json.format(msgspec.json.encode({"interlock_keyring": 1, "epochs": listed}), indent=2) + b"\n"


def _parse_file(path: Path) -> dict[int, bytes]:
    try:
        content = path.read_bytes()
        found = msgspec.json.decode(content) if len(content) <= KEYRING_BYTES_MAX else None
    except (OSError, msgspec.MsgspecError):
        found = None
    epochs = found.get("epochs") if isinstance(found, dict) and found.get("interlock_keyring") == 1 else None
    if not isinstance(epochs, dict):
        raise _malformed(str(path))
    return _checked({str(each): str(key) for each, key in epochs.items()}, str(path))


def _malformed(place: str) -> UsageError:
    hint = "a file is written by `interlock keyring init`; other keyrings are texts such as 1=<base64 of 32 bytes>"
    return UsageError(f"{place} is not a keyring", code="keyring.malformed", hint=hint)


def _checked(texts: Mapping[str, str], place: str) -> dict[int, bytes]:
    keys: dict[int, bytes] = {}
    for number, text in texts.items():
        try:
            key = b64decode(text, validate=True)
        except ValueError:
            raise _malformed(place) from None
        if not (number.isascii() and number.isdecimal() and 0 < int(number) <= EPOCH_MAX):
            raise _malformed(place)
        if len(key) != MASTER_KEY_BYTES:
            raise _malformed(place)
        keys[int(number)] = key
    if not keys:
        raise _malformed(place)
    return keys


def _parse_text(text: str, place: str) -> dict[int, bytes]:
    pairs = (each.strip().partition("=") for each in text.replace("\n", ",").split(",") if each.strip())
    return _checked({number: key for number, _, key in pairs}, place)


class TextKeyring(MasterKeys):
    """Master keys as a text from elsewhere, which is read once, and again when an epoch is missing."""

    def __init__(self, read: Callable[[], str], place: str) -> None:
        self._source = read
        self._place = place
        self._by_epoch: Mapping[int, bytes] = {}
        self._refresh()

    def _keys(self) -> Mapping[int, bytes]:
        return self._by_epoch

    def _refresh(self) -> None:
        self._by_epoch = _parse_text(self._source(), self._place)

    def unwrap(self, epoch: int, wrapped: bytes, *, kid: str, tenant: str) -> bytes:
        """Return a data key. An epoch that is missing may have been added since the text was read."""
        if epoch not in self._by_epoch:
            self._refresh()
        return super().unwrap(epoch, wrapped, kid=kid, tenant=tenant)


def open_keyring(address: str) -> Keyring:
    """Return the keyring at an address: `file:<path>`, `env:<variable>` or `command:<command line>`.

    Raises UsageError (`keyring.*`) for an invalid address or keyring, UnavailableError when a command fails.
    """
    kind, _, rest = address.partition(":")
    if rest and kind == "file":
        return FileKeyring(rest)
    if rest and kind == "env":
        return TextKeyring(lambda: _variable(rest), f"the variable {rest}")
    if rest and kind == "command":
        return TextKeyring(lambda: _output(rest), f"the output of `{rest[:80]}`")
    hint = "write file:keyring.json, env:INTERLOCK_KEYS, or command:<command line>"
    raise UsageError(f"`{address[:80]}` is not the address of a keyring", code="keyring.address", hint=hint)


def _variable(name: str) -> str:
    text = os.environ.get(name)
    if not text:
        message = f"the environment variable {name} is not set"
        raise UsageError(message, code="keyring.missing", hint="set it to 1=<base64 of 32 random bytes>")
    return text


def _output(command: str) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - the operator's own command, split without a shell
            shlex.split(command), capture_output=True, text=True, timeout=KEYRING_COMMAND_SECONDS, check=False
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        message = f"the command of the keyring failed: {type(error).__name__}"
        raise UnavailableError(message, code="keyring.command", hint="run it yourself") from None
    if done.returncode:
        message = f"the command of the keyring ended with exit code {done.returncode}"
        raise UnavailableError(message, code="keyring.command", hint="run it yourself")
    return done.stdout
