"""Keys and logins: whose they are, how long they live, and what a key file may say."""

from pathlib import Path

import pytest

from interlock.errors import NotFoundError, UsageError
from interlock.model.limits import LOGINS_MAX, LOGINS_PERSON_MAX
from interlock.testing.clock import VirtualClock
from interlock.web.auth import SESSION_IDLE_MS_MAX, SESSION_MS_MAX, Authentication, User, key_digest, read_keys
from tests.unit.web.consoles import person


def access(clock: VirtualClock, *, expires_ms: int | None = None) -> Authentication:
    """Gives one key, `secret`, of ada."""
    ada = User(principal={"id": "ada", "roles": []}, rights=frozenset({"read"}), expires_ms=expires_ms)
    return Authentication(clock, keys={key_digest("secret"): ada})


def test_a_key_is_known_by_its_digest_alone() -> None:
    """The text of a key is kept nowhere."""
    doors = access(VirtualClock())

    assert "ada" == getattr(doors.by_key("secret"), "name", None)
    assert [None, None, None] == [doors.by_key(each) for each in ("Secret", "", "secret ")]
    assert "secret" not in repr(vars(doors))


def test_a_key_ends_when_it_expires() -> None:
    """So does a login that was made with it."""
    clock = VirtualClock(1_000)
    doors = access(clock, expires_ms=2_000)
    done = doors.sign_in("secret")
    assert done is not None
    clock.time_ms = 2_000

    assert (None, None) == (doors.by_key("secret"), doors.by_cookie(done[0]))


def test_a_login_ends_after_half_an_hour_without_a_request() -> None:
    """Each request begins the half hour anew."""
    clock = VirtualClock()
    doors = access(clock)
    done = doors.sign_in("secret")
    assert done is not None
    clock.time_ms += SESSION_IDLE_MS_MAX - 1
    doors.touch(done[1])
    clock.time_ms += SESSION_IDLE_MS_MAX - 1
    assert doors.by_cookie(done[0]) is not None
    doors.touch(done[1])
    clock.time_ms += SESSION_IDLE_MS_MAX

    assert doors.by_cookie(done[0]) is None


def test_a_login_ends_after_eight_hours_however_busy() -> None:
    """Using it does not keep it alive for ever."""
    clock = VirtualClock()
    doors = access(clock)
    done = doors.sign_in("secret")
    assert done is not None
    for _ in range(SESSION_MS_MAX // (SESSION_IDLE_MS_MAX - 1)):
        clock.time_ms += SESSION_IDLE_MS_MAX - 1
        assert doors.by_cookie(done[0]) is not None
        doors.touch(done[1])
    clock.time_ms += SESSION_IDLE_MS_MAX - 1

    assert doors.by_cookie(done[0]) is None


def test_the_link_gives_one_login() -> None:
    """Whoever finds it in a log later finds nothing."""
    doors = Authentication(VirtualClock(), local=person())
    link = doors.link
    assert link is not None

    assert doors.sign_in("another") is None
    assert doors.sign_in(link) is not None
    assert doors.sign_in(link) is None
    assert doors.link is None


def test_each_login_has_a_cookie_and_a_token_of_its_own() -> None:
    """One tells nothing of the other."""
    doors = access(VirtualClock())
    one, other = doors.sign_in("secret"), doors.sign_in("secret")
    assert one is not None
    assert other is not None

    assert 4 == len({one[0], one[1].csrf, other[0], other[1].csrf})


def crowd(clock: VirtualClock, names: list[str]) -> Authentication:
    """Gives a key to each of these people: their name."""
    people = {name: User(principal={"id": name, "roles": []}, rights=frozenset({"read"})) for name in names}
    return Authentication(clock, keys={key_digest(name): each for name, each in people.items()})


def test_who_logs_in_too_often_ends_logins_of_their_own() -> None:
    """One key cannot log everybody out, and the login of it that was used longest ago ends."""
    clock = VirtualClock()
    doors = crowd(clock, ["ada", "bob"])
    bob, ada = doors.sign_in("bob"), list[str]()
    assert bob is not None
    for _ in range(LOGINS_MAX + 1):
        clock.time_ms += 1
        done = doors.sign_in("ada")
        assert done is not None
        ada.append(done[0])

    assert doors.by_cookie(bob[0]) is not None
    assert ada[-LOGINS_PERSON_MAX:] == [each for each in ada if doors.by_cookie(each) is not None]


def test_when_all_logins_are_taken_whoever_has_the_most_makes_room() -> None:
    """A flood of logins does not grow without end, and whoever has one keeps it."""
    clock = VirtualClock()
    many = [f"p{number}" for number in range(LOGINS_MAX // LOGINS_PERSON_MAX)]
    doors = crowd(clock, ["ada", *many, "bob"])
    ada = doors.sign_in("ada")
    assert ada is not None
    theirs = list[str]()
    for name in many:
        for _ in range(LOGINS_PERSON_MAX):
            clock.time_ms += 1
            done = doors.sign_in(name)
            assert done is not None
            theirs.append(done[0])
    bob = doors.sign_in("bob")
    assert bob is not None

    assert [True, True] == [doors.by_cookie(each[0]) is not None for each in (ada, bob)]
    assert LOGINS_MAX - 2 == sum(doors.by_cookie(each) is not None for each in theirs)


def written(folder: Path, text: str, mode: int = 0o600) -> Path:
    """Gives a key file of this text."""
    file = folder / "keys.toml"
    file.write_text(text, encoding="utf-8")
    file.chmod(mode)
    return file


GOOD = f'[[key]]\nid = "ada"\nsha256 = "{key_digest("secret")}"\nroles = ["support"]\nrights = ["read", "send"]\n'


def test_a_key_file_names_people_with_roles_and_rights(tmp_path: Path) -> None:
    """What it says is what the principal has."""
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
def test_a_key_file_that_is_wrong_is_refused(tmp_path: Path, text: str) -> None:
    """Nobody is let in by a mistake in it."""
    with pytest.raises(UsageError) as caught:
        read_keys(written(tmp_path, text))

    assert "keys.malformed" == caught.value.code


def test_a_key_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    """Digests are no secrets, but who is in it is."""
    with pytest.raises(UsageError) as caught:
        read_keys(written(tmp_path, GOOD, 0o644))

    assert "keys.mode" == caught.value.code


def test_a_key_file_that_is_missing_is_not_found(tmp_path: Path) -> None:
    """The message names it."""
    with pytest.raises(NotFoundError, match=r"keys\.toml"):
        read_keys(tmp_path / "keys.toml")


def test_a_login_from_the_future_is_over() -> None:
    """It began under a clock that was ahead, and would not end for years."""
    clock = VirtualClock(10**12)
    doors = access(clock)
    done = doors.sign_in("secret")
    assert done is not None
    clock.time_ms -= 30_000
    assert doors.by_cookie(done[0]) is not None
    clock.time_ms -= 60_000

    assert None is doors.by_cookie(done[0])
