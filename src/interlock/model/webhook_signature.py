"""Signatures of Standard Webhooks, which both sides share: what a bus sends and what the inbox receives.

The signed bytes are `<id>.<timestamp>.<body>`, the raw body. A header lists signatures, separated by spaces: `v1` is
HMAC-SHA256 with a shared secret (`whsec_...`), `v1a` is Ed25519 with a private key (`whsk_...`) of the sender, verified
by its public key (`whpk_...`).

Rule 1: an id must match `ID_FORM` and a timestamp `TIMESTAMP_FORM`, before any signature is computed. With a full stop
in the id, or a blank in the timestamp, bytes could move between the three parts under the same signature.
Rule 2: every key that is valid at the time signs, and every one verifies, so a key can be replaced without a gap.
Rule 3: signatures are compared in constant time; which of them matched is not disclosed.
Rule 4: no error shows a key.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable
from datetime import datetime
from hashlib import sha256
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import replace

from interlock.errors import MissingExtraError, UsageError
from interlock.model.limits import SIGNATURES_MAX

ID_FORM = re.compile(r"[A-Za-z0-9_%~-]{1,256}")
TIMESTAMP_FORM = re.compile(r"[0-9]{1,12}")

SECRET_BYTES_MIN, SECRET_BYTES_MAX = 24, 64
"""The length of a shared secret, by Standard Webhooks."""

SEED_BYTES = 32
"""The length of an Ed25519 key. A private key may be followed by its public one."""

HMAC, ED25519 = "v1", "v1a"


class SigningKey(Struct, frozen=True):
    """A key, and the times between which it counts. `key` is the secret, or an object of the Ed25519 library.

    `signs`: it can sign; a public key only verifies, and a private key does both.
    """

    scheme: str
    key: Any
    signs: bool = True
    not_before_ms: int | None = None
    not_after_ms: int | None = None

    def counts(self, now_ms: int) -> bool:
        """Whether the key is valid now."""
        if self.not_before_ms is not None and now_ms < self.not_before_ms:
            return False
        return self.not_after_ms is None or now_ms < self.not_after_ms

    def __repr__(self) -> str:
        return f"SigningKey({self.scheme})"


class SecretTable(Struct, frozen=True, forbid_unknown_fields=True):
    """A key with a name, and the times between which it counts, as a file has it."""

    id: Annotated[str, Meta(min_length=1, max_length=200)]
    secret: str
    not_before: Annotated[datetime, Meta(tz=True)] | None = None
    not_after: Annotated[datetime, Meta(tz=True)] | None = None

    def __repr__(self) -> str:
        return f"SecretTable({self.id!r})"


def signing_keys(secrets: Iterable[SecretTable], place: str) -> tuple[SigningKey, ...]:
    """Return the keys of a list of secrets. Raises UsageError, which names `place` and never shows a key."""
    listed = tuple(secrets)
    if len({each.id for each in listed}) < len(listed):
        raise UsageError(f"two secrets in {place} have the same id", code="bus.secret")
    return tuple(
        replace(parse_key(each.secret, place), not_before_ms=_ms(each.not_before), not_after_ms=_ms(each.not_after))
        for each in listed
    )


def _ms(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp() * 1000)


def parse_key(text: str, place: str) -> SigningKey:
    """Return the key in a text: `whsec_`, `whsk_` or `whpk_` and base64; without a prefix it is a shared secret.

    Raises UsageError, which names `place` and never the key, and MissingExtraError for Ed25519 without its library.
    """
    prefix, _, rest = text.rpartition("_") if text.startswith(("whsec_", "whsk_", "whpk_")) else ("whsec", "", text)
    try:
        data = b64decode(rest, validate=True)
    except ValueError:
        data = b""
    if prefix == "whsec":
        if not SECRET_BYTES_MIN <= len(data) <= SECRET_BYTES_MAX:
            message = f"a secret in {place} must be {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes in base64"
            raise UsageError(message, code="bus.secret", hint="create one with `openssl rand -base64 32`")
        return SigningKey(HMAC, data)
    library = _ed25519()
    if prefix == "whpk" and len(data) == SEED_BYTES:
        return SigningKey(ED25519, library.Ed25519PublicKey.from_public_bytes(data), signs=False)
    if prefix == "whsk" and len(data) in (SEED_BYTES, 2 * SEED_BYTES):
        private = library.Ed25519PrivateKey.from_private_bytes(data[:SEED_BYTES])
        if data[SEED_BYTES:] in (b"", private.public_key().public_bytes_raw()):
            return SigningKey(ED25519, private)
    message = f"an Ed25519 key in {place} must be {SEED_BYTES} bytes in base64"
    raise UsageError(message, code="bus.secret", hint="whsk_ is a private key, whpk_ a public one")


def sign(keys: Iterable[SigningKey], message_id: str, seconds: int, body: bytes) -> str:
    """Return the header `webhook-signature`: one signature of each key that is valid at that time."""
    signed = _signed(message_id, str(seconds), body)
    valid = (each for each in keys if each.signs and each.counts(seconds * 1000))
    return " ".join(f"{each.scheme},{b64encode(_signature(each, signed)).decode()}" for each in valid)


def is_signed(
    keys: Iterable[SigningKey], message_id: str, timestamp: str, body: bytes, header: str, *, now_ms: int
) -> bool:
    """Whether a header has a signature by one of the keys that are valid now.

    All signatures and all keys are compared. Raises AssertionError for an id or timestamp that breaks Rule 1.
    """
    assert ID_FORM.fullmatch(message_id)
    assert TIMESTAMP_FORM.fullmatch(timestamp)
    listed = _listed(header)
    signed, found = _signed(message_id, timestamp, body), False
    for key in keys:
        if not key.counts(now_ms):
            continue
        given = [each for scheme, each in listed if scheme == key.scheme]
        if key.scheme == HMAC:
            wanted = _signature(key, signed)
            for each in given:
                found |= hmac.compare_digest(wanted, each)
        else:
            for each in given:
                found |= _verifies(key, each, signed)
    return found


def _listed(header: str) -> list[tuple[str, bytes]]:
    """The signatures of a header; what is not one is left out."""
    found = []
    for each in header.split(" ")[:SIGNATURES_MAX]:
        scheme, comma, text = each.partition(",")
        try:
            data = b64decode(text, validate=True)
        except ValueError:
            continue
        if comma and scheme in (HMAC, ED25519):
            found.append((scheme, data))
    return found


def _signed(message_id: str, timestamp: str, body: bytes) -> bytes:
    return f"{message_id}.{timestamp}.".encode() + body


def _signature(key: SigningKey, signed: bytes) -> bytes:
    if key.scheme == HMAC:
        return hmac.new(key.key, signed, sha256).digest()
    found: bytes = key.key.sign(signed)
    return found


def _verifies(key: SigningKey, signature: bytes, signed: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature

    public = key.key.public_key() if key.signs else key.key
    try:
        public.verify(signature, signed)
    except InvalidSignature:
        return False
    return True


def _ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        message = "Ed25519 keys need the extra `jwt`"
        raise MissingExtraError(message, code="extra.jwt", hint="pip install 'interlock[jwt]'") from error
    return ed25519
