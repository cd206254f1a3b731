"""The address of a PostgreSQL store: its options and what they mean.

Rule 1: no error shows more of an address than hosts, database and option: passwords never appear.
Rule 2: an unknown option is refused here; the driver would send it to the server as a setting.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from interlock.errors import UsageError
from interlock.stores.sql.store import UNSTORABLE

Commit = Literal["auto", "one", "group"]

CONNECTIONS = 16
"""Connections of one process: 16 were faster than 4, 32 and 64 with the server on the same two cores."""

CONNECTIONS_MAX = 1_000
"""More than any server accepts from one process."""

OURS = ("application_name", "commit", "connections", "migrate", "schema", "tenant", "unsafe")
THEIRS = (
    "gsslib", "host", "krbsrvname", "passfile", "port", "service", "ssl_max_protocol_version",
    "ssl_min_protocol_version", "sslcert", "sslcrl", "sslkey", "sslmode", "sslnegotiation", "sslpassword",
    "sslrootcert", "target_session_attrs", "user",
)  # fmt: skip
"""Options of the driver."""

_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,47}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresAddress:
    """Where the server is, and how its store is used. `dsn` contains the password: it is never shown."""

    dsn: str
    place: str
    tenant: str = ""
    schema: str = "interlock"
    commit: Commit = "auto"
    connections: int = CONNECTIONS
    unsafe: bool = False
    migrates: bool = True
    application_name: str = "interlock"

    @property
    def shown(self) -> str:
        """The address without user and password, for commands in hints."""
        return f"postgresql://{self.place}" + (f"?schema={self.schema}" if self.schema != "interlock" else "")

    @property
    def may_use_tls(self) -> bool:
        """Whether the driver makes a TLS context: not for a Unix socket, nor if the address forbids it."""
        return not self.place.startswith("/") and "sslmode=disable" not in self.dsn

    def __repr__(self) -> str:
        return f"Address({self.place!r}, tenant={self.tenant!r}, schema={self.schema!r})"


def parse_address(url: str) -> PostgresAddress:
    """Parse an address. Raises UsageError when it is invalid."""
    try:
        parts = urlsplit(url)
        given = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
        hosts = parts.netloc.rpartition("@")[2]
        if "," not in hosts:  # of several hosts the driver takes the first that accepts writes
            hosts = f"{parts.hostname or given.get('host', 'localhost')}:{parts.port or given.get('port', 5432)}"
        else:
            given.setdefault("target_session_attrs", "read-write")
    except ValueError:
        raise _malformed("invalid PostgreSQL address") from None
    if parts.scheme not in {"postgres", "postgresql"} or parts.fragment:
        raise _malformed("invalid PostgreSQL address")
    unknown = sorted(set(given) - {*OURS, *THEIRS})
    if unknown:
        hint = f"the options are {', '.join(OURS)}, and those of libpq"
        raise UsageError(f"unknown option `{unknown[0]}` in the address", code="url.option", hint=hint)
    theirs = urlencode({name: value for name, value in given.items() if name in THEIRS})
    return PostgresAddress(
        dsn=urlunsplit(parts._replace(query=theirs)),
        place=f"{hosts}/{unquote(parts.path.removeprefix('/'))}",
        tenant=_text("tenant", given.get("tenant", "")),
        application_name=_text("application_name", given.get("application_name", "interlock")),
        schema=check_schema_name(given.get("schema", "interlock")),
        commit=_commit(given.get("commit", "auto")),
        connections=_connections(given.get("connections", str(CONNECTIONS))),
        unsafe=_flag("unsafe", given.get("unsafe", "0")),
        migrates=_flag("migrate", given.get("migrate", "1")),
    )


def _text(option: str, text: str) -> str:
    if UNSTORABLE.search(text):
        raise UsageError(f"`{option}` contains NUL or a lone surrogate", code="url.option")
    return text


def check_schema_name(text: str) -> str:
    """Return the name of a schema. Raises UsageError for one that needs quotes."""
    if _SCHEMA.fullmatch(text) is None or text.startswith("pg_"):
        hint = "lower-case letters, digits and `_`, at most 48, not starting with `pg_`"
        raise UsageError(f"invalid schema name `{text[:80]}`", code="url.option", hint=hint)
    return text


def _commit(text: str) -> Commit:
    for each in get_args(Commit):
        if text == each:
            return each  # type: ignore[no-any-return]  # one of the literals
    raise UsageError(f"invalid option `commit={text[:80]}`", code="url.option", hint=f"one of {get_args(Commit)}")


def _connections(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text[:9]) <= CONNECTIONS_MAX):
        raise UsageError(f"invalid option `connections={text[:80]}`", code="url.option", hint="a number such as 16")
    return int(text)


def _flag(option: str, text: str) -> bool:
    if text not in {"0", "1"}:
        raise UsageError(f"invalid option `{option}={text[:80]}`", code="url.option", hint="0 or 1")
    return text == "1"


def _malformed(message: str) -> UsageError:
    return UsageError(message, code="url.malformed", hint="postgresql://user@host:5432/database")
