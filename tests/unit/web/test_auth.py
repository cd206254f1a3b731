"""API keys, sessions and key files."""

from pathlib import Path

import pytest

from interlock.errors import NotFoundError, UsageError
from interlock.model.limits import LOGINS_MAX, LOGINS_PER_USER_MAX
from interlock.testing.clock import VirtualClock
from interlock.web.auth import SESSION_IDLE_MS_MAX, SESSION_MS_MAX, Authentication, User, key_digest, read_keys
from tests.unit.web.consoles import make_user


def access(clock: VirtualClock, *, expires_ms: int | None = None) -> Authentication:
    """Return the authentication of a server with one key, `secret`, of ada."""
    ada = User(principal={"id": "ada", "roles": []}, rights=frozenset({"read"}), expires_ms=expires_ms)
    return Authentication(clock, keys={key_digest("secret"): ada})


def test_only_the_digest_of_a_key_is_stored() -> None:
    auth = access(VirtualClock())

    assert "ada" == getattr(auth.by_key("secret"), "name", None)
    assert [None, None, None] == [auth.by_key(each) for each in ("Secret", "", "secret ")]
    assert "secret" not in repr(vars(auth))


def test_expired_key_and_its_sessions_are_invalid() -> None:
    clock = VirtualClock(1_000)
    auth = access(clock, expires_ms=2_000)
    done = auth.sign_in("secret")
    assert done is not None
    clock.time_ms = 2_000

    assert (None, None) == (auth.by_key("secret"), auth.by_cookie(done[0]))


def test_session_ends_after_half_an_hour_without_a_request() -> None:
    clock = VirtualClock()
    auth = access(clock)
    done = auth.sign_in("secret")
    assert done is not None
    clock.time_ms += SESSION_IDLE_MS_MAX - 1
    auth.touch(done[1])
    clock.time_ms += SESSION_IDLE_MS_MAX - 1
    assert auth.by_cookie(done[0]) is not None
    auth.touch(done[1])
    clock.time_ms += SESSION_IDLE_MS_MAX

    assert auth.by_cookie(done[0]) is None


def test_session_ends_after_eight_hours_even_if_it_is_used() -> None:
    clock = VirtualClock()
    auth = access(clock)
    done = auth.sign_in("secret")
    assert done is not None
    for _ in range(SESSION_MS_MAX // (SESSION_IDLE_MS_MAX - 1)):
        clock.time_ms += SESSION_IDLE_MS_MAX - 1
        assert auth.by_cookie(done[0]) is not None
        auth.touch(done[1])
    clock.time_ms += SESSION_IDLE_MS_MAX - 1

    assert auth.by_cookie(done[0]) is None


def test_sign_in_link_works_once() -> None:
    auth = Authentication(VirtualClock(), local=make_user())
    link = auth.link
    assert link is not None

    assert auth.sign_in("another") is None
    assert auth.sign_in(link) is not None
    assert auth.sign_in(link) is None
    assert auth.link is None


def test_each_session_has_its_own_cookie_and_token() -> None:
    auth = access(VirtualClock())
    one, other = auth.sign_in("secret"), auth.sign_in("secret")
    assert one is not None
    assert other is not None

    assert 4 == len({one[0], one[1].csrf, other[0], other[1].csrf})


def crowd(clock: VirtualClock, names: list[str]) -> Authentication:
    """Return the authentication of a server where the key of each user is their name."""
    people = {name: User(principal={"id": name, "roles": []}, rights=frozenset({"read"})) for name in names}
    return Authentication(clock, keys={key_digest(name): each for name, each in people.items()})


def test_user_at_the_limit_ends_their_own_least_recently_used_session() -> None:
    clock = VirtualClock()
    auth = crowd(clock, ["ada", "bob"])
    bob, ada = auth.sign_in("bob"), list[str]()
    assert bob is not None
    for _ in range(LOGINS_MAX + 1):
        clock.time_ms += 1
        done = auth.sign_in("ada")
        assert done is not None
        ada.append(done[0])

    assert auth.by_cookie(bob[0]) is not None
    assert ada[-LOGINS_PER_USER_MAX:] == [each for each in ada if auth.by_cookie(each) is not None]


def test_at_the_total_limit_the_user_with_the_most_sessions_loses_one() -> None:
    clock = VirtualClock()
    many = [f"p{number}" for number in range(LOGINS_MAX // LOGINS_PER_USER_MAX)]
    auth = crowd(clock, ["ada", *many, "bob"])
    ada = auth.sign_in("ada")
    assert ada is not None
    theirs = list[str]()
    for name in many:
        for _ in range(LOGINS_PER_USER_MAX):
            clock.time_ms += 1
            done = auth.sign_in(name)
            assert done is not None
            theirs.append(done[0])
    bob = auth.sign_in("bob")
    assert bob is not None

    assert [True, True] == [auth.by_cookie(each[0]) is not None for each in (ada, bob)]
    assert LOGINS_MAX - 2 == sum(auth.by_cookie(each) is not None for each in theirs)


def written(folder: Path, text: str, mode: int = 0o600) -> Path:
    """Return a key file with this text."""
    file = folder / "keys.toml"
    file.write_text(text, encoding="utf-8")
    file.chmod(mode)
    return file


GOOD = f'[[key]]\nid = "ada"\nsha256 = "{key_digest("secret")}"\nroles = ["support"]\nrights = ["read", "send"]\n'


def test_key_file_gives_users_roles_and_rights(tmp_path: Path) -> None:
    found = read_keys(written(tmp_path, GOOD + "expires = 2030-01-01T00:00:00Z\n"))

    ada = found[key_digest("secret")]
    assert ({"id": "ada", "kind": "user", "roles": ["support"]}, {"read", "send"}) == (ada.principal, set(ada.rights))
    assert 1_893_456_000_000 == ada.expires_ms


@pytest.mark.parametrize(
    "text",
    [
        "",
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
        GOOD.replace(key_digest("secret"), "zz" * 32),
    ],
)
def test_invalid_key_file_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_keys(written(tmp_path, text))

    assert "keys.malformed" == caught.value.code


def test_key_file_readable_by_others_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read_keys(written(tmp_path, GOOD, 0o644))

    assert "keys.mode" == caught.value.code


def test_missing_key_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"keys\.toml"):
        read_keys(tmp_path / "keys.toml")


def test_session_from_the_future_has_ended() -> None:
    clock = VirtualClock(10**12)
    auth = access(clock)
    done = auth.sign_in("secret")
    assert done is not None
    clock.time_ms -= 30_000
    assert auth.by_cookie(done[0]) is not None
    clock.time_ms -= 60_000

    assert None is auth.by_cookie(done[0])
