"""API keys, sessions, and changes of the key file."""

from pathlib import Path

import pytest

from interlock.model.limits import KEY_FILE_AGE_MS, LOGINS_MAX, LOGINS_PER_USER_MAX
from interlock.ports.replaced_file import replace_file
from interlock.testing.clock import VirtualClock
from interlock.trust.api_keys import key_digest
from interlock.trust.used_keys import read_used, used_file
from interlock.trust.users import User
from interlock.web.auth import SESSION_IDLE_MS_MAX, SESSION_MS_MAX, Authentication
from interlock.web.key_file_watcher import USED_AGE_MS, KeyFileWatcher
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


async def test_expired_key_and_its_sessions_are_invalid() -> None:
    clock = VirtualClock(1_000)
    auth = access(clock, expires_ms=2_000)
    done = await auth.sign_in("secret")
    assert done is not None
    clock.time_ms = 2_000

    assert (None, None) == (auth.by_key("secret"), auth.by_cookie(done[0]))


async def test_session_ends_after_half_an_hour_without_a_request() -> None:
    clock = VirtualClock()
    auth = access(clock)
    done = await auth.sign_in("secret")
    assert done is not None
    clock.time_ms += SESSION_IDLE_MS_MAX - 1
    auth.touch(done[1])
    clock.time_ms += SESSION_IDLE_MS_MAX - 1
    assert auth.by_cookie(done[0]) is not None
    auth.touch(done[1])
    clock.time_ms += SESSION_IDLE_MS_MAX

    assert auth.by_cookie(done[0]) is None


async def test_session_ends_after_eight_hours_even_if_it_is_used() -> None:
    clock = VirtualClock()
    auth = access(clock)
    done = await auth.sign_in("secret")
    assert done is not None
    for _ in range(SESSION_MS_MAX // (SESSION_IDLE_MS_MAX - 1)):
        clock.time_ms += SESSION_IDLE_MS_MAX - 1
        assert auth.by_cookie(done[0]) is not None
        auth.touch(done[1])
    clock.time_ms += SESSION_IDLE_MS_MAX - 1

    assert auth.by_cookie(done[0]) is None


async def test_sign_in_link_works_once() -> None:
    auth = Authentication(VirtualClock(), local=make_user())
    link = auth.link
    assert link is not None

    assert await auth.sign_in("another") is None
    assert await auth.sign_in(link) is not None
    assert await auth.sign_in(link) is None
    assert auth.link is None


async def test_each_session_has_its_own_cookie_and_token() -> None:
    auth = access(VirtualClock())
    one, other = await auth.sign_in("secret"), await auth.sign_in("secret")
    assert one is not None
    assert other is not None

    assert 4 == len({one[0], one[1].csrf, other[0], other[1].csrf})


def crowd(clock: VirtualClock, names: list[str]) -> Authentication:
    """Return the authentication of a server where the key of each user is their name."""
    people = {name: User(principal={"id": name, "roles": []}, rights=frozenset({"read"})) for name in names}
    return Authentication(clock, keys={key_digest(name): each for name, each in people.items()})


async def test_user_at_the_limit_ends_their_own_least_recently_used_session() -> None:
    clock = VirtualClock()
    auth = crowd(clock, ["ada", "bob"])
    bob, ada = await auth.sign_in("bob"), list[str]()
    assert bob is not None
    for _ in range(LOGINS_MAX + 1):
        clock.time_ms += 1
        done = await auth.sign_in("ada")
        assert done is not None
        ada.append(done[0])

    assert auth.by_cookie(bob[0]) is not None
    assert ada[-LOGINS_PER_USER_MAX:] == [each for each in ada if auth.by_cookie(each) is not None]


async def test_at_the_total_limit_the_user_with_the_most_sessions_loses_one() -> None:
    clock = VirtualClock()
    many = [f"p{number}" for number in range(LOGINS_MAX // LOGINS_PER_USER_MAX)]
    auth = crowd(clock, ["ada", *many, "bob"])
    ada = await auth.sign_in("ada")
    assert ada is not None
    theirs = list[str]()
    for name in many:
        for _ in range(LOGINS_PER_USER_MAX):
            clock.time_ms += 1
            done = await auth.sign_in(name)
            assert done is not None
            theirs.append(done[0])
    bob = await auth.sign_in("bob")
    assert bob is not None

    assert [True, True] == [auth.by_cookie(each[0]) is not None for each in (ada, bob)]
    assert LOGINS_MAX - 2 == sum(auth.by_cookie(each) is not None for each in theirs)


async def test_session_from_the_future_has_ended() -> None:
    clock = VirtualClock(10**12)
    auth = access(clock)
    done = await auth.sign_in("secret")
    assert done is not None
    clock.time_ms -= 30_000
    assert auth.by_cookie(done[0]) is not None
    clock.time_ms -= 60_000

    assert None is auth.by_cookie(done[0])


def key_table(name: str, secret: str, more: str = "") -> str:
    """Return a table of a key file."""
    return f'[[key]]\nid = "{name}"\nsha256 = "{key_digest(secret)}"\n{more}\n'


def watched(folder: Path, clock: VirtualClock, text: str) -> tuple[Path, Authentication]:
    """Return a key file and the authentication of a server that uses it."""
    file = folder / "keys.toml"
    replace_file(file, text.encode(), mode=0o600)
    return file, Authentication(clock, key_file=KeyFileWatcher(file, clock))


async def changed(auth: Authentication, clock: VirtualClock, file: Path, text: str) -> None:
    """Replace a key file, and let the server look at it."""
    replace_file(file, text.encode())
    clock.time_ms += KEY_FILE_AGE_MS
    await auth.refresh()


async def test_a_changed_key_file_counts_within_a_second(tmp_path: Path) -> None:
    clock = VirtualClock(10**12)
    file, auth = watched(tmp_path, clock, key_table("ada", "one"))
    replace_file(file, (key_table("bob", "two")).encode())
    clock.time_ms += KEY_FILE_AGE_MS - 1
    await auth.refresh()
    assert auth.by_key("one") is not None
    clock.time_ms += 1
    await auth.refresh()

    assert auth.by_key("one") is None
    assert "bob" == getattr(auth.by_key("two"), "name", None)


async def test_removing_a_key_ends_its_sessions_and_no_others(tmp_path: Path) -> None:
    clock = VirtualClock(10**12)
    file, auth = watched(tmp_path, clock, key_table("ada", "one") + key_table("ada", "two") + key_table("bob", "three"))
    ended, kept, other = await auth.sign_in("one"), await auth.sign_in("two"), await auth.sign_in("three")
    assert ended is not None
    assert kept is not None
    assert other is not None
    await changed(auth, clock, file, key_table("ada", "two") + key_table("bob", "three"))

    sessions = [auth.by_cookie(each[0]) for each in (ended, kept, other)]
    assert [None, "ada", "bob"] == [None if each is None else each.user.name for each in sessions]


async def test_a_change_of_rights_reaches_sessions_of_the_key(tmp_path: Path) -> None:
    clock = VirtualClock(10**12)
    file, auth = watched(tmp_path, clock, key_table("ada", "one", 'rights = ["read", "send"]\nroles = ["boss"]'))
    done = await auth.sign_in("one")
    assert done is not None
    await changed(auth, clock, file, key_table("ada", "one", 'rights = ["read"]'))
    session = auth.by_cookie(done[0])

    assert session is not None
    assert ({"read"}, []) == (set(session.user.rights), session.user.principal["roles"])


async def test_an_invalid_change_keeps_the_last_valid_keys(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = VirtualClock(10**12)
    file, auth = watched(tmp_path, clock, key_table("ada", "one"))
    for text in ("[[key]", key_table("ada", "one", "expire = 2020-01-01T00:00:00Z")):
        await changed(auth, clock, file, text)
        assert auth.by_key("one") is not None
    file.unlink()
    await auth.refresh()
    clock.time_ms += KEY_FILE_AGE_MS
    await auth.refresh()
    assert auth.by_key("one") is not None
    errors = [each for each in caplog.records if each.levelname == "ERROR"]
    assert ["keys.malformed", "keys.malformed", "file.not_found"] == [vars(each)["code"] for each in errors]
    replace_file(file, b"", mode=0o600)
    clock.time_ms += KEY_FILE_AGE_MS
    await auth.refresh()

    assert auth.by_key("one") is None  # an empty file is valid: the last key was revoked


async def test_a_role_with_an_end_counts_until_then_also_in_a_session(tmp_path: Path) -> None:
    clock = VirtualClock(1_893_456_000_000 - 1_000)
    more = 'roles = ["clerk", {name = "boss", until = 2030-01-01T00:00:00Z}]'
    _, auth = watched(tmp_path, clock, key_table("ada", "one", more))
    done = await auth.sign_in("one")
    assert done is not None
    user, session = auth.by_key("one"), auth.by_cookie(done[0])
    assert user is not None
    assert session is not None
    assert [["clerk", "boss"]] * 2 == [user.principal["roles"], session.user.principal["roles"]]
    clock.time_ms += 1_000
    user, session = auth.by_key("one"), auth.by_cookie(done[0])
    assert user is not None
    assert session is not None

    assert [["clerk"]] * 2 == [user.principal["roles"], session.user.principal["roles"]]


async def test_last_use_is_written_and_the_later_one_counts(tmp_path: Path) -> None:
    clock = VirtualClock(10**12)
    file, auth = watched(tmp_path, clock, key_table("ada", "one") + key_table("bob", "two"))
    names = [f"sha256:{key_digest(each)[:8]}" for each in ("one", "two")]
    auth.by_key("one")
    await auth.close()
    assert {names[0]: 10**12} == read_used(file)
    clock.time_ms += 10 * USED_AGE_MS
    auth.by_key("one")
    auth.by_key("two")
    other = Authentication(VirtualClock(5 * 10**11), key_file=KeyFileWatcher(file, VirtualClock(5 * 10**11)))
    other.by_key("one")
    await auth.refresh()
    await other.close()

    assert {names[0]: clock.time_ms, names[1]: clock.time_ms} == read_used(file)
    assert 0o600 == used_file(file).stat().st_mode & 0o777
