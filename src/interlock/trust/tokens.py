"""Bearer tokens (JWT) of issuers: checked, and remembered while they are valid.

Rule 1: the issuer's table decides about algorithms, audience and type; of the header only `alg`, `kid` and `typ` are
read, and `alg` must be one of the table. Headers that bring or name a key (`jwk`, `jku`, `x5u`) have no effect.
Rule 2: `exp` and `iat` are required, a token lives at most `LIFE_MS_MAX`, and clocks may differ by `LEEWAY_MS`.
Rule 3: a verified token is remembered by its SHA-256 until it ends, at most `TOKENS_CACHED_MAX` of them. When the keys
of its issuer change, it is verified again.
Rule 4: why a token was refused is logged, without a value of it. The caller learns nothing.
"""

from __future__ import annotations

import json
import logging
import re
from base64 import urlsafe_b64decode
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from math import isfinite
from ssl import SSLContext
from typing import Any

from interlock.model.limits import TOKEN_BYTES_MAX, TOKENS_CACHED_MAX
from interlock.ports.clock import Clock
from interlock.trust.issuers import ClaimError, IssuerTable, user_of
from interlock.trust.jwks import Jwks, KeySet, jwt_library
from interlock.trust.users import User

LIFE_MS_MAX = 86_400_000
LEEWAY_MS = 30_000

_FORM = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_log = logging.getLogger("interlock.web")


@dataclass(frozen=True, slots=True)
class VerifiedToken:
    """A verified token: its user, and the issuer and keys by which it was verified."""

    user: User
    issuer: IssuerTable
    keys: KeySet | None
    key_id: str | None
    algorithm: str


class RefusedError(Exception):
    """A token is invalid. `code` says why, for the log."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


def is_token(text: str) -> bool:
    """Whether a bearer credential has the form of a token."""
    return len(text) <= TOKEN_BYTES_MAX and _FORM.fullmatch(text) is not None


class TokenVerifier:
    """The issuers of one server, and the tokens that they have signed."""

    def __init__(self, clock: Clock, *, context: SSLContext | None = None) -> None:
        self._clock = clock
        self._context = context
        self._issuers: dict[str, IssuerTable] = {}
        self._jwks: dict[str, Jwks] = {}
        self._verified: OrderedDict[bytes, VerifiedToken] = OrderedDict()

    def use(self, issuers: Iterable[IssuerTable]) -> None:
        """Replace the issuers. Keys of an address that is still used are kept."""
        self._issuers = {each.issuer: each for each in issuers}
        if self._issuers:
            jwt_library()  # now, not at the first token
        addresses = {each.jwks for each in self._issuers.values()}
        kept = {url: self._jwks[url] for url in addresses if url in self._jwks}
        self._jwks = {url: kept.get(url) or Jwks(url, self._clock, context=self._context) for url in addresses}

    async def verify(self, token: str) -> VerifiedToken | None:
        """Return a token if it is valid, else None. Raises UnavailableError while the issuer's keys are unknown."""
        if not self._issuers or not is_token(token):
            return None
        digest = sha256(token.encode()).digest()
        known = self._verified.get(digest)
        if known is not None and self._is_current(known):
            self._jwks[known.issuer.jwks].keep_fresh()
            self._verified.move_to_end(digest)
            return known
        self._verified.pop(digest, None)
        try:
            found = await self._verify(token)
        except RefusedError as error:
            _log.info("a token was refused", extra={"code": error.code})
            return None
        self._verified[digest] = found
        if len(self._verified) > TOKENS_CACHED_MAX:
            self._verified.popitem(last=False)
        return found

    def is_valid(self, token: VerifiedToken) -> bool:
        """Whether a session that a token started continues: its issuer and its key are still in use."""
        if self._issuers.get(token.issuer.issuer) != token.issuer or not self._has_time(token):
            return False
        keys = self._jwks[token.issuer.jwks].current
        return keys is token.keys or (keys is not None and keys.find(token.key_id, token.algorithm) is not None)

    def _is_current(self, token: VerifiedToken) -> bool:
        own = self._issuers.get(token.issuer.issuer)
        return own == token.issuer and self._jwks[own.jwks].current is token.keys and self._has_time(token)

    def _has_time(self, token: VerifiedToken) -> bool:
        return token.user.at(self._clock.now_ms()) is not None

    async def _verify(self, token: str) -> VerifiedToken:
        header, payload = (_json_part(each) for each in token.split(".")[:2])
        name = payload.get("iss")
        table = self._issuers.get(name) if isinstance(name, str) else None
        if table is None:
            raise RefusedError("token.issuer")
        algorithm, key_id = header.get("alg"), header.get("kid")
        if algorithm not in table.algorithms:
            raise RefusedError("token.algorithm")
        if "crit" in header or "b64" in header or not isinstance(key_id, str | None):
            raise RefusedError("token.header")
        typ = str(header.get("typ", "")).lower().removeprefix("application/")
        if typ not in {each.lower() for each in table.typ}:
            raise RefusedError("token.type")
        jwks = self._jwks[table.jwks]
        key = await jwks.find(key_id, algorithm)
        if key is None:
            raise RefusedError("token.key")
        claims = _decode(token, key.key, algorithm, table)
        expires_ms = self._check_times(claims)
        try:
            user = user_of(table, claims, expires_ms=expires_ms)
        except ClaimError as error:
            _log.info("a token does not describe a user", extra={"issuer": table.issuer, "error": str(error)})
            raise RefusedError("token.claims") from None
        return VerifiedToken(user, table, jwks.current, key_id, algorithm)

    def _check_times(self, claims: Mapping[str, Any]) -> int:
        """Return when the token ends, with the leeway. The library would read the clock of the machine itself."""
        now_ms = self._clock.now_ms()
        expires_ms, issued_ms = _time_ms(claims, "exp"), _time_ms(claims, "iat")
        if now_ms >= expires_ms + LEEWAY_MS:
            raise RefusedError("token.expired")
        starts_ms = _time_ms(claims, "nbf") if "nbf" in claims else issued_ms
        if max(issued_ms, starts_ms) > now_ms + LEEWAY_MS:
            raise RefusedError("token.future")
        if not 0 < expires_ms - issued_ms <= LIFE_MS_MAX:
            raise RefusedError("token.life")
        return expires_ms + LEEWAY_MS


def _decode(token: str, key: Any, algorithm: str, table: IssuerTable) -> dict[str, Any]:
    """Return the claims, after the library has checked signature, issuer and audience."""
    library = jwt_library()
    checks = {"verify_exp": False, "verify_iat": False, "verify_nbf": False, "verify_sub": False, "verify_jti": False}
    try:
        claims: dict[str, Any] = library.decode(
            token,
            key,
            algorithms=[algorithm],
            audience=list(table.audiences),
            issuer=table.issuer,
            options={**checks, "require": ["exp", "iat", "iss", "aud"]},
        )
    except library.InvalidAudienceError:
        raise RefusedError("token.audience") from None
    except library.MissingRequiredClaimError:
        raise RefusedError("token.missing") from None
    except library.InvalidSignatureError:
        raise RefusedError("token.signature") from None
    except (library.PyJWTError, ValueError, TypeError):
        raise RefusedError("token.malformed") from None
    return claims


def _json_part(part: str) -> dict[str, Any]:
    try:
        found = json.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, RecursionError):
        raise RefusedError("token.malformed") from None
    if not isinstance(found, dict):
        raise RefusedError("token.malformed")
    return found


def _time_ms(claims: Mapping[str, Any], name: str) -> int:
    value = claims[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or not 0 <= value < 2**40:
        raise RefusedError("token.malformed")
    return int(value * 1000)
