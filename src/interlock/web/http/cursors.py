"""Cursors as clients get them: the store's cursor, authenticated and encrypted.

Rule 1: a cursor is bound to its list and filter, so a client cannot use it to read another range.
Rule 2: it is encrypted, because it names the last row that was read, and the client may not be allowed to see that row.
Rule 3: cursors are valid until the server stops.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256

from interlock.errors import UsageError

MAC_BYTES = 16
"""Bytes of a cursor's authentication code, which is also the initialization vector of its encryption."""


class CursorCipher:
    """Encrypts and decrypts the cursors of one server."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def encrypt(self, cursor: str | None, scope: str) -> str | None:
        """Return the client's form of a store's cursor; None stays None. `scope` identifies the list and its filter."""
        if cursor is None:
            return None
        mac = self._mac(cursor, scope)
        return urlsafe_b64encode(mac + self._xor(cursor.encode(), mac)).decode().rstrip("=")

    def decrypt(self, text: str | None, scope: str) -> str | None:
        """Return the store's cursor. Raises UsageError if this server did not make it, or made it for another scope."""
        if text is None:
            return None
        try:
            raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
            mac = raw[:MAC_BYTES]
            cursor = self._xor(raw[MAC_BYTES:], mac).decode()
        except ValueError:
            raise _invalid_cursor() from None
        if not hmac.compare_digest(mac, self._mac(cursor, scope)):
            raise _invalid_cursor()
        return cursor

    def _mac(self, cursor: str, scope: str) -> bytes:
        text = f"{scope}\0{cursor}".encode("utf-8", "surrogatepass")
        return hmac.digest(self._secret, b"mac\0" + text, sha256)[:MAC_BYTES]

    def _xor(self, data: bytes, mac: bytes) -> bytes:
        """Encrypt or decrypt with a key stream that is derived from the secret and the authentication code.

        The code depends on the text (SIV, RFC 5297), so two different texts never share a stream.
        """
        blocks = range(0, len(data), 32)
        stream = b"".join(hmac.digest(self._secret, b"stream\0%b%d" % (mac, at), sha256) for at in blocks)
        return bytes(one ^ other for one, other in zip(data, stream, strict=False))


def _invalid_cursor() -> UsageError:
    hint = "start again without a cursor; cursors are valid until the server stops"
    return UsageError("the cursor does not belong to this list", code="cursor.foreign", hint=hint)
