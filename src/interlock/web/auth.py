"""Authentication: API keys, sessions, the one-time sign-in link, and rights.

Rule 1: only the SHA-256 of a key or of a session cookie is stored, and digests are compared in constant time.
Rule 2: rights say what a user may see and operate here. Which events they may send, the chart decides from the roles of
their principal.
Rule 3: a session ends eight hours after it started; one that was started with a key also after half an hour without a
request.
Rule 4: without a key file there is one link, printed where the server was started, that starts one session.
Rule 5: sessions are limited per user: a user who signs in too often ends their own oldest sessions.
"""

from __future__ import annotations

import hmac
import os
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from interlock.assemble.text_files import read_text_file
from interlock.errors import NotFoundError, UsageError
from interlock.model.limits import CLOCK_AHEAD_MS_MAX, LOGINS_MAX, LOGINS_PER_USER_MAX
from interlock.ports.clock import Clock

RIGHTS = ("read", "read:audit", "read:sensitive", "send", "operate", "bulk")
"""See entities; see refused events; see sensitive data; send and create; retry and drop work; bulk send."""

SESSION_MS_MAX = 8 * 3_600_000
SESSION_IDLE_MS_MAX = 30 * 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A user: the principal that charts get, and the rights here. `idles`: their sessions end when they are unused."""

    principal: Mapping[str, Any]
    rights: frozenset[str]
    expires_ms: int | None = None
    idles: bool = True

    @property
    def name(self) -> str:
        """The id of the principal."""
        return str(self.principal["id"])

    @property
    def sees_sensitive(self) -> bool:
        """Whether nothing is hidden from the user."""
        return "read:sensitive" in self.rights


@dataclass(slots=True, kw_only=True)
class Session:
    """A session: its user, the CSRF token that its requests must carry, when it started and when it was last used."""

    user: User
    csrf: str
    started_ms: int
    used_ms: int

    def has_ended(self, now_ms: int) -> bool:
        """Whether the session has ended."""
        if self.user.expires_ms is not None and now_ms >= self.user.expires_ms:
            return True
        if self.started_ms > now_ms + CLOCK_AHEAD_MS_MAX:  # the clock was wrong then, and the session would never end
            return True
        if now_ms - self.started_ms >= SESSION_MS_MAX:
            return True
        return self.user.idles and now_ms - self.used_ms >= SESSION_IDLE_MS_MAX


class Authentication:
    """The keys and sessions of one server."""

    def __init__(self, clock: Clock, *, keys: Mapping[str, User] | None = None, local: User | None = None) -> None:
        self._clock = clock
        self._keys = dict(keys or {})
        self._local = local
        self._link = clock.token() if local is not None else None
        self._sessions: dict[str, Session] = {}

    @property
    def link(self) -> str | None:
        """The token of the one-time sign-in link; None if it was used or there is none."""
        return self._link

    def by_key(self, key: str) -> User | None:
        """Return the user of a key; None if the key is unknown or expired."""
        wanted, found = key_digest(key), None
        for digest, user in self._keys.items():
            if hmac.compare_digest(digest, wanted):  # no early exit: the time taken discloses nothing
                found = user
        if found is not None and found.expires_ms is not None and self._clock.now_ms() >= found.expires_ms:
            return None
        return found

    def sign_in(self, secret: str) -> tuple[str, Session] | None:
        """Start a session for a key, or for the link's token, which works once.

        Returns the text of the cookie and the session; None if the secret is invalid.
        """
        user = self.by_key(secret)
        if user is None and self._link is not None and hmac.compare_digest(key_digest(self._link), key_digest(secret)):
            user, self._link = self._local, None
        if user is None:
            return None
        now_ms = self._clock.now_ms()
        for digest in [each for each, session in self._sessions.items() if session.has_ended(now_ms)]:
            del self._sessions[digest]
        self._make_room(user.name)
        cookie = self._clock.token()
        session = Session(user=user, csrf=self._clock.token(), started_ms=now_ms, used_ms=now_ms)
        self._sessions[key_digest(cookie)] = session
        return cookie, session

    def _make_room(self, name: str) -> None:
        """End the least recently used session of a user at their limit, or at the limit of the server of the user
        with the most sessions.
        """
        counts = Counter(each.user.name for each in self._sessions.values())
        if counts[name] < LOGINS_PER_USER_MAX:
            if len(self._sessions) < LOGINS_MAX:
                return
            name = counts.most_common(1)[0][0]
        own = [digest for digest, each in self._sessions.items() if each.user.name == name]
        del self._sessions[min(own, key=lambda each: self._sessions[each].used_ms)]

    def by_cookie(self, cookie: str) -> Session | None:
        """Return the session of a cookie; None if it has ended. It proves nothing without the CSRF token."""
        digest = key_digest(cookie)
        session = self._sessions.get(digest)
        if session is None:
            return None
        if session.has_ended(self._clock.now_ms()):
            del self._sessions[digest]
            return None
        return session

    def touch(self, session: Session) -> None:
        """Record that a session is used now."""
        session.used_ms = self._clock.now_ms()

    def sign_out(self, cookie: str) -> None:
        """End a session."""
        self._sessions.pop(key_digest(cookie), None)


def read_keys(path: Path) -> dict[str, User]:
    """Return the users of a key file, by the digests of their keys.

        [[key]]
        id = "ada"
        sha256 = "9f86d081..."
        roles = ["support"]
        rights = ["read", "send"]

    Raises UsageError if the file is invalid or other users can read it, NotFoundError if it does not exist.
    """
    try:
        if os.name == "posix" and path.stat().st_mode & 0o077:
            hint = f"chmod 600 {path}"
            raise UsageError(f"{path} can be read by other users of this machine", code="keys.mode", hint=hint)
        table = tomllib.loads(read_text_file(path))
    except FileNotFoundError:
        raise NotFoundError(f"file not found: {path}", code="file.not_found") from None
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}", code="keys.malformed") from None
    found: dict[str, User] = {}
    listed = table.get("key", [])
    for number, each in enumerate(listed if isinstance(listed, list) else [listed], start=1):
        digest, user = _user(path, number, each)
        if digest in found:
            raise UsageError(f"duplicate key {number} in {path}", code="keys.malformed")
        found[digest] = user
    if not found:
        raise UsageError(f"{path} contains no keys", code="keys.malformed", hint="add a [[key]] table")
    return found


def _user(path: Path, number: int, table: Any) -> tuple[str, User]:
    def invalid(what: str, hint: str | None = None) -> UsageError:
        return UsageError(f"key {number} of {path}: {what}", code="keys.malformed", hint=hint)

    if not isinstance(table, dict) or set(table) - {"id", "sha256", "roles", "rights", "kind", "expires"}:
        raise invalid("unknown field", "the fields are id, sha256, roles, rights, kind, expires")
    name, digest, kind = table.get("id"), str(table.get("sha256", "")).lower(), table.get("kind", "user")
    roles, rights = table.get("roles", []), table.get("rights", ["read"])
    if not isinstance(name, str) or not name:
        raise invalid("`id` is missing")
    if len(digest) != 64 or set(digest) - set("0123456789abcdef"):
        raise invalid("`sha256` must be 64 hex digits", "interlock serve --new-key ID creates a key")
    if kind not in ("user", "service"):
        raise invalid("`kind` must be user or service")
    if not _are_strings(roles) or not _are_strings(rights) or set(rights) - set(RIGHTS):
        raise invalid("`roles` or `rights` is invalid", f"the rights are {', '.join(RIGHTS)}")
    expires = table.get("expires")
    if expires is not None and (not isinstance(expires, datetime) or expires.tzinfo is None):
        raise invalid("`expires` must be a time with a time zone", "such as 2027-01-01T00:00:00Z")
    expires_ms = None if expires is None else int(expires.timestamp() * 1000)
    principal = {"id": name, "kind": kind, "roles": list(roles)}
    return digest, User(principal=principal, rights=frozenset(rights), expires_ms=expires_ms)


def _are_strings(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(each, str) for each in values)


def key_digest(secret: str) -> str:
    """Return the digest of a key, as a key file stores it."""
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
