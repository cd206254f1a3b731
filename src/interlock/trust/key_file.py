"""The key file: API keys, issuers of tokens, senders of envelopes, and rates. It names everyone who may call a server.

    [[key]]
    id = "ada"
    key = "k3m7qz2a"
    sha256 = "9f86d081..."
    roles = ["support", {name = "auditor", until = 2027-01-01T00:00:00Z}]
    rights = ["read", "send"]

Rule 1: other users of the machine must not be able to read it. It contains digests of keys, but may contain secrets of
senders.
Rule 2: an unknown table or field is an error, so that a misspelt `expires` does not make a key that never ends.
Rule 3: a running server reads a changed file within `KEY_FILE_AGE_MS`. While the new content is invalid, the last valid
one counts, and the log says so: a half-saved file must not lock everyone out.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from interlock.errors import InterlockError, UsageError
from interlock.model.limits import ISSUERS_MAX, KEY_FILE_BYTES_MAX, KEYS_MAX, SENDERS_MAX
from interlock.ports.trust.private_file import read_private_text, without_values
from interlock.trust.api_keys import ApiKey
from interlock.trust.envelopes import Sender, SenderTable
from interlock.trust.issuers import IssuerTable, check_issuer
from interlock.trust.rate_limits import Rate, RequestClass
from interlock.trust.users import Moment, Roles, User, role_names, timed_roles, to_ms

Name = Annotated[str, Meta(min_length=1, max_length=200)]
Right = Literal["read", "read:audit", "read:sensitive", "send", "operate", "bulk"]


class KeyTable(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A `[[key]]`: a key of a user. Several keys may have one `id`."""

    id: Name
    sha256: Annotated[str, Meta(pattern="^[0-9a-fA-F]{64}$")]
    key: Annotated[str, Meta(pattern="^[a-z2-7]{8}$")] | None = None
    kind: Literal["user", "service"] = "user"
    roles: Roles = ()
    rights: tuple[Right, ...] = ("read",)
    kinds: tuple[Name, ...] | None = None
    created: Moment | None = None
    expires: Moment | None = None


class RateTable(Struct, frozen=True, forbid_unknown_fields=True):
    """A `[rates.<class>]`."""

    per_second: float
    burst: int


class Content(Struct, frozen=True, forbid_unknown_fields=True):
    """The tables of a key file."""

    sender: Annotated[tuple[SenderTable, ...], Meta(max_length=SENDERS_MAX)] = ()
    issuer: Annotated[tuple[IssuerTable, ...], Meta(max_length=ISSUERS_MAX)] = ()
    key: Annotated[tuple[KeyTable, ...], Meta(max_length=KEYS_MAX)] = ()
    rates: dict[Literal["send", "read", "operate", "anonymous"], RateTable] = {}


@dataclass(frozen=True, slots=True)
class KeyFile:
    """The valid content of a key file."""

    keys: tuple[ApiKey, ...]
    issuers: tuple[IssuerTable, ...]
    senders: Mapping[str, Sender]
    rates: Mapping[RequestClass, Rate]


def read_key_file(path: Path) -> KeyFile:
    """Return the content of a key file.

    Raises UsageError if the file is invalid or other users can read it, NotFoundError if it does not exist. No error
    contains a value that may be secret.
    """
    return parse_key_file(read_private_text(path, bytes_max=KEY_FILE_BYTES_MAX), path)


def parse_key_file(text: str, path: Path) -> KeyFile:
    """Return the content of a key file from its text. Raises UsageError if it is invalid."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _malformed(path, f"invalid TOML: {error}", None) from None
    try:
        content = msgspec.convert(tables, Content)
    except msgspec.ValidationError as error:
        raise _malformed(path, without_values(str(error)), _hint(tables)) from None
    keys = tuple(_api_key(each) for each in content.key)
    named: dict[str, list[str | None]] = {
        "sha256": [each.digest for each in keys],
        "key": [each.key_id for each in keys],
    }
    for what, found in named.items():
        first: dict[str, int] = {}
        for number, each in enumerate(found, start=1):
            if each is not None and first.setdefault(each, number) != number:
                message = f"the keys {first[each]} and {number} have the same `{what}`"
                raise _malformed(path, message, "remove one of them")
    try:
        rates = {RequestClass(name): Rate(each.per_second, each.burst) for name, each in content.rates.items()}
    except InterlockError as error:
        raise _malformed(path, error.message, error.hint) from None
    try:
        for issuer in content.issuer:
            check_issuer(issuer)
        if len({each.issuer for each in content.issuer}) < len(content.issuer):
            raise UsageError("two tables name the same issuer", code="issuer.invalid")
        senders = {each.id: Sender(each) for each in content.sender}
        if len(senders) < len(content.sender):
            raise UsageError("two tables name the same sender", code="envelope.sender")
    except UsageError as error:
        raise _malformed(path, error.message, error.hint) from None
    return KeyFile(keys, content.issuer, senders, rates)


def _hint(tables: Mapping[str, Any]) -> str:
    listed = tables.get("key")
    if isinstance(listed, list) and any(isinstance(each, dict) and "sha256" not in each for each in listed):
        return "`interlock keys create` creates a key"
    fields = ", ".join(KeyTable.__struct_fields__)
    return f"the fields of a [[key]] are {fields}; times have a time zone, such as 2027-01-01T00:00:00Z"


def _malformed(path: Path, what: str, hint: str | None) -> UsageError:
    return UsageError(f"{path}: {what}", code="keys.malformed", hint=hint)


def _api_key(table: KeyTable) -> ApiKey:
    principal = {"id": table.id, "kind": table.kind, "roles": role_names(table.roles)}
    user = User(
        principal=principal,
        rights=frozenset(table.rights),
        kinds=None if table.kinds is None else frozenset(table.kinds),
        timed_roles=timed_roles(table.roles),
        expires_ms=None if table.expires is None else to_ms(table.expires),
    )
    return ApiKey(user=user, digest=table.sha256.lower(), key_id=table.key)
