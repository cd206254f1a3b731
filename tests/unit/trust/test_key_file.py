"""Key files: what they contain, which are refused, and changes that keep their comments."""

from __future__ import annotations

import tomllib
from datetime import UTC, datetime
from pathlib import Path

import pytest

from interlock.errors import NotFoundError, UsageError
from interlock.model.limits import KEY_FILE_BYTES_MAX
from interlock.trust.api_keys import KEY_FORM, ApiKey, ApiKeys, key_digest, new_key
from interlock.trust.key_file import parse_key_file, read_key_file
from interlock.trust.key_file_edits import KeyFileText, edit_key_file
from interlock.trust.rate_limits import Rate, RequestClass
from interlock.trust.users import User

FILE = Path("keys.toml")
GOOD = f'[[key]]\nid = "ada"\nsha256 = "{key_digest("secret")}"\nroles = ["support"]\nrights = ["read", "send"]\n'
OTHER = GOOD.replace(key_digest("secret"), key_digest("other"))


def written(folder: Path, text: str, mode: int = 0o600) -> Path:
    """Return a key file with this text."""
    file = folder / "keys.toml"
    file.write_text(text, encoding="utf-8")
    file.chmod(mode)
    return file


def test_a_key_file_of_the_first_release_gives_users_roles_and_rights(tmp_path: Path) -> None:
    (key,) = read_key_file(written(tmp_path, GOOD + "expires = 2030-01-01T00:00:00Z\n")).keys

    assert ({"id": "ada", "kind": "user", "roles": ["support"]}, {"read", "send"}) == (
        key.user.principal,
        set(key.user.rights),
    )
    assert (1_893_456_000_000, None, None) == (key.user.expires_ms, key.user.kinds, key.key_id)


def test_roles_may_end_and_keys_may_be_limited_to_kinds() -> None:
    roles = (
        '["support", {name = "boss", until = 2030-01-01T00:00:00Z}, {name = "support", until = 2020-01-01T00:00:00Z}]'
    )
    text = GOOD.replace('["support"]', roles) + 'kinds = ["order"]\n'
    (key,) = parse_key_file(text, FILE).keys
    later = key.user.at(1_893_456_000_000)

    assert frozenset({"order"}) == key.user.kinds
    assert ["support", "boss"] == key.user.principal["roles"]
    assert later is not None
    assert ["support"] == later.principal["roles"]  # listed without an end, too


def test_rates_are_by_class() -> None:
    assert {RequestClass.SEND: Rate(10, 20)} == parse_key_file(
        "[rates.send]\nper_second = 10\nburst = 20\n", FILE
    ).rates


@pytest.mark.parametrize(
    "text",
    [
        "nonsense",
        "key = 5",
        '[[key]]\nid = "a"\n',
        GOOD + GOOD,
        GOOD.replace('"ada"', '""'),
        GOOD.replace('"read", "send"', '"everything"'),
        GOOD.replace('["support"]', '"support"'),
        GOOD + 'color = "red"\n',
        GOOD + "expires = 2030-01-01T00:00:00\n",
        GOOD + 'kind = "system"\n',
        GOOD + 'key = "UPPERCAS"\n',
        GOOD + 'key = "aaaaaaaa"\n' + OTHER + 'key = "aaaaaaaa"\n',
        GOOD.replace(key_digest("secret"), "zz" * 32),
        GOOD + "[colors]\n",
        GOOD.replace('["support"]', str([f"r{number}" for number in range(65)])),
        "[rates.everything]\nper_second = 1\nburst = 1\n",
        "[rates.send]\nper_second = 0\nburst = 1\n",
        "#" * (KEY_FILE_BYTES_MAX + 1),
    ],
)
def test_an_invalid_key_file_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_key_file(written(tmp_path, text))

    assert "keys.malformed" == caught.value.code
    assert key_digest("secret") not in str(caught.value)


def test_a_key_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read_key_file(written(tmp_path, GOOD, 0o640))

    assert "keys.mode" == caught.value.code


def test_a_missing_key_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"keys\.toml"):
        read_key_file(tmp_path / "keys.toml")


def user(name: str) -> User:
    """Return a user without roles."""
    return User(principal={"id": name, "roles": []}, rights=frozenset())


def test_a_new_key_is_found_by_its_id_and_whole_text_only() -> None:
    key_id, text = new_key()
    other_id, other = new_key()
    keys = ApiKeys(
        [
            ApiKey(user=user("ada"), digest=key_digest(text), key_id=key_id),
            ApiKey(user=user("bob"), digest=key_digest("ilk_old")),
        ]
    )

    assert KEY_FORM.fullmatch(text)
    assert len(text) == 3 + 8 + 1 + 43
    found = [keys.find(each, 0) for each in (text, "ilk_old", other, text[:-1] + "!", text[:-1], text + "A", "", "il_")]
    assert ["ada", "bob"] == [each.user.name for each in found if each is not None]
    mixed = f"il_{key_id}_{other.removeprefix(f'il_{other_id}_')}"
    assert None is keys.find(mixed, 0)


def test_the_last_use_is_known_to_the_minute() -> None:
    keys = ApiKeys([ApiKey(user=user("ada"), digest=key_digest("one"))])
    name = f"sha256:{key_digest('one')[:8]}"
    for now_ms in (1_000_000, 1_030_000, 1_060_000, 1_090_000):
        keys.find("one", now_ms)
    assert {name: 1_060_000} == keys.used_ms
    keys.find("wrong", 9_000_000)

    assert {name: 1_060_000} == keys.used_ms


COMMENTED = f"""# people
[[key]]
id = "ada"                # the boss
sha256 = "{key_digest("secret")}"
expires = 2030-01-01T00:00:00Z

# programs

  [[ key ]]
sha256 = "{key_digest("other")}"
id = "till"

[rates.send]
per_second = 5
burst = 5
"""


def test_a_change_keeps_comments_and_other_tables(tmp_path: Path) -> None:
    file = written(tmp_path, COMMENTED)
    edit_key_file(file, lambda text: text.set("key", 0, "expires", tomllib.loads("at = 2031-01-01T00:00:00Z")["at"]))
    edit_key_file(file, lambda text: text.add("key", {"id": "bob", "sha256": key_digest("third"), "created": None}))
    text = file.read_text()
    assert all(
        each in text for each in ("# people", "# the boss", "# programs", "[rates.send]", "2031-01-01T00:00:00Z")
    )
    assert "= 2030" not in text
    edit_key_file(file, lambda text: text.remove("key", 1))

    assert ["ada", "bob"] == [each.user.name for each in read_key_file(file).keys]
    assert 0o600 == file.stat().st_mode & 0o777


@pytest.mark.parametrize(
    "text",
    [
        f'key = [{{id = "ada", sha256 = "{key_digest("secret")}"}}]\n',
        f'[[key]]\nid = """\n[[key]]\n"""\nsha256 = "{key_digest("secret")}"\n' + OTHER,
    ],
)
def test_a_form_that_cannot_be_changed_is_refused_and_nothing_is_written(tmp_path: Path, text: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        edit_key_file(file, lambda found: found.remove("key", len(found.tables("key")) - 1))

    assert "keys.form" == caught.value.code
    assert text == file.read_text()


def test_values_of_every_kind_are_written_as_toml() -> None:
    text = KeyFileText("")
    name = 'ada"\nrights = ["bulk"] # \\ \x00 \x7f \u2028 ü'
    roles = ["x", {"name": "y", "until": datetime(2030, 1, 1, tzinfo=UTC)}]
    text.add("key", {"id": name, "sha256": key_digest("a"), "roles": roles, "kinds": None})

    (key,) = parse_key_file(text.checked(FILE), FILE).keys
    assert (name, ["x", "y"]) == (key.user.name, key.user.principal["roles"])
    assert ["x"] == getattr(key.user.at(1_893_456_000_000), "principal", {})["roles"]
