"""Who asks: API keys, logins, and what each may do.

Rule 1: a key is kept as the SHA-256 of its text, and compared in constant time. A login is kept the same way.
Rule 2: rights say what a person may see and operate here; which events they may send is decided by the chart, from the
roles of their principal.
Rule 3: a login ends eight hours after it began, and one by key also after half an hour without a request.
Rule 4: without a key file there is one link, printed where the server was started, that gives one login.
Rule 5: logins are counted by person: whoever logs in too often ends logins of their own.
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

from interlock.errors import NotFoundError, UsageError
from interlock.model.limits import CLOCK_AHEAD_MS_MAX, LOGINS_MAX, LOGINS_PERSON_MAX
from interlock.ports.clock import Clock

RIGHTS = ("read", "read:audit", "read:sensitive", "send", "operate", "bulk")
"""See entities; see who was refused; see what charts call sensitive; send and create; revive and drop work; many at
once."""

LIFE_MS = 8 * 3_600_000
IDLE_MS = 30 * 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """Whoever asks: the principal given to charts, and their rights."""

    principal: Mapping[str, Any]
    rights: frozenset[str]
    expires_ms: int | None = None
    idles: bool = True

    @property
    def name(self) -> str:
        """The id of the principal."""
        return str(self.principal["id"])


@dataclass(slots=True, kw_only=True)
class Login:
    """A person's cookie: the token that its requests must carry, and when it began and was last used."""

    person: User
    csrf: str
    began_ms: int
    used_ms: int

    def is_over(self, now_ms: int) -> bool:
        """Whether it has ended."""
        if self.person.expires_ms is not None and now_ms >= self.person.expires_ms:
            return True
        if self.began_ms > now_ms + CLOCK_AHEAD_MS_MAX:  # it began under a clock that was ahead, and would never end
            return True
        return now_ms - self.began_ms >= LIFE_MS or (self.person.idles and now_ms - self.used_ms >= IDLE_MS)


class Authentication:
    """Keys and logins of one server."""

    def __init__(self, clock: Clock, *, keys: Mapping[str, User] | None = None, local: User | None = None) -> None:
        self._clock = clock
        self._keys = dict(keys or {})
        self._local = local
        self._link = clock.token() if local is not None else None
        self._logins: dict[str, Login] = {}

    @property
    def link(self) -> str | None:
        """The token of the link that gives the one login; None when it was used, or there is none."""
        return self._link

    def by_key(self, key: str) -> User | None:
        """Whose key this is; None when it is nobody's, or expired."""
        wanted, found = _digest(key), None
        for digest, person in self._keys.items():
            if hmac.compare_digest(digest, wanted):  # all are compared: how long it takes says nothing
                found = person
        if found is not None and found.expires_ms is not None and self._clock.now_ms() >= found.expires_ms:
            return None
        return found

    def log_in(self, secret: str) -> tuple[str, Login] | None:
        """A new login for a key, or for the link's token, which is spent by it; the text of its cookie, too."""
        person = self.by_key(secret)
        if person is None and self._link is not None and hmac.compare_digest(_digest(self._link), _digest(secret)):
            person, self._link = self._local, None
        if person is None:
            return None
        now_ms = self._clock.now_ms()
        for digest in [each for each, login in self._logins.items() if login.is_over(now_ms)]:
            del self._logins[digest]
        self._make_room(person.name)
        cookie = self._clock.token()
        login = Login(person=person, csrf=self._clock.token(), began_ms=now_ms, used_ms=now_ms)
        self._logins[_digest(cookie)] = login
        return cookie, login

    def _make_room(self, name: str) -> None:
        """End the login of a person that was used longest ago when they have too many. When there are too many in
        all, it is one of the person with the most.
        """
        counts = Counter(each.person.name for each in self._logins.values())
        if counts[name] < LOGINS_PERSON_MAX:
            if len(self._logins) < LOGINS_MAX:
                return
            name = counts.most_common(1)[0][0]
        theirs = [digest for digest, each in self._logins.items() if each.person.name == name]
        del self._logins[min(theirs, key=lambda each: self._logins[each].used_ms)]

    def by_cookie(self, cookie: str) -> Login | None:
        """The login of a cookie; None when there is none any more. It proves nothing without the login's token."""
        login = self._logins.get(_digest(cookie))
        if login is None:
            return None
        if login.is_over(self._clock.now_ms()):
            del self._logins[_digest(cookie)]
            return None
        return login

    def use(self, login: Login) -> None:
        """Note that a login is used now."""
        login.used_ms = self._clock.now_ms()

    def log_out(self, cookie: str) -> None:
        """End a login."""
        self._logins.pop(_digest(cookie), None)


def read_keys(path: Path) -> dict[str, User]:
    """The people of a key file, by the digests of their keys.

        [[key]]
        id = "ada"
        sha256 = "9f86d081..."
        roles = ["support"]
        rights = ["read", "send"]

    Raises UsageError when it is wrong, or readable by others; NotFoundError when it is not there.
    """
    try:
        if os.name == "posix" and path.stat().st_mode & 0o077:
            hint = f"chmod 600 {path}"
            raise UsageError(f"{path} is open to other users of this machine", code="keys.mode", hint=hint)
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NotFoundError(f"no file {path}", code="file.not_found") from None
    except (OSError, UnicodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}", code="keys.malformed") from None
    found: dict[str, User] = {}
    listed = table.get("key", [])
    for number, each in enumerate(listed if isinstance(listed, list) else [listed], start=1):
        digest, person = _person(path, number, each)
        if digest in found:
            raise UsageError(f"key {number} of {path} stands there twice", code="keys.malformed")
        found[digest] = person
    if not found:
        raise UsageError(f"{path} names no key", code="keys.malformed", hint="write [[key]] tables")
    return found


def _person(path: Path, number: int, table: Any) -> tuple[str, User]:
    def wrong(what: str, hint: str | None = None) -> UsageError:
        return UsageError(f"key {number} of {path}: {what}", code="keys.malformed", hint=hint)

    if not isinstance(table, dict) or set(table) - {"id", "sha256", "roles", "rights", "kind", "expires"}:
        raise wrong("has unknown fields", "the fields are id, sha256, roles, rights, kind, expires")
    name, digest, kind = table.get("id"), str(table.get("sha256", "")).lower(), table.get("kind", "user")
    roles, rights = table.get("roles", []), table.get("rights", ["read"])
    if not isinstance(name, str) or not name:
        raise wrong("has no id")
    if len(digest) != 64 or set(digest) - set("0123456789abcdef"):
        raise wrong("has no sha256 of 64 hex digits", "interlock serve --new-key ID makes one")
    if kind not in ("user", "service"):
        raise wrong("is neither of a user nor of a service")
    if not _are_texts(roles) or not _are_texts(rights) or set(rights) - set(RIGHTS):
        raise wrong("has a wrong role or right", f"the rights are {', '.join(RIGHTS)}")
    expires = table.get("expires")
    if expires is not None and (not isinstance(expires, datetime) or expires.tzinfo is None):
        raise wrong("expires at no time with a zone", "write 2027-01-01T00:00:00Z")
    expires_ms = None if expires is None else int(expires.timestamp() * 1000)
    principal = {"id": name, "kind": kind, "roles": list(roles)}
    return digest, User(principal=principal, rights=frozenset(rights), expires_ms=expires_ms)


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(each, str) for each in values)


def _digest(secret: str) -> str:
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def key_digest(key: str) -> str:
    """What a key file keeps of a key."""
    return _digest(key)
