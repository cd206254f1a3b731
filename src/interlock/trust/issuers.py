"""Issuers of tokens, as a key file names them, and the user that the claims of a verified token make.

    [[issuer]]
    issuer = "https://login.example.org/"
    audience = "interlock"
    jwks = "https://login.example.org/jwks.json"
    algorithms = ["RS256"]
    roles_claim = "groups"
    role_names = {"interlock-support" = "support"}

Rule 1: only what a table names enters the principal: the id, the roles in `role_names`, and `claims`. A principal is
stored with every entry, and tokens carry e-mail addresses.
Rule 2: a token must say that it is an access token, by its `typ` or by a claim in `require`. An ID token proves who
signed in somewhere, not that they may call this server.
Rule 3: the algorithms are ours, never those of the token's header, and all are asymmetric.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from interlock.errors import UsageError
from interlock.model.limits import CLAIM_BYTES_MAX, ROLES_MAX
from interlock.trust.users import RIGHTS, User

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
Name = Annotated[str, Meta(min_length=1, max_length=200)]
Path = Name | Annotated[tuple[Name, ...], Meta(min_length=1, max_length=8)]
Scalar = str | int | bool

ACCESS_TOKEN = "at+jwt"  # noqa: S105 - a type of tokens (RFC 9068)

ID_BYTES_MAX = 200
"""Bytes of an id from a token, as of an id in the audit."""


class IssuerTable(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An `[[issuer]]`. A path of several names leads into nested claims."""

    issuer: Name
    audience: Name | Annotated[tuple[Name, ...], Meta(min_length=1, max_length=16)]
    jwks: Name
    algorithms: Annotated[tuple[Algorithm, ...], Meta(min_length=1)]
    typ: tuple[Name, ...] = (ACCESS_TOKEN,)
    require: dict[str, Scalar] = {}
    id_claim: Path = "sub"
    id_prefix: str = ""
    kind: Literal["user", "service"] = "user"
    roles_claim: Path | None = None
    role_names: dict[str, str] = {}
    roles: tuple[Name, ...] = ()
    rights: tuple[str, ...] = ("read",)
    rights_of_roles: dict[str, tuple[str, ...]] = {}
    kinds: tuple[Name, ...] | None = None
    claims: tuple[Name, ...] = ()

    @property
    def audiences(self) -> tuple[str, ...]:
        """The audiences of which a token must name one."""
        return (self.audience,) if isinstance(self.audience, str) else self.audience


def check_issuer(table: IssuerTable) -> None:
    """Raise UsageError for a table that would accept tokens of other issuers or users, or that has no effect."""
    parts = urlsplit(table.jwks)
    if parts.scheme != "https" and not (parts.scheme == "http" and _is_loopback(parts.hostname or "")):
        raise _invalid(table, "`jwks` must be an https address", "http is only for this machine")
    if not parts.hostname or parts.username is not None or parts.fragment:
        raise _invalid(table, "`jwks` must be an address without a login and without a fragment", None)
    if {each.lower() for each in table.typ} != {ACCESS_TOKEN} and not (table.typ and table.require):
        hint = 'add a claim that only access tokens have, such as require = {token_use = "access"}'
        raise _invalid(table, f"without `typ` or with another than {ACCESS_TOKEN}, ID tokens may be accepted", hint)
    unknown = {*table.rights, *(each for rights in table.rights_of_roles.values() for each in rights)} - set(RIGHTS)
    if unknown:
        raise _invalid(table, f"unknown right `{min(unknown)}`", f"the rights are {', '.join(RIGHTS)}")
    if (table.roles_claim is None) != (not table.role_names):
        hint = 'such as roles_claim = "groups" and role_names = {"interlock-support" = "support"}'
        raise _invalid(table, "`roles_claim` and `role_names` are used together", hint)
    stray = set(table.rights_of_roles) - {*table.roles, *table.role_names.values()}
    if stray:
        raise _invalid(table, f"`rights_of_roles` names the role `{min(stray)}`, which no token gets", None)
    if len({*table.roles, *table.role_names.values()}) > ROLES_MAX:
        raise _invalid(table, f"more than {ROLES_MAX} roles", None)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _invalid(table: IssuerTable, what: str, hint: str | None) -> UsageError:
    return UsageError(f"issuer `{table.issuer[:80]}`: {what}", code="issuer.invalid", hint=hint)


class ClaimError(Exception):
    """The claims of a verified token do not describe a user. The text is for the log and contains no values."""


def user_of(table: IssuerTable, claims: Mapping[str, Any], *, expires_ms: int) -> User:
    """Return the user of a verified token. Raises ClaimError."""
    for name, wanted in table.require.items():
        given = claims.get(name)
        if type(given) is not type(wanted) or given != wanted:
            raise ClaimError(f"the claim `{name}` has another value than `require` demands")
    own = claim(claims, table.id_claim)
    if not isinstance(own, str) or not own.strip() or not own.isprintable():
        raise ClaimError("`id_claim` is missing, empty or not a text")
    name = table.id_prefix + own
    if len(name.encode(errors="surrogatepass")) > ID_BYTES_MAX:
        raise ClaimError(f"the id has more than {ID_BYTES_MAX} bytes")
    roles = list(dict.fromkeys((*table.roles, *_mapped_roles(table, claims))))
    rights = {*table.rights, *(right for role in roles for right in table.rights_of_roles.get(role, ()))}
    principal: dict[str, Any] = {"id": name, "kind": table.kind, "roles": roles}
    if table.claims:
        principal["claims"] = {each: _value(each, claims[each]) for each in table.claims if each in claims}
    return User(
        principal=principal,
        rights=frozenset(rights),
        kinds=None if table.kinds is None else frozenset(table.kinds),
        expires_ms=expires_ms,
    )


def _mapped_roles(table: IssuerTable, claims: Mapping[str, Any]) -> list[str]:
    given = None if table.roles_claim is None else claim(claims, table.roles_claim)
    if isinstance(given, str):
        given = given.split()  # as in the claim `scope`
    if given is None:
        return []
    if not isinstance(given, list):
        raise ClaimError("`roles_claim` is neither a list nor a text")
    return [table.role_names[each] for each in given if isinstance(each, str) and each in table.role_names]


def claim(claims: Mapping[str, Any], path: Path) -> object:
    """Return a claim by its name, or by the names that lead to it; None if it is missing."""
    found: object = claims
    for name in (path,) if isinstance(path, str) else path:
        if not isinstance(found, Mapping):
            return None
        found = found.get(name)
    return found


def _value(name: str, value: object) -> object:
    """Return a claim for the principal: a text, number or truth value, or a list of those, of a limited size."""
    values = value if isinstance(value, list) else [value]
    if not all(each is None or isinstance(each, str | int | float | bool) for each in values):
        raise ClaimError(f"the claim `{name}` is neither a simple value nor a list of those")
    if sum(len(str(each).encode(errors="surrogatepass")) for each in values) > CLAIM_BYTES_MAX:
        raise ClaimError(f"the claim `{name}` has more than {CLAIM_BYTES_MAX:,} bytes")
    return value
