"""The address of a PostgreSQL store: what may stand in one, and what it means.

Rule 1: no error names more of an address than hosts, database and option: passwords never leave it.
Rule 2: an option that nobody knows is refused here; the driver would send it to the server as a setting.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from interlock.errors import UsageError

Commit = Literal["auto", "one", "group"]

CONNECTIONS = 16
"""Connections of one process: 16 were faster than 4, 32 and 64 with the server on the same two cores."""

CONNECTIONS_MAX = 1_000
"""More than any server takes of one process."""

OURS = ("application_name", "commit", "connections", "schema", "tenant", "unsafe")
THEIRS = (
    "gsslib", "host", "krbsrvname", "passfile", "port", "service", "ssl_max_protocol_version",
    "ssl_min_protocol_version", "sslcert", "sslcrl", "sslkey", "sslmode", "sslnegotiation", "sslpassword",
    "sslrootcert", "target_session_attrs", "user",
)  # fmt: skip
"""Options that the driver understands."""

UNKEPT = re.compile("[\0\ud800-\udfff]")
"""What no text of a database holds."""

_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,47}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresAddress:
    """Where the server is, and how its store is used. `dsn` holds the password: it is never shown."""

    dsn: str
    place: str
    tenant: str = ""
    schema: str = "interlock"
    commit: Commit = "auto"
    connections: int = CONNECTIONS
    unsafe: bool = False
    application_name: str = "interlock"

    def __repr__(self) -> str:
        return f"Address({self.place!r}, tenant={self.tenant!r}, schema={self.schema!r})"


def parse_address(url: str) -> PostgresAddress:
    """What an address says. Raises UsageError when it is none."""
    try:
        parts = urlsplit(url)
        given = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
        hosts = parts.netloc.rpartition("@")[2]
        if "," not in hosts:  # of several the driver takes the first that lets us write
            hosts = f"{parts.hostname or given.get('host', 'localhost')}:{parts.port or given.get('port', 5432)}"
        else:
            given.setdefault("target_session_attrs", "read-write")
    except ValueError:
        raise _malformed("this is no address of a server") from None
    if parts.scheme not in {"postgres", "postgresql"} or parts.fragment:
        raise _malformed("this is no address of a server")
    unknown = sorted(set(given) - {*OURS, *THEIRS})
    if unknown:
        hint = f"ours are {', '.join(OURS)}; others are libpq's"
        raise UsageError(f"`{unknown[0]}` is no option of an address", code="url.option", hint=hint)
    theirs = urlencode({name: value for name, value in given.items() if name in THEIRS})
    return PostgresAddress(
        dsn=urlunsplit(parts._replace(query=theirs)),
        place=f"{hosts}/{unquote(parts.path.removeprefix('/'))}",
        tenant=_text("tenant", given.get("tenant", "")),
        application_name=_text("application_name", given.get("application_name", "interlock")),
        schema=_schema(given.get("schema", "interlock")),
        commit=_commit(given.get("commit", "auto")),
        connections=_connections(given.get("connections", str(CONNECTIONS))),
        unsafe=_flag(given.get("unsafe", "0")),
    )


def _text(option: str, text: str) -> str:
    if UNKEPT.search(text):
        raise UsageError(f"`{option}` holds what no text holds", code="url.option")
    return text


def _schema(text: str) -> str:
    if _SCHEMA.fullmatch(text) is None or text.startswith("pg_"):
        hint = "small letters, digits and `_`, at most 48, not beginning with `pg_`"
        raise UsageError(f"`{text[:80]}` cannot name a schema", code="url.option", hint=hint)
    return text


def _commit(text: str) -> Commit:
    for each in get_args(Commit):
        if text == each:
            return each  # type: ignore[no-any-return]  # one of the literals
    raise UsageError(f"`commit={text[:80]}` is not known", code="url.option", hint=f"one of {get_args(Commit)}")


def _connections(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text[:9]) <= CONNECTIONS_MAX):
        raise UsageError(f"`connections={text[:80]}` is no number of connections", code="url.option", hint="such as 16")
    return int(text)


def _flag(text: str) -> bool:
    if text not in {"0", "1"}:
        raise UsageError(f"`unsafe={text[:80]}` is neither 0 nor 1", code="url.option")
    return text == "1"


def _malformed(message: str) -> UsageError:
    return UsageError(message, code="url.malformed", hint="postgresql://user@host:5432/database")
