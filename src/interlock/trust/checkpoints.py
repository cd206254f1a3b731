"""Signed checkpoints: what the audit and the journals were at a time, as only the holder of a key can write it.

Rule 1: a checkpoint names the last row of the audit with its head, and every entity that has changed since the
checkpoint before it with its version and its head. A head proves everything before it.
Rule 2: what is signed is text, and the text is stored and published: nothing is encoded again to verify it.
Rule 3: each names the hash of the one before it, so a checkpoint that was removed is missed.
Rule 4: write access to the store is not enough to sign, if the key is elsewhere. Published checkpoints prove what
they name even if the key is lost later.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from interlock.errors import MissingExtraError, UsageError
from interlock.model.audit import CHECKPOINT, AuditRow
from interlock.model.encoding.codec import encode

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

CHECKPOINT_ACTOR = "checkpoint"
"""The actor of the rows that contain checkpoints."""


class JournalHead(Struct, frozen=True, array_like=True):
    """An entity's version and the head of its record."""

    version: int
    head: str


class Checkpoint(Struct, frozen=True):
    """What was there: see rule 1. `number` starts at 1; `previous` is the hash of the checkpoint before.

    `stream` is the head before the first row, which names the tenant. `cursor` is the position of the feed up to which
    journals are included.
    """

    number: int
    stream: str
    previous: str
    sequence: int
    head: str
    journals: dict[str, JournalHead]
    cursor: str | None
    time_ms: int


class SignedCheckpoint(Struct, frozen=True):
    """The text of a checkpoint, its signature, and the public key by which it can be verified."""

    text: str
    signature: str
    key: str

    @property
    def checkpoint(self) -> Checkpoint:
        """What the text says. Raises UsageError (`checkpoint.malformed`)."""
        try:
            return msgspec.json.decode(self.text.encode(), type=Checkpoint)
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise UsageError(f"the checkpoint is malformed: {error}", code="checkpoint.malformed") from error

    @property
    def digest(self) -> str:
        """The hash that the next checkpoint names."""
        return blake2b(self.text.encode(errors="replace"), digest_size=16).hexdigest()

    def row(self) -> AuditRow:
        """The row of the audit that contains it."""
        found = self.checkpoint
        return AuditRow(
            "",
            CHECKPOINT,
            "applied",
            f"checkpoint {found.number}",
            found.time_ms,
            actor=CHECKPOINT_ACTOR,
            actor_kind="system",
            data=msgspec.to_builtins(self),
        )

    @classmethod
    def of_row(cls, row: AuditRow) -> SignedCheckpoint:
        """Return the checkpoint in a row. Raises UsageError (`checkpoint.malformed`)."""
        try:
            return msgspec.convert(row.data, cls)
        except msgspec.MsgspecError as error:
            raise UsageError(f"the checkpoint is malformed: {error}", code="checkpoint.malformed") from error


class SigningKey:
    """A private Ed25519 key."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        self.public = VerifyingKey(private.public_key())

    @classmethod
    def create(cls, path: Path) -> SigningKey:
        """Create a key in a new file that only its owner can read. Raises UsageError if the file exists."""
        crypto = _cryptography()
        private = crypto.ed25519.Ed25519PrivateKey.generate()
        text = private.private_bytes(
            crypto.serialization.Encoding.PEM,
            crypto.serialization.PrivateFormat.PKCS8,
            crypto.serialization.NoEncryption(),
        )
        try:
            path.touch(mode=0o600, exist_ok=False)
        except FileExistsError as error:
            hint = "name a new file: a key that was used is still needed to verify"
            raise UsageError(f"{path} exists", code="checkpoint.key", hint=hint) from error
        path.write_bytes(text)
        return cls(private)

    @classmethod
    def read(cls, path: Path) -> SigningKey:
        """Read a key from a PEM file. Raises UsageError if it contains none."""
        crypto = _cryptography()
        try:
            found = crypto.serialization.load_pem_private_key(path.read_bytes(), password=None)
        except (ValueError, TypeError, crypto.UnsupportedAlgorithm) as error:
            raise _bad_key(path) from error
        if not isinstance(found, crypto.ed25519.Ed25519PrivateKey):
            raise _bad_key(path)
        return cls(found)

    def sign(self, checkpoint: Checkpoint) -> SignedCheckpoint:
        """Return a checkpoint with its signature."""
        text = encode(checkpoint)
        signature = b64encode(self._private.sign(text)).decode()
        return SignedCheckpoint(text.decode(), signature, self.public.text)


class VerifyingKey:
    """A public Ed25519 key; `text` is its 32 bytes as hex digits."""

    def __init__(self, public: Ed25519PublicKey) -> None:
        self._public = public
        self.text: str = public.public_bytes_raw().hex()

    @classmethod
    def of(cls, text: str) -> VerifyingKey:
        """Return the key of 64 hex digits. Raises UsageError for other text."""
        crypto = _cryptography()
        try:
            return cls(crypto.ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(text)))
        except ValueError as error:
            hint = "expected 64 hex digits, as `interlock audit key` prints them"
            raise UsageError(f"invalid public key `{text[:80]}`", code="checkpoint.key", hint=hint) from error

    def is_signed(self, signed: SignedCheckpoint) -> bool:
        """Whether the holder of the private key has signed this checkpoint."""
        invalid = _cryptography().InvalidSignature
        try:
            self._public.verify(b64decode(signed.signature, validate=True), signed.text.encode())
        except (invalid, ValueError):
            return False
        return True


class _Cryptography:
    """The parts of the package `cryptography` that are used here."""

    def __init__(self) -> None:
        from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519

        self.InvalidSignature = InvalidSignature
        self.UnsupportedAlgorithm = UnsupportedAlgorithm
        self.serialization: Any = serialization
        self.ed25519: Any = ed25519


def _cryptography() -> _Cryptography:
    try:
        return _Cryptography()
    except ImportError as error:
        message = "signed checkpoints need the package cryptography"
        raise MissingExtraError(message, code="extra.audit", hint="pip install 'interlock[audit]'") from error


def _bad_key(path: Path) -> UsageError:
    hint = "expected a PEM file, as `interlock audit key` writes it"
    return UsageError(f"{path} contains no private Ed25519 key", code="checkpoint.key", hint=hint)


def decode_published(line: bytes) -> SignedCheckpoint:
    """Return the checkpoint of a published line. Raises UsageError (`checkpoint.malformed`)."""
    try:
        return msgspec.json.decode(line, type=SignedCheckpoint)
    except msgspec.MsgspecError as error:
        raise UsageError(f"the published checkpoint is malformed: {error}", code="checkpoint.malformed") from error
