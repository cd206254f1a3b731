"""The keys that sign outgoing webhooks: fixed ones, or those of a file that may change while the process runs.

    [[secret]]
    id = "2026-11"
    secret = "whsec_..."
    not_after = 2026-12-01T00:00:00Z

Rule 1: other users of the machine must not be able to read the file.
Rule 2: the file is read again when it has changed. While its new content is invalid, the last valid one counts, and the
log says why: a half-saved file must not stop the messages.
"""

from __future__ import annotations

import logging
import tomllib
from pathlib import Path
from typing import Annotated, Protocol

import msgspec
from msgspec import Meta, Struct

from interlock.errors import InterlockError, UsageError
from interlock.model.limits import KEY_FILE_BYTES_MAX, SIGNATURES_MAX
from interlock.model.webhook_signature import SecretTable, SigningKey, signing_keys
from interlock.ports.trust.private_file import file_signature, read_private_text, without_values

_log = logging.getLogger("interlock.bus")


class SigningKeys(Protocol):
    """Where the keys are."""

    def current(self) -> tuple[SigningKey, ...]:
        """Return the keys, also those that are not valid now. It may block."""


class FixedKeys:
    """Keys that do not change."""

    def __init__(self, keys: tuple[SigningKey, ...]) -> None:
        self._keys = keys

    def current(self) -> tuple[SigningKey, ...]:
        """Return the keys."""
        return self._keys


class SecretsFile(Struct, frozen=True, forbid_unknown_fields=True):
    """The tables of a file with secrets."""

    secret: Annotated[tuple[SecretTable, ...], Meta(min_length=1, max_length=SIGNATURES_MAX)]


class SigningKeyFile:
    """The keys of a file. Raises UsageError if it is invalid, NotFoundError if it does not exist."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._changed = file_signature(path)
        self._keys = read_signing_keys(path)

    def current(self) -> tuple[SigningKey, ...]:
        """Return the keys of the file, as last valid."""
        changed = file_signature(self._path)
        if changed != self._changed:
            self._changed = changed
            try:
                self._keys = read_signing_keys(self._path)
            except InterlockError as error:
                facts = {"code": error.code, "error": error.message, "hint": error.hint}
                _log.error("the changed file of signing keys cannot be used", extra=facts)
        return self._keys


def read_signing_keys(path: Path) -> tuple[SigningKey, ...]:
    """Return the keys of a file. Raises as `SigningKeyFile`; no error shows a key."""
    return parse_signing_keys(read_private_text(path, bytes_max=KEY_FILE_BYTES_MAX), path)


def parse_signing_keys(text: str, path: Path) -> tuple[SigningKey, ...]:
    """Return the keys of a file from its text. Raises UsageError, which shows no key."""
    try:
        tables = msgspec.convert(tomllib.loads(text), SecretsFile)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        hint = "a [[secret]] has id, secret, not_before and not_after; times have a time zone"
        raise UsageError(f"{path}: {without_values(str(error))}", code="keys.malformed", hint=hint) from None
    return signing_keys(tables.secret, str(path))
