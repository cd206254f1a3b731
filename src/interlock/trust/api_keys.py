"""API keys: `il_<8 characters>_<43 characters>`, the id of the key and 32 random bytes.

Rule 1: only the SHA-256 of a key is stored. The secret has 256 bits, so a slow hash would only help a flood.
Rule 2: a key is found by its id, which is not secret; then the digests are compared in constant time. Keys without an
id (of the first releases, `ilk_...`) are all compared, so that the time taken discloses nothing.
Rule 3: the time of the last use is kept to the minute, in memory; the server writes it to a file next to the key file.
"""

from __future__ import annotations

import hmac
import re
from base64 import b32encode, urlsafe_b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256

from interlock.ports.clock import random_bytes
from interlock.trust.users import User

KEY_FORM = re.compile(r"il_([a-z2-7]{8})_[A-Za-z0-9_-]{43}")
KEY_ID_FORM = re.compile(r"[a-z2-7]{8}")

USE_MS = 60_000
"""How exactly the last use of a key is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key of a user: the digest of its text, and its id. A key of the first releases has no id."""

    user: User
    digest: str
    key_id: str | None = None

    @property
    def name(self) -> str:
        """What identifies the key in a list: its id, or the start of its digest."""
        return self.key_id or f"sha256:{self.digest[:8]}"


def key_digest(secret: str) -> str:
    """Return the digest of a key, as a key file stores it."""
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def new_key() -> tuple[str, str]:
    """Return the id and the text of a new key."""
    key_id = b32encode(random_bytes(5)).decode().lower()
    secret = urlsafe_b64encode(random_bytes(32)).decode().rstrip("=")
    return key_id, f"il_{key_id}_{secret}"


class ApiKeys:
    """A set of keys, and when each was last used."""

    def __init__(self, keys: Iterable[ApiKey]) -> None:
        listed = tuple(keys)
        self._by_id = {each.key_id: each for each in listed if each.key_id is not None}
        self._without_id = tuple(each for each in listed if each.key_id is None)
        self._digests = {each.digest: each for each in listed}
        self.used_ms: dict[str, int] = {}

    def find(self, secret: str, now_ms: int) -> ApiKey | None:
        """Return the key with this text, and record its use; None if it is unknown or has expired."""
        form, digest = KEY_FORM.fullmatch(secret), key_digest(secret)
        found: ApiKey | None = None
        if form is not None:
            known = self._by_id.get(form[1])
            found = known if known is not None and hmac.compare_digest(known.digest, digest) else None
        if found is None:
            for each in self._without_id:
                if hmac.compare_digest(each.digest, digest):  # no early exit
                    found = each
        if found is None or found.user.at(now_ms) is None:
            return None
        if now_ms - self.used_ms.get(found.name, -USE_MS) >= USE_MS or now_ms < self.used_ms[found.name]:
            self.used_ms[found.name] = now_ms
        return found

    def by_digest(self, digest: str) -> ApiKey | None:
        """Return the key with this digest: the server itself remembers it, for the sessions that a key started."""
        return self._digests.get(digest)
