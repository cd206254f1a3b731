"""`interlock keys`: create, list, rotate and revoke the API keys of a key file."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from interlock.buses.signing_keys import parse_signing_keys
from interlock.cli import exit_codes
from interlock.cli.options import common, duration_ms, example, json_option, pass_terminal
from interlock.cli.output.terminal import Terminal
from interlock.cli.output.values import count_text, json_text, time_text
from interlock.errors import NotFoundError, UsageError
from interlock.model.duration import parse_duration
from interlock.ports.clock import SystemClock, random_bytes
from interlock.trust.api_keys import ApiKey, key_digest, new_key
from interlock.trust.key_file import read_key_file
from interlock.trust.key_file_edits import KeyFileText, edit_key_file
from interlock.trust.used_keys import read_used
from interlock.trust.users import RIGHTS, to_ms

key_file_option = click.option(
    "--key-file",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("keys.toml"),
    metavar="FILE",
    help="The key file (default keys.toml).",
)


@example("interlock keys create ada --role support --right read --right send", "interlock keys list")
@click.group
@common
def keys() -> None:
    """A key is how a user signs in to the console and the HTTP API. `interlock serve --key-file` uses a changed file
    within a second.
    """


@example(
    "interlock keys create ada --role support --right read --right send",
    "interlock keys create till --service --role payments --right send --kind order --expires 90d",
    "interlock keys create bob --role auditor@2027-01-31T00:00Z --key-file /etc/interlock/keys.toml",
)
@keys.command
@click.argument("name", metavar="ID")
@key_file_option
@click.option(
    "--role",
    "roles",
    multiple=True,
    metavar="ROLE[@TIME]",
    help="A role for charts, which may end at a time. May be repeated.",
)
@click.option(
    "--right",
    "rights",
    multiple=True,
    type=click.Choice(RIGHTS),
    help="A right in the console and the API (default read). May be repeated.",
)
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Limit the key to this kind. May be repeated.")
@click.option("--expires", metavar="TIME", help="When the key expires: 90d, or 2027-01-31T12:00Z (default: never).")
@click.option("--service", is_flag=True, help="The key is for a program, not for a person.")
@common
@pass_terminal
def create(
    terminal: Terminal,
    *,
    name: str,
    key_file: Path,
    roles: tuple[str, ...],
    rights: tuple[str, ...],
    kinds: tuple[str, ...],
    expires: str | None,
    service: bool,
) -> int:
    """Prints the key once: the file contains only its digest. The file is created if it does not exist.

    One ID may have several keys; rate limits and the audit count per ID.
    """
    if not name.strip():
        raise UsageError("the ID is empty", code="principal.malformed", hint="write `interlock keys create ada`")
    now_ms = SystemClock().now_ms()
    table = {
        "id": name,
        **_secret_fields(now_ms),
        "kind": "service" if service else None,
        "roles": [_role(each, now_ms) for each in roles],
        "rights": list(rights or ("read",)),
        "kinds": list(kinds) or None,
        "expires": None if expires is None else _moment(expires, now_ms, "--expires"),
    }
    key = table.pop("secret")
    edit_key_file(key_file, lambda text: text.add("key", table), create=True)
    terminal.data(f"{key}\n")
    terminal.message(f"the key of {name}, shown once; {key_file} has its digest")
    return exit_codes.OK


@example("interlock keys list", "interlock keys list --key-file /etc/interlock/keys.toml --json")
@keys.command("list")
@key_file_option
@json_option
@common
@pass_terminal
def list_keys(terminal: Terminal, *, key_file: Path, as_json: bool) -> int:
    """Prints the name, user, end, last use, roles, rights and kinds of each key.

    The last use is known to the minute, and only if the server can write to the folder of the key file.
    """
    found, used, now_ms = read_key_file(key_file).keys, read_used(key_file), SystemClock().now_ms()
    if as_json:
        terminal.data(json_text({"keys": [_row(each, used, now_ms) for each in found]}))
        return exit_codes.OK
    for each in found:
        row = _row(each, used, now_ms)
        ends = "never ends" if row["expires"] is None else f"{'ended' if row['ended'] else 'ends'} {row['expires']}"
        used_at = "not used" if row["used"] is None else f"used {row['used']}"
        scope = "" if row["kinds"] is None else f"  kinds {','.join(row['kinds'])}"
        roles, rights = ",".join(row["roles"]) or "-", ",".join(row["rights"]) or "-"
        style = "dim" if row["ended"] else ""
        terminal.report((f"{row['key']}  {row['id']}  {ends}  {used_at}  roles {roles}  rights {rights}{scope}", style))
    if not found:
        terminal.message("no keys; `interlock keys create` creates one")
    return exit_codes.OK


@example(
    "interlock keys rotate k3m7qz2a",
    "interlock keys rotate ada --overlap 0s",
    "interlock keys rotate --signing webhooks.toml --overlap 7d",
)
@keys.command
@click.argument("key", metavar="[KEY]", required=False)
@click.option(
    "--signing",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Add a secret for outgoing webhooks to this file, in place of KEY.",
)
@key_file_option
@click.option(
    "--overlap", default="24h", metavar="DURATION", help="How long the old key continues to work (default 24h)."
)
@click.option(
    "--expires", metavar="TIME", help="When the new key expires (default: valid for as long as the old one was)."
)
@common
@pass_terminal
def rotate(
    terminal: Terminal, *, key: str | None, signing: Path | None, key_file: Path, overlap: str, expires: str | None
) -> int:
    """Prints a new key with the roles, rights and kinds of KEY. The old key works until the overlap ends.

    KEY is the name of a key in `interlock keys list`, or an ID that has one key. With --signing it prints a new secret
    for receivers of webhooks; until the overlap ends, messages are signed with the new and the old secrets.
    """
    now_ms, overlap_ms = SystemClock().now_ms(), duration_ms(overlap, "--overlap")
    if (key is None) == (signing is None):
        raise UsageError("name either a KEY or --signing FILE", code="keys.unknown", hint="see `interlock keys list`")
    if signing is not None:
        return _rotate_signing(terminal, signing, now_ms, overlap_ms, overlap)
    assert key is not None
    secret = _secret_fields(now_ms)
    text = secret.pop("secret")

    def change(file: KeyFileText) -> None:
        tables = file.tables("key")
        index = _find(tables, key, now_ms)
        old = tables[index]
        end = _moment(expires, now_ms, "--expires") if expires is not None else _same_life(old, now_ms)
        kept = {name: value for name, value in old.items() if name not in ("key", "sha256", "created", "expires")}
        file.add("key", {**kept, **secret, "expires": end})
        if overlap_ms == 0:
            file.remove("key", index)
            return
        last = _utc(now_ms + overlap_ms)
        if "expires" not in old or old["expires"] > last:
            file.set("key", index, "expires", last)

    edit_key_file(key_file, change)
    terminal.data(f"{text}\n")
    rest = "was removed" if overlap_ms == 0 else f"still works for {overlap}"
    terminal.message(f"the new key, shown once; the old one {rest}")
    return exit_codes.OK


def _rotate_signing(terminal: Terminal, path: Path, now_ms: int, overlap_ms: int, overlap: str) -> int:
    """Add a secret to a file of signing keys; those in it end after the overlap."""
    secret = f"whsec_{b64encode(random_bytes(32)).decode()}"

    def change(file: KeyFileText) -> None:
        last = _utc(now_ms + overlap_ms)
        tables = file.tables("secret")
        for index in reversed(range(len(tables))):
            if overlap_ms == 0 or tables[index].get("not_after", last) <= _utc(now_ms):
                file.remove("secret", index)
            elif tables[index].get("not_after", last) >= last:
                file.set("secret", index, "not_after", last)
        name = time_text(now_ms)
        file.add("secret", {"id": name, "secret": secret})

    edit_key_file(path, change, create=True, check=parse_signing_keys)
    terminal.data(f"{secret}\n")
    rest = "were removed" if overlap_ms == 0 else f"also sign for {overlap}"
    terminal.message(f"the new secret, for the receivers; older ones {rest}")
    return exit_codes.OK


@example("interlock keys revoke k3m7qz2a", "interlock keys revoke ada --all")
@keys.command
@click.argument("key", metavar="KEY")
@key_file_option
@click.option("--all", "every", is_flag=True, help="KEY is an ID: revoke all its keys.")
@common
@pass_terminal
def revoke(terminal: Terminal, *, key: str, key_file: Path, every: bool) -> int:
    """Sessions and live streams of the key end within seconds.

    KEY is the name of a key in `interlock keys list`, or an ID that has one key.
    """
    now_ms, removed = SystemClock().now_ms(), 0

    def change(file: KeyFileText) -> None:
        nonlocal removed
        tables = file.tables("key")
        own = [index for index, each in enumerate(tables) if each.get("id") == key]
        if every and not own:
            raise _unknown_key(key)
        found = own if every else [_find(tables, key, now_ms)]
        for index in reversed(found):
            file.remove("key", index)
        removed = len(found)

    edit_key_file(key_file, change)
    terminal.message(f"revoked {count_text(removed, 'key', 'keys')}")
    return exit_codes.OK


def _secret_fields(now_ms: int) -> dict[str, Any]:
    """Return the fields of a new key, and its text as `secret`."""
    key_id, text = new_key()
    return {"key": key_id, "sha256": key_digest(text), "created": _utc(now_ms), "secret": text}


def _find(tables: list[dict[str, Any]], key: str, now_ms: int) -> int:
    """Return the index of a key by its name, or by an id with one key that has not ended."""
    names = [each.get("key", f"sha256:{each['sha256'][:8].lower()}") for each in tables]
    named = [index for index, each in enumerate(names) if each == key]
    own = [index for index, each in enumerate(tables) if each.get("id") == key]
    own = [index for index in own if not _has_ended(tables[index], now_ms)] or own
    found = named or own
    if not found:
        raise _unknown_key(key)
    if len(found) > 1:
        message = f"`{key}` has {len(found)} keys"
        raise UsageError(message, code="keys.ambiguous", hint="name one of those that `interlock keys list` shows")
    return found[0]


def _has_ended(table: dict[str, Any], now_ms: int) -> bool:
    return "expires" in table and table["expires"] <= _utc(now_ms)


def _unknown_key(key: str) -> NotFoundError:
    if key.startswith(("il_", "ilk_")):
        key = "(a secret)"  # a mistake that must not end in a log
    hint = "`interlock keys list` lists the keys"
    return NotFoundError(f"unknown key or ID `{key}`", code="keys.unknown", hint=hint)


def _same_life(table: dict[str, Any], now_ms: int) -> datetime | None:
    """When a key ends that lives as long as this one; None if it has no end, or if its length is not known."""
    if "expires" not in table:
        return None
    if "created" not in table:
        hint = "write --expires 90d"
        raise UsageError("the old key expires, but its creation time is unknown", code="keys.life", hint=hint)
    life: timedelta = table["expires"] - table["created"]
    return _utc(now_ms) + life


def _role(text: str, now_ms: int) -> str | dict[str, Any]:
    name, at, until = text.partition("@")
    return {"name": name, "until": _moment(until, now_ms, "--role")} if at else name


def _moment(text: str, now_ms: int, option: str) -> datetime:
    """Return a time in the future: a duration from now, or a calendar time."""
    from interlock.runtime.history.replay import time_ms  # not imported for `--help`

    after_ms = parse_duration(text)
    try:
        found_ms = now_ms + after_ms if after_ms is not None else time_ms(text)
        found = _utc(found_ms)
    except (UsageError, OverflowError, ValueError, OSError):
        hint = "write 90d, or 2027-01-31T12:00Z"
        raise UsageError(f"{option}: invalid time `{text[:40]}`", code="time.malformed", hint=hint) from None
    if found_ms <= now_ms:
        raise UsageError(f"{option}: {text} is in the past", code="time.malformed", hint="write a later time")
    return found


def _utc(ms: int) -> datetime:
    return datetime.fromtimestamp(ms // 1000, UTC)


def _row(key: ApiKey, used: dict[str, int], now_ms: int) -> dict[str, Any]:
    user, used_ms = key.user, used.get(key.name)
    ends = {each["name"]: to_ms(each["until"]) for each in user.timed_roles if isinstance(each, dict)}
    return {
        "key": key.name,
        "id": user.name,
        "kind": user.principal["kind"],
        "roles": [each if each not in ends else f"{each}@{time_text(ends[each])}" for each in user.principal["roles"]],
        "rights": _in_order(user.rights),
        "kinds": None if user.kinds is None else sorted(user.kinds),
        "expires": None if user.expires_ms is None else time_text(user.expires_ms),
        "ended": user.at(now_ms) is None,
        "used": None if used_ms is None else time_text(used_ms),
    }


def _in_order(rights: Iterable[str]) -> list[str]:
    return [each for each in RIGHTS if each in rights]
