"""Authentication: API keys, sessions, and the one-time sign-in link.

Rule 1: only the SHA-256 of a key or of a session cookie is stored, and digests are compared in constant time.
Rule 2: rights say what a user may see and operate here. Which events they may send, the chart decides from the roles of
their principal.
Rule 3: a session ends eight hours after it started; one that was started with a key also after half an hour without a
request, and when its key is removed or expires. A change of the key's roles or rights reaches its sessions.
Rule 4: without a key file there is one link, printed where the server was started, that starts one session.
Rule 5: sessions are limited per user: a user who signs in too often ends their own oldest sessions.
"""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from ssl import SSLContext

from interlock.model.limits import CLOCK_AHEAD_MS_MAX, LOGINS_MAX, LOGINS_PER_USER_MAX
from interlock.ports.clock import Clock
from interlock.trust.api_keys import ApiKey, ApiKeys, key_digest
from interlock.trust.envelopes import Sender
from interlock.trust.key_file import KeyFile
from interlock.trust.rate_limits import Rate, RequestClass
from interlock.trust.tokens import TokenVerifier, VerifiedToken
from interlock.trust.users import User
from interlock.web.key_file_watcher import KeyFileWatcher

SESSION_MS_MAX = 8 * 3_600_000
SESSION_IDLE_MS_MAX = 30 * 60_000


_NO_RATES: Mapping[RequestClass, Rate] = {}


@dataclass(slots=True, kw_only=True)
class Session:
    """A session: its user, the CSRF token that its requests must carry, when it started and when it was last used.

    `digest`: of the key that started it. `token`: the token that did. Both are None for the sign-in link.
    """

    user: User
    csrf: str
    started_ms: int
    used_ms: int
    digest: str | None = None
    token: VerifiedToken | None = None

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

    def __init__(
        self,
        clock: Clock,
        *,
        keys: Mapping[str, User] | None = None,
        local: User | None = None,
        key_file: KeyFileWatcher | None = None,
        context: SSLContext | None = None,
    ) -> None:
        self._clock = clock
        self._given = ApiKeys(ApiKey(user=user, digest=digest) for digest, user in (keys or {}).items())
        self._key_file = key_file
        self._local = local
        self._link = clock.token() if local is not None else None
        self._sessions: dict[str, Session] = {}
        self._tokens = TokenVerifier(clock, context=context)
        self._used: KeyFile | None = None
        if key_file is not None:
            self._use(key_file.content)

    def _use(self, content: KeyFile) -> None:
        self._tokens.use(content.issuers)
        self._used = content

    @property
    def senders(self) -> Mapping[str, Sender]:
        """The senders of envelopes, by name."""
        return {} if self._used is None else self._used.senders

    @property
    def rates(self) -> Mapping[RequestClass, Rate]:
        """The rates of the key file; another object after each change of the file."""
        return _NO_RATES if self._used is None else self._used.rates

    async def refresh(self) -> None:
        """Read the key file again if it has changed."""
        if self._key_file is not None:
            await self._key_file.refresh()
            if self._key_file.content is not self._used:
                self._use(self._key_file.content)

    async def close(self) -> None:
        """Write the times of the last use of keys."""
        if self._key_file is not None:
            await self._key_file.write_used()

    @property
    def _keys(self) -> ApiKeys:
        return self._given if self._key_file is None else self._key_file.keys

    @property
    def link(self) -> str | None:
        """The token of the one-time sign-in link; None if it was used or there is none."""
        return self._link

    def by_key(self, key: str) -> User | None:
        """Return the user of a key; None if the key is unknown or expired."""
        now_ms = self._clock.now_ms()
        found = self._keys.find(key, now_ms)
        return None if found is None else found.user.at(now_ms)

    async def by_bearer(self, secret: str) -> User | None:
        """Return the user of a key or a token; None if it is invalid. Raises UnavailableError as `TokenVerifier`."""
        user = self.by_key(secret)
        if user is not None:
            return user
        token = await self._tokens.verify(secret)
        return None if token is None else token.user

    async def sign_in(self, secret: str) -> tuple[str, Session] | None:
        """Start a session for a key, for a token of an issuer, or for the link's token, which works once.

        Returns the text of the cookie and the session; None if the secret is invalid.
        """
        token = await self._tokens.verify(secret)
        now_ms = self._clock.now_ms()
        key = self._keys.find(secret, now_ms)
        user = None if key is None else key.user.at(now_ms)
        if token is not None:
            user = token.user
        if user is None and self._link is not None and hmac.compare_digest(key_digest(self._link), key_digest(secret)):
            user, self._link = self._local, None
        if user is None:
            return None
        for digest in [each for each, session in self._sessions.items() if session.has_ended(now_ms)]:
            del self._sessions[digest]
        self._make_room(user.name)
        cookie = self._clock.token()
        session = Session(
            user=user,
            csrf=self._clock.token(),
            started_ms=now_ms,
            used_ms=now_ms,
            digest=None if key is None else key.digest,
            token=token,
        )
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
        digest, now_ms = key_digest(cookie), self._clock.now_ms()
        session = self._sessions.get(digest)
        if session is None:
            return None
        if session.digest is not None:
            key = self._keys.by_digest(session.digest)
            user = None if key is None else key.user.at(now_ms)
            if user is None:  # the key was removed or has expired
                del self._sessions[digest]
                return None
            session.user = user
        if session.has_ended(now_ms) or (session.token is not None and not self._tokens.is_valid(session.token)):
            del self._sessions[digest]
            return None
        return session

    def touch(self, session: Session) -> None:
        """Record that a session is used now."""
        session.used_ms = self._clock.now_ms()

    def sign_out(self, cookie: str) -> None:
        """End a session."""
        self._sessions.pop(key_digest(cookie), None)
