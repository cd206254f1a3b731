"""`interlock keys`: the life of a key, and wrong calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from interlock.buses.signing_keys import read_signing_keys
from interlock.model.webhook_signature import parse_key
from interlock.ports.clock import SystemClock
from interlock.trust.api_keys import KEY_FORM, ApiKeys, key_digest
from interlock.trust.key_file import read_key_file
from tests.support.cli import Caller

DAY_MS = 86_400_000


def listed(call: Caller) -> list[dict[str, Any]]:
    """The rows of `interlock keys list --json`."""
    found: list[dict[str, Any]] = json.loads(call("keys", "list", "--json").out)["keys"]
    return found


def opens(folder: Path, key: str, *, later_ms: int = 0) -> bool:
    """Whether a key works."""
    keys = ApiKeys(read_key_file(folder / "keys.toml").keys)
    return keys.find(key, SystemClock().now_ms() + later_ms) is not None


def test_a_created_key_is_printed_once_and_has_what_was_asked_for(folder: Path, call: Caller) -> None:
    made = call(
        *("keys", "create", "till", "--service", "--role", "payments", "--role", "boss@2999-01-31T00:00Z"),
        *("--right", "send", "--kind", "lamp", "--expires", "90d"),
    )
    key, file = made.out.strip(), folder / "keys.toml"
    (row,) = listed(call)

    assert KEY_FORM.fullmatch(key)
    assert opens(folder, key)
    assert not opens(folder, key, later_ms=90 * DAY_MS)
    assert key.split("_", 2)[2] not in file.read_text(encoding="utf-8") + made.err
    assert 0o600 == file.stat().st_mode & 0o777
    assert (["payments", "boss@2999-01-31T00:00:00.000Z"], ["send"], ["lamp"], "service", None, False) == tuple(
        row[each] for each in ("roles", "rights", "kinds", "kind", "used", "ended")
    )
    assert f"{row['key']}  till  ends {row['expires']}  not used" in call("keys", "list").out


def test_a_rotated_key_works_until_the_end_of_the_overlap(folder: Path, call: Caller) -> None:
    old = call("keys", "create", "ada", "--role", "support", "--right", "send", "--expires", "90d").out.strip()
    new = call("keys", "rotate", "ada", "--overlap", "1h").out.strip()
    first, second = listed(call)

    assert old != new
    assert [True, True] == [opens(folder, each) for each in (old, new)]
    assert [False, True] == [opens(folder, each, later_ms=3_600_000) for each in (old, new)]
    assert [first[each] for each in ("id", "roles", "rights")] == [second[each] for each in ("id", "roles", "rights")]
    assert opens(folder, new, later_ms=90 * DAY_MS - 60_000)
    assert not opens(folder, new, later_ms=90 * DAY_MS + 60_000)  # it is valid as long as the old one was

    last = call("keys", "rotate", second["key"], "--overlap", "0s").out.strip()
    assert [True, False, True] == [opens(folder, each) for each in (old, new, last)]


def test_a_key_of_the_first_release_can_be_rotated_and_revoked(folder: Path, call: Caller) -> None:
    file = folder / "keys.toml"
    file.write_text(f'[[key]]\nid = "ada"  # the boss\nsha256 = "{key_digest("ilk_1")}"\n', encoding="utf-8")
    file.chmod(0o600)
    new = call("keys", "rotate", f"sha256:{key_digest('ilk_1')[:8]}").out.strip()
    assert [True, True] == [opens(folder, each) for each in ("ilk_1", new)]
    assert 0 == call("keys", "revoke", f"sha256:{key_digest('ilk_1')[:8]}").code

    assert [False, True] == [opens(folder, each) for each in ("ilk_1", new)]


def test_revoke_removes_one_key_or_all_of_an_id(folder: Path, call: Caller) -> None:
    keys = [call("keys", "create", name).out.strip() for name in ("ada", "ada", "bob")]
    ambiguous = call("keys", "revoke", "ada")
    assert (2, True) == (ambiguous.code, "`ada` has 2 keys" in ambiguous.err)
    assert 0 == call("keys", "revoke", listed(call)[0]["key"]).code
    assert [False, True, True] == [opens(folder, each) for each in keys]
    assert 0 == call("keys", "revoke", "ada", "--all").code

    assert [False, False, True] == [opens(folder, each) for each in keys]


def test_wrong_calls_change_nothing_and_say_what_to_do(folder: Path, call: Caller) -> None:
    assert 6 == call("keys", "list").code  # no file
    key = call("keys", "create", "ada").out.strip()
    before = (folder / "keys.toml").read_bytes()
    calls = {
        ("create", "bob", "--expires", "soon"): "invalid time `soon`",
        ("create", "bob", "--expires", "2001-01-01T00:00Z"): "is in the past",
        ("create", "bob", "--role", "boss@never"): "invalid time `never`",
        ("create", "bob", "--right", "everything"): "everything",
        ("revoke", "bob"): "unknown key or ID `bob`",
        ("revoke", "bob", "--all"): "unknown key or ID `bob`",
        ("revoke", key): "unknown key or ID `(a secret)`",
        ("rotate", "ada", "--overlap", "long"): "invalid duration",
    }
    for words, text in calls.items():
        ended = call("keys", *words)
        assert ended.code in (2, 6), words
        assert text in ended.err
        assert key not in ended.out + ended.err

    assert before == (folder / "keys.toml").read_bytes()
    (folder / "keys.toml").chmod(0o644)
    assert "chmod 600" in call("keys", "list").err


def test_a_signing_secret_is_rotated_and_the_old_one_signs_until_the_overlap_ends(folder: Path, call: Caller) -> None:
    file = folder / "webhooks.toml"
    texts = [call("keys", "rotate", "--signing", str(file), "--overlap", "7d").out.strip() for _ in range(2)]
    now_ms = SystemClock().now_ms()
    valid = [[each for each in read_signing_keys(file) if each.counts(now_ms + days * DAY_MS)] for days in (0, 8)]
    wanted = [parse_key(each, "a test") for each in texts]

    assert [each.key for each in wanted] == [each.key for each in valid[0]]
    assert [wanted[1].key] == [each.key for each in valid[1]]
    assert 0o600 == file.stat().st_mode & 0o777
    last = call("keys", "rotate", "--signing", str(file), "--overlap", "0s").out.strip()
    assert [parse_key(last, "a test").key] == [each.key for each in read_signing_keys(file)]
    assert [2, 2] == [call("keys", "rotate").code, call("keys", "rotate", "ada", "--signing", str(file)).code]
