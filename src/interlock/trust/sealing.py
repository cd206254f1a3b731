"""Seal and open personal values: plain value to token and back, with the data key of an entity. Pure.

    {"$personal": "<base64url of: 0x01 | id of the data key, 8 bytes | SIV, 16 bytes | ciphertext>"}

The plain text is the JSON of the value, padded with blanks, which JSON ignores. The cipher is AES-SIV (RFC 5297) with a
key of 64 bytes; the associated data binds a token to the tenant and the key.

Rule 1: sealing is deterministic on purpose: one value of one entity has one token. So equality works in guards, a retry
writes the same bytes, and replay finds what it wrote. A reader of tokens learns that two values of one entity are
equal, and about how long they are; keys differ between entities, so nothing can be compared across them.
Rule 2: the name of the field is not bound to the token, because a chart moves values between fields. That tokens of one
entity were exchanged in the store is seen by the chain of its journal.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

import msgspec

from interlock.errors import CorruptionError, MissingExtraError
from interlock.model.encoding.codec import encode
from interlock.model.personal_token import ERASED, TOKEN_KEY

DATA_KEY_BYTES = 64
"""Bytes of a data key: AES-SIV uses one half to authenticate and the other to encrypt, each with AES-256."""

KID_BYTES = 8
"""Bytes of the id of a data key: random, and unique within a store."""

_VERSION = b"\x01"
_PURPOSE = b"il1"
_PAD_SMALL, _PAD_LARGE, _LARGE = 32, 256, 1024


def missing_cryptography() -> MissingExtraError:
    """Return the error for a process without the library of ciphers."""
    message = "personal data needs the package `cryptography`, which is not installed"
    return MissingExtraError(message, code="extra.personal", hint="pip install 'interlock[personal]'")


def check_ciphers() -> None:
    """Raise MissingExtraError unless the library of ciphers is installed."""
    DataCipher(b"\0" * DATA_KEY_BYTES, kid="00" * KID_BYTES, tenant="")


class DataCipher:
    """Seals and opens values with one data key. Raises MissingExtraError without the extra `personal`."""

    __slots__ = ("_associated", "_cipher", "kid")

    def __init__(self, key: bytes, *, kid: str, tenant: str) -> None:
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESSIV
        except ImportError as error:
            raise missing_cryptography() from error
        self.kid = kid
        self._cipher = AESSIV(key)
        self._associated = [_PURPOSE, tenant.encode(), bytes.fromhex(kid)]

    def seal(self, value: Any) -> dict[str, str]:
        """Return the token of a JSON value."""
        plain = encode(value)
        unit = _PAD_SMALL if len(plain) <= _LARGE else _PAD_LARGE
        padded = plain.ljust(-(-len(plain) // unit) * unit)
        sealed = _VERSION + self._associated[2] + self._cipher.encrypt(padded, self._associated)
        return {TOKEN_KEY: urlsafe_b64encode(sealed).rstrip(b"=").decode()}

    def open(self, token: dict[str, str]) -> Any:
        """Return the value of a token of this key. Raises CorruptionError (`personal.token`) when it was altered."""
        from cryptography.exceptions import InvalidTag

        raw = _token_bytes(token)
        try:
            return msgspec.json.decode(self._cipher.decrypt(raw[1 + KID_BYTES :], self._associated))
        except (InvalidTag, ValueError) as error:  # a text that is too short is a ValueError
            raise _damaged() from error


def kid_of(token: dict[str, str]) -> str | None:
    """Return the id of the data key of a token; None for the token of an erased value.

    Raises CorruptionError (`personal.token`) when the token is invalid.
    """
    if token == ERASED:
        return None
    return _token_bytes(token)[1 : 1 + KID_BYTES].hex()


def _token_bytes(token: dict[str, str]) -> bytes:
    text = token[TOKEN_KEY]
    try:
        raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError as error:
        raise _damaged() from error
    if raw[:1] != _VERSION or len(raw) <= 1 + KID_BYTES:
        raise _damaged()
    return raw


def _damaged() -> CorruptionError:
    hint = "the store was changed by something else, or it is not the store of this keyring"
    return CorruptionError("a sealed personal value is damaged", code="personal.token", hint=hint)


def replace_tokens(value: Any, opened: dict[str, Any]) -> Any:
    """Return a JSON value with its tokens replaced: by their values, found by the text of the token.

    A token that is not in `opened` stays. What has no token is not copied.
    """
    kind = type(value)
    if kind is dict:
        if len(value) == 1 and type(text := value.get(TOKEN_KEY)) is str:
            return opened.get(text, value)
        changed = {name: new for name, each in value.items() if (new := replace_tokens(each, opened)) is not each}
        return {**value, **changed} if changed else value
    if kind is list or kind is tuple:
        items = [replace_tokens(each, opened) for each in value]
        if all(new is old for new, old in zip(items, value, strict=True)):
            return value
        return items if kind is list else tuple(items)
    return value
