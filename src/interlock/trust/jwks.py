"""The public keys of an issuer (JWKS): read from its address, and kept.

Rule 1: keys are read in a thread, at most every `REFETCH_MS`, whatever callers ask for. A token with an unknown key id
causes a read only then; everyone who needs the keys waits for the same read, and no longer than `WAIT_SECONDS`.
Rule 2: keys are fresh for `FRESH_MS`. Older ones still count while they are read again, and for `STALE_MS` if the
issuer does not answer; then tokens cannot be checked, which is an UnavailableError and never a sign-in.
Rule 3: a set has at most `JWKS_BYTES_MAX` bytes and `JWKS_KEYS_MAX` keys. A set that breaks a rule counts as no answer.
Rule 4: a key is used only for algorithms of that key's type, and symmetric keys are never used. Otherwise a public key
could serve as the secret of an HMAC.
Rule 5: no redirects, no proxies, no credentials.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from ssl import SSLContext, create_default_context
from typing import Any
from urllib.parse import urlsplit

from interlock.errors import MissingExtraError, UnavailableError
from interlock.model.limits import JWKS_BYTES_MAX, JWKS_KEYS_MAX
from interlock.ports.clock import Clock
from interlock.ports.threads import in_thread

FRESH_MS = 600_000
STALE_MS = 86_400_000
REFETCH_MS = 30_000
WAIT_SECONDS = 10.0
CONNECT_SECONDS = 3.0
RSA_BITS_MIN = 2048

_log = logging.getLogger("interlock.web")

ALGORITHMS_OF = {
    ("RSA", None): frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}),
    ("EC", "P-256"): frozenset({"ES256"}),
    ("EC", "P-384"): frozenset({"ES384"}),
    ("EC", "P-521"): frozenset({"ES512"}),
    ("OKP", "Ed25519"): frozenset({"EdDSA"}),
}
"""The algorithms of a key, by its type and curve."""


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A public key, and the algorithms for which it may be used."""

    key: Any
    algorithms: frozenset[str]


@dataclass(frozen=True, slots=True)
class KeySet:
    """The keys of an issuer by key id; keys without an id are under None."""

    by_id: Mapping[str | None, tuple[PublicKey, ...]]

    def find(self, key_id: str | None, algorithm: str) -> PublicKey | None:
        """Return the key for a token. Without a key id, there must be exactly one for the algorithm."""
        every = (each for keys in self.by_id.values() for each in keys)
        listed = every if key_id is None else self.by_id.get(key_id, ())
        found = [each for each in listed if algorithm in each.algorithms]
        return found[0] if len(found) == 1 else None


class Jwks:
    """The keys at one address."""

    def __init__(self, url: str, clock: Clock, *, context: SSLContext | None = None) -> None:
        self._url = url
        self._clock = clock
        self._context = context
        self._keys: KeySet | None = None
        self._read_ms = self._tried_ms = 0
        self._has_tried = False
        self._reading: asyncio.Future[None] | None = None

    @property
    def current(self) -> KeySet | None:
        """The keys as last read. A set of other content is another object."""
        return self._keys

    async def find(self, key_id: str | None, algorithm: str) -> PublicKey | None:
        """Return the key for a token; None if the issuer does not have it. Raises UnavailableError without keys."""
        if self._keys is None or not 0 <= self._clock.now_ms() - self._read_ms < STALE_MS:
            await self._wait()
        self.keep_fresh()  # in the background
        found = self._usable().find(key_id, algorithm)
        if found is None:
            await self._wait()
            found = self._usable().find(key_id, algorithm)
        return found

    def keep_fresh(self) -> None:
        """Start to read the keys again if they are no longer fresh."""
        if self._keys is not None and not 0 <= self._clock.now_ms() - self._read_ms < FRESH_MS:
            self._start()

    def _usable(self) -> KeySet:
        if self._keys is None or not 0 <= self._clock.now_ms() - self._read_ms < STALE_MS:
            hint = "try again later; the server's log says why the issuer's keys cannot be read"
            raise UnavailableError("tokens cannot be checked now", code="token.keys", hint=hint)
        return self._keys

    def _start(self) -> None:
        """Start a read, unless one runs or ended a moment ago."""
        now_ms = self._clock.now_ms()
        if self._reading is None and not (self._has_tried and 0 <= now_ms - self._tried_ms < REFETCH_MS):
            self._has_tried, self._tried_ms = True, now_ms
            self._reading = asyncio.ensure_future(self._read())

    async def _wait(self) -> None:
        self._start()
        if self._reading is not None:
            await asyncio.wait({self._reading}, timeout=WAIT_SECONDS)

    async def _read(self) -> None:
        fetch = _Fetch(self._url, self._context)
        late = asyncio.get_running_loop().call_later(WAIT_SECONDS, fetch.cut)
        try:
            found = parse_key_set(await in_thread(fetch.read))
            if self._keys is None or found != self._keys:
                self._keys = found
            self._read_ms = self._clock.now_ms()
        except (OSError, HTTPException, ValueError, RecursionError, UnavailableError) as error:
            facts = {"error": str(error)[:200] if isinstance(error, _BadSet) else type(error).__name__}
            _log.warning("the keys of an issuer cannot be read", extra={"jwks": self._url, **facts})
        finally:
            late.cancel()
            self._reading = None


class _BadSet(ValueError):
    """The answer of an issuer is not a key set that we use."""


class _Fetch:
    """One request, which another thread may cut off."""

    def __init__(self, url: str, context: SSLContext | None) -> None:
        self._parts = urlsplit(url)
        self._is_cut = False
        self._socket: socket.socket | None = None
        host, port = str(self._parts.hostname), self._parts.port
        self._connection: HTTPConnection
        if self._parts.scheme == "https":
            given = create_default_context() if context is None else context
            self._connection = HTTPSConnection(host, port, timeout=CONNECT_SECONDS, context=given)
        else:
            self._connection = HTTPConnection(host, port, timeout=CONNECT_SECONDS)

    def cut(self) -> None:
        """End the request."""
        self._is_cut = True
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def read(self) -> bytes:
        """Return the body. It blocks. Raises OSError, HTTPException or ValueError."""
        path = (self._parts.path or "/") + (f"?{self._parts.query}" if self._parts.query else "")
        try:
            self._connection.connect()
            self._socket = self._connection.sock  # the connection forgets it when the issuer will close it
            self._connection.request("GET", path, headers={"Accept": "application/json", "User-Agent": "interlock"})
            with self._connection.getresponse() as response:
                if response.status != 200:
                    raise _BadSet(f"status {response.status}")
                body = response.read(JWKS_BYTES_MAX + 1)
            if self._is_cut:
                raise _BadSet(f"the answer took more than {WAIT_SECONDS:g} seconds")
            if len(body) > JWKS_BYTES_MAX:
                raise _BadSet(f"more than {JWKS_BYTES_MAX:,} bytes")
            return body
        finally:
            self._connection.close()


def parse_key_set(body: bytes) -> KeySet:
    """Return the keys that we use of a JWKS document. Raises ValueError if it is not one, or has too many keys."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise _BadSet("not JSON") from None
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise _BadSet("no list `keys`")
    if len(listed) > JWKS_KEYS_MAX:
        raise _BadSet(f"more than {JWKS_KEYS_MAX} keys")
    found: dict[str | None, tuple[PublicKey, ...]] = {}
    for each in listed:
        key = _public_key(each) if isinstance(each, dict) else None
        if key is not None:
            key_id = each.get("kid")
            key_id = key_id if isinstance(key_id, str) else None
            found[key_id] = (*found.get(key_id, ()), key)
    return KeySet(found)


def _public_key(jwk: Mapping[str, Any]) -> PublicKey | None:
    """Return a key; None for one that is not for signatures, or of a type that we do not use."""
    if jwk.get("use", "sig") != "sig":
        return None
    kind, curve = jwk.get("kty"), jwk.get("crv")
    algorithms = ALGORITHMS_OF.get((str(kind), None if kind == "RSA" else str(curve)))
    if algorithms is None:
        return None
    if "alg" in jwk:
        algorithms &= {str(jwk["alg"])}
    read = _reader(str(kind))
    try:
        key = read({name: value for name, value in jwk.items() if name in ("kty", "crv", "n", "e", "x", "y")})
    except Exception:  # noqa: BLE001 - whatever the library says of a broken key: it is not used
        return None
    if kind == "RSA" and key.key_size < RSA_BITS_MIN:
        return None
    return PublicKey(key, algorithms) if algorithms else None


def _reader(kind: str) -> Callable[[dict[str, Any]], Any]:
    library = jwt_library()
    readers: dict[str, Callable[[dict[str, Any]], Any]] = {
        "RSA": library.algorithms.RSAAlgorithm.from_jwk,
        "EC": library.algorithms.ECAlgorithm.from_jwk,
        "OKP": library.algorithms.OKPAlgorithm.from_jwk,
    }
    return readers[kind]


def jwt_library() -> Any:
    """Return the library for tokens. Raises MissingExtraError if it is not installed."""
    try:
        import cryptography  # noqa: F401 - without it, the library knows symmetric keys only
        import jwt
    except ImportError as error:
        message = "tokens of issuers need the extra `jwt`"
        raise MissingExtraError(message, code="extra.jwt", hint="pip install 'interlock[jwt]'") from error
    return jwt
