"""Tokens of issuers: which are accepted, every known attack, and the rules for reading the issuer's keys."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization

from interlock.errors import UnavailableError, UsageError
from interlock.model.limits import JWKS_BYTES_MAX, JWKS_KEYS_MAX
from interlock.testing.clock import VirtualClock
from interlock.trust import jwks as jwks_module
from interlock.trust.issuers import IssuerTable, check_issuer
from interlock.trust.jwks import FRESH_MS, REFETCH_MS, STALE_MS
from interlock.trust.tokens import LEEWAY_MS, TokenVerifier
from interlock.trust.users import User
from tests.support.eventually import eventually
from tests.unit.trust.issuer_server import (
    AUDIENCE,
    ISSUER,
    NOW_S,
    Issuer,
    claims,
    ec_key,
    ed_key,
    issuer_server,
    jwk,
    rsa_key,
    server_context,
    token,
)

NOW_MS = NOW_S * 1000


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    """An issuer with one RSA key, `k1`."""
    with issuer_server() as found:
        found.publish(jwk(rsa_key()))
        yield found


@pytest.fixture
def clock() -> VirtualClock:
    """A clock at the time at which the tokens of the tests were issued."""
    return VirtualClock(NOW_MS)


def table(issuer: Issuer, **more: Any) -> IssuerTable:
    """The table of an issuer."""
    given: dict[str, Any] = {"algorithms": ("RS256", "ES256", "EdDSA", "PS256"), **more}
    return IssuerTable(issuer=ISSUER, audience=AUDIENCE, jwks=issuer.url, **given)


def verifier(issuer: Issuer, clock: VirtualClock, **more: Any) -> TokenVerifier:
    """A verifier with one issuer."""
    found = TokenVerifier(clock)
    given = table(issuer, **more)
    check_issuer(given)
    found.use([given])
    return found


async def user_of(found: TokenVerifier, text: str) -> User | None:
    """The user of a token."""
    verified = await found.verify(text)
    return None if verified is None else verified.user


async def reason(found: TokenVerifier, text: str, caplog: pytest.LogCaptureFixture) -> str:
    """Why a token is refused, by the log; empty if it is accepted."""
    caplog.clear()
    caplog.set_level(logging.INFO, "interlock.web")
    if await found.verify(text) is not None:
        return ""
    (record,) = [each for each in caplog.records if each.message == "a token was refused"]
    assert not any(part in caplog.text for part in text.split("."))
    return str(vars(record)["code"])


async def test_a_valid_token_makes_a_user_with_what_the_table_names_only(issuer: Issuer, clock: VirtualClock) -> None:
    found = verifier(
        issuer,
        clock,
        roles_claim=("realm", "groups"),
        role_names={"interlock-support": "support", "interlock-boss": "boss"},
        roles=("member",),
        rights_of_roles={"boss": ("operate",)},
        claims=("department", "absent"),
        id_prefix="sso:",
    )
    given = claims(
        realm={"groups": ["interlock-support", "everyone", 5]}, department="sales", email="ada@a.test", roles=["boss"]
    )
    user = await user_of(found, token(given))

    assert user is not None
    assert {
        "id": "sso:ada",
        "kind": "user",
        "roles": ["member", "support"],
        "claims": {"department": "sales"},
    } == user.principal
    assert ({"read"}, (NOW_S + 3600) * 1000 + LEEWAY_MS) == (set(user.rights), user.expires_ms)


@pytest.mark.parametrize(("algorithm", "key"), [("ES256", ec_key), ("EdDSA", ed_key), ("PS256", rsa_key)])
async def test_each_kind_of_key_works(issuer: Issuer, clock: VirtualClock, algorithm: str, key: Any) -> None:
    issuer.publish(jwk(key()))
    found = verifier(issuer, clock)

    assert "ada" == getattr(await user_of(found, token(key=key(), algorithm=algorithm)), "name", None)


async def test_an_audience_list_must_contain_ours(
    issuer: Issuer, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    found = verifier(issuer, clock)

    assert "" == await reason(found, token(claims(aud=["other", AUDIENCE])), caplog)
    for wrong in (["other"], [], "other", "interlock ", None, {"interlock": 1}):
        assert await reason(found, token(claims(aud=wrong)), caplog) in (
            "token.audience",
            "token.missing",
            "token.malformed",
        )


def public_pem() -> bytes:
    """The public key of the issuer as its operator may have published it."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return rsa_key().public_key().public_bytes(serialization.Encoding.PEM, form)


def forged_hmac(secret: bytes, headers: dict[str, Any] | None = None) -> str:
    """A token whose HMAC has a public key as its secret."""
    header = {"alg": "HS256", "typ": "at+jwt", "kid": "k1", **(headers or {})}
    parts = [urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=") for each in (header, claims())]
    signed = b".".join(parts)
    mac = urlsafe_b64encode(hmac.new(secret, signed, sha256).digest()).rstrip(b"=")
    return b".".join([signed, mac]).decode()


def unsigned(algorithm: str) -> str:
    """A token without a signature."""
    header = {"alg": algorithm, "typ": "at+jwt", "kid": "k1"}
    parts = [urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=").decode() for each in (header, claims())]
    return ".".join([*parts, "AA"])


def resigned(given: dict[str, Any]) -> str:
    """A valid token with other claims under the old signature."""
    head, _, signature = token().split(".")
    return f"{head}.{urlsafe_b64encode(json.dumps(given).encode()).rstrip(b'=').decode()}.{signature}"


def reheaded(more: dict[str, Any]) -> str:
    """A valid token with more in its header, under the old signature."""
    header = {"alg": "RS256", "typ": "at+jwt", "kid": "k1", **more}
    return ".".join([urlsafe_b64encode(json.dumps(header).encode()).rstrip(b"=").decode(), *token().split(".")[1:]])


def embedded(**headers: Any) -> str:
    """A token that brings the key it was signed with."""
    return token(key=rsa_key(7), headers={"kid": "mine", **headers})


def attacks() -> dict[str, tuple[str, str]]:
    """Tokens that must be refused, and the reason."""
    other = rsa_key(7)
    day = 86_400
    return {
        "algorithm none": (unsigned("none"), "token.algorithm"),
        "algorithm NONE": (unsigned("nOnE"), "token.algorithm"),
        "HMAC with the public key": (forged_hmac(public_pem()), "token.algorithm"),
        "HMAC with the JWK": (forged_hmac(json.dumps(jwk(rsa_key())).encode()), "token.algorithm"),
        "algorithm not of the table": (token(algorithm="RS384"), "token.algorithm"),
        "algorithm of another type of key": (token(key=ec_key(), algorithm="ES256"), "token.key"),
        "another key under the same id": (token(key=other), "token.signature"),
        "altered claims": (resigned(claims(sub="root")), "token.signature"),
        "key in the header": (embedded(jwk=jwk(other)), "token.key"),
        "address of a key in the header": (embedded(jku="http://127.0.0.1:9/"), "token.key"),
        "certificate in the header": (embedded(x5u="http://127.0.0.1:9/", x5c=["AA"]), "token.key"),
        "path as key id": (token(key=other, headers={"kid": "../../dev/null"}), "token.key"),
        "critical header": (token(headers={"crit": ["exp"]}), "token.header"),
        "unencoded payload": (reheaded({"b64": False}), "token.header"),
        "ID token": (token(headers={"typ": "JWT"}), "token.type"),
        "no type": (token(headers={"typ": None}), "token.type"),
        "another issuer": (token(claims(iss="https://evil.test/")), "token.issuer"),
        "issuer with another case": (token(claims(iss=ISSUER.upper())), "token.issuer"),
        "issuer list": (resigned(claims(iss=[ISSUER])), "token.issuer"),
        "no issuer": (token(claims(iss=None)), "token.issuer"),
        "another audience": (token(claims(aud="other")), "token.audience"),
        "no audience": (token(claims(aud=None)), "token.missing"),
        "expired": (token(claims(iat=NOW_S - 4000, exp=NOW_S - 31)), "token.expired"),
        "no end": (token(claims(exp=None)), "token.missing"),
        "no start": (token(claims(iat=None)), "token.missing"),
        "issued in the future": (token(claims(iat=NOW_S + 31)), "token.future"),
        "not yet valid": (token(claims(nbf=NOW_S + 31)), "token.future"),
        "a life of ten years": (token(claims(exp=NOW_S + 3650 * day)), "token.life"),
        "a life of a day and a second": (token(claims(exp=NOW_S + day + 1)), "token.life"),
        "issued long ago to live long": (token(claims(iat=NOW_S - day, exp=NOW_S + 60)), "token.life"),
        "end before start": (token(claims(iat=NOW_S + 20, exp=NOW_S + 10)), "token.life"),
        "end that is a text": (token(claims(exp=str(NOW_S + 60))), "token.malformed"),
        "end that is true": (token(claims(exp=True)), "token.malformed"),
        "no subject": (token(claims(sub=None)), "token.claims"),
        "empty subject": (token(claims(sub=" ")), "token.claims"),
        "subject with a line break": (token(claims(sub="ada\nroot")), "token.claims"),
        "huge subject": (token(claims(sub="a" * 201)), "token.claims"),
        "no JSON": ("AAAA.AAAA.AAAA", "token.malformed"),
        "claims that are a list": (resigned([]), "token.malformed"),  # type: ignore[arg-type]  # any JSON
        "deep header": (
            f"{urlsafe_b64encode(b'[' * 4000).rstrip(b'=').decode()}.AAAA.AAAA",
            "token.malformed",
        ),
    }


@pytest.mark.parametrize("name", attacks())
async def test_attack_is_refused(
    issuer: Issuer, clock: VirtualClock, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    text, code = attacks()[name]
    found = verifier(issuer, clock)
    assert "" == await reason(found, token(), caplog)

    assert code == await reason(found, text, caplog)


@pytest.mark.parametrize("text", ["", "a.b", "a.b.c.d", "a b.c.d", "a." + "b" * 9000 + ".c", "ä.b.c", "a.b.c\n"])
async def test_text_of_another_form_is_not_a_token(issuer: Issuer, clock: VirtualClock, text: str) -> None:
    assert await verifier(issuer, clock).verify(text) is None
    assert 0 == issuer.asked


async def test_clocks_may_differ_by_the_leeway(issuer: Issuer, clock: VirtualClock) -> None:
    found = verifier(issuer, clock)
    for given in (
        claims(iat=NOW_S + 30),
        claims(nbf=NOW_S + 30),
        claims(iat=NOW_S - 60, exp=NOW_S - 29),
        claims(exp=NOW_S + 86_400),
    ):
        assert await user_of(found, token(given)) is not None


async def test_a_required_claim_may_stand_for_the_type(issuer: Issuer, clock: VirtualClock) -> None:
    found = verifier(issuer, clock, typ=("JWT",), require={"token_use": "access"})
    texts = [token(claims(token_use=use), headers={"typ": "JWT"}) for use in ("access", "id", None, ["access"], True)]

    assert [True, False, False, False, False] == [await user_of(found, each) is not None for each in texts]


async def test_a_user_ends_with_the_token_and_is_not_served_from_memory(issuer: Issuer, clock: VirtualClock) -> None:
    found, text = verifier(issuer, clock), token(claims(exp=NOW_S + 60))
    assert await user_of(found, text) is not None
    clock.time_ms += 60_000 + LEEWAY_MS - 1
    assert await user_of(found, text) is not None
    clock.time_ms += 1

    assert await user_of(found, text) is None


async def test_a_verified_token_is_not_verified_again_until_the_keys_change(
    issuer: Issuer, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, text = verifier(issuer, clock), token()
    count, decode = 0, jwt.decode

    def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal count
        count += 1
        return decode(*arguments, **options)

    monkeypatch.setattr(jwt, "decode", counted)
    for _ in range(5):
        assert await user_of(found, text) is not None
    assert 1 == count
    issuer.publish(jwk(rsa_key(7), "k2"))
    clock.time_ms += FRESH_MS

    async def is_refused() -> bool:
        return await user_of(found, text) is None

    await eventually(is_refused, "the removed key")
    assert 2 == issuer.asked


async def test_unknown_key_ids_read_the_keys_at_most_every_half_minute(
    issuer: Issuer, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    found = verifier(issuer, clock)
    assert "" == await reason(found, token(), caplog)
    for number in range(50):
        assert await user_of(found, token(headers={"kid": f"x{number}"})) is None
    assert 1 == issuer.asked
    issuer.publish(jwk(rsa_key()), jwk(rsa_key(7), "k2"))
    clock.time_ms += REFETCH_MS
    tokens = [token(key=rsa_key(7), headers={"kid": "k2"}), *(token(headers={"kid": f"y{n}"}) for n in range(50))]
    users = await asyncio.gather(*(user_of(found, each) for each in tokens))

    assert 2 == issuer.asked
    assert [True, *[False] * 50] == [each is not None for each in users]


async def test_an_issuer_that_hangs_stalls_no_other_request(
    issuer: Issuer, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = verifier(issuer, clock)
    assert await user_of(found, token()) is not None
    issuer.hang = True
    clock.time_ms += REFETCH_MS
    waiting = [asyncio.ensure_future(user_of(found, token(headers={"kid": f"x{n}"}))) for n in range(100)]
    await eventually(lambda: issuer.asked == 2, "the request")
    fresh = await user_of(found, token(claims(sub="bob")))  # verified while the others wait
    assert not any(each.done() for each in waiting)
    issuer.go_on.set()

    assert "bob" == getattr(fresh, "name", None)
    assert [None] * 100 == await asyncio.gather(*waiting)
    assert 2 == issuer.asked
    assert jwks_module.WAIT_SECONDS < 30


async def test_an_issuer_that_never_answers_is_cut_off(
    issuer: Issuer, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jwks_module, "WAIT_SECONDS", 0.05)
    issuer.hang = True
    found = verifier(issuer, clock)
    for _ in range(3):
        with pytest.raises(UnavailableError) as caught:
            await found.verify(token())
        assert "token.keys" == caught.value.code
    assert 1 == issuer.asked
    issuer.hang = False
    issuer.go_on.set()
    clock.time_ms += REFETCH_MS

    async def is_accepted() -> bool:
        try:
            return await user_of(found, token()) is not None
        except UnavailableError:
            clock.time_ms += REFETCH_MS
            return False

    await eventually(is_accepted, "the issuer that is back")


async def test_stale_keys_count_for_a_day(issuer: Issuer, clock: VirtualClock) -> None:
    found = verifier(issuer, clock)
    assert await user_of(found, token()) is not None
    issuer.status = 500
    clock.time_ms += STALE_MS - 1
    late = NOW_S + STALE_MS // 1000 - 60
    assert await user_of(found, token(claims(iat=late, exp=late + 600))) is not None
    await eventually(lambda: issuer.asked == 2, "the read that nobody waits for")
    clock.time_ms += REFETCH_MS

    with pytest.raises(UnavailableError):
        await found.verify(token(claims(sub="bob", iat=late, exp=late + 600)))


@pytest.mark.parametrize(
    "break_it",
    [
        lambda issuer: setattr(issuer, "body", b"not JSON"),
        lambda issuer: setattr(issuer, "body", b'{"keys": 5}'),
        lambda issuer: setattr(issuer, "body", b"[" * 60_000),
        lambda issuer: setattr(issuer, "body", issuer.body + b" " * JWKS_BYTES_MAX),
        lambda issuer: setattr(issuer, "status", 302),
        lambda issuer: setattr(issuer, "status", 404),
        lambda issuer: issuer.publish(*(jwk(rsa_key(), f"k{number}") for number in range(JWKS_KEYS_MAX + 1))),
    ],
    ids=["text", "no list", "deep", "large", "redirect", "missing", "many keys"],
)
async def test_an_unusable_key_set_is_no_answer(issuer: Issuer, clock: VirtualClock, break_it: Any) -> None:
    break_it(issuer)
    with pytest.raises(UnavailableError):
        await verifier(issuer, clock).verify(token())

    assert 1 == issuer.asked


async def test_keys_that_are_not_for_signatures_are_not_used(
    issuer: Issuer, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    secret = urlsafe_b64encode(b"s" * 32).decode().rstrip("=")
    issuer.publish(
        jwk(rsa_key(), "k1", use="enc"),
        {"kty": "oct", "kid": "k2", "k": secret},
        jwk(rsa_key(1, 1024), "k3"),
        jwk(rsa_key(), "k4", alg="RS512"),
        {"kty": "RSA", "kid": "k5", "n": "AA", "e": "!!"},
        {"kty": ["RSA"], "kid": "k6"},
        {"kty": "EC", "crv": "secp256k1", "kid": "k7"},
        jwk(rsa_key(), "k8"),
        jwk(rsa_key(7), "k8"),
    )
    found = verifier(issuer, clock)
    for number in range(1, 9):
        assert "token.key" == await reason(found, token(headers={"kid": f"k{number}"}), caplog)


async def test_without_a_key_id_the_only_key_counts(issuer: Issuer, clock: VirtualClock) -> None:
    issuer.publish(jwk(rsa_key(), None), jwk(ec_key(), "e"))
    found = verifier(issuer, clock)
    assert await user_of(found, token(headers={"kid": None})) is not None
    issuer.publish(jwk(rsa_key(), None), jwk(rsa_key(7), "other"))
    other = verifier(issuer, clock)

    assert await user_of(other, token(headers={"kid": None})) is None


async def test_another_issuer_of_the_server_cannot_sign_for_this_one(issuer: Issuer, clock: VirtualClock) -> None:
    with issuer_server() as second:
        second.publish(jwk(rsa_key(7), "k1"))
        found = TokenVerifier(clock)
        other = IssuerTable(issuer="https://second.test/", audience=AUDIENCE, jwks=second.url, algorithms=("RS256",))
        found.use([table(issuer), other])

        assert await user_of(found, token(claims(iss="https://second.test/"), key=rsa_key(7))) is not None
        assert await user_of(found, token(key=rsa_key(7))) is None


async def test_a_removed_issuer_is_forgotten_with_its_tokens(issuer: Issuer, clock: VirtualClock) -> None:
    found, text = verifier(issuer, clock), token()
    verified = await found.verify(text)
    assert verified is not None
    assert found.is_valid(verified)
    found.use([table(issuer, roles=("boss",))])
    again = await user_of(found, text)
    assert again is not None
    assert ["boss"] == again.principal["roles"]
    assert not found.is_valid(verified)
    found.use([])

    assert await found.verify(text) is None


async def test_keys_are_read_by_https_from_a_server_with_a_trusted_certificate(
    tmp_path: Path, clock: VirtualClock
) -> None:
    own, trusting = server_context(tmp_path)
    with issuer_server(own) as issuer:
        issuer.publish(jwk(rsa_key()))
        found, suspicious = TokenVerifier(clock, context=trusting), TokenVerifier(clock)
        for each in (found, suspicious):
            each.use([table(issuer)])

        assert await user_of(found, token()) is not None
        with pytest.raises(UnavailableError):
            await suspicious.verify(token())


@pytest.mark.parametrize(
    "more",
    [
        {"jwks": "http://login.test/jwks"},
        {"jwks": "http://127.0.0.1.login.test/jwks"},
        {"jwks": "ftp://login.test/jwks"},
        {"jwks": "https://ada:secret@login.test/jwks"},
        {"jwks": "https:///jwks"},
        {"typ": ("JWT",)},
        {"typ": ("at+jwt", "JWT")},
        {"typ": ()},
        {"rights": ("everything",)},
        {"rights_of_roles": {"boss": ("read",)}},
        {"roles_claim": "groups"},
        {"role_names": {"a": "b"}},
        {"roles": tuple(f"r{number}" for number in range(65))},
    ],
)
def test_an_unsafe_issuer_is_refused(more: dict[str, Any]) -> None:
    given = {
        "issuer": ISSUER,
        "audience": AUDIENCE,
        "jwks": "https://login.test/jwks",
        "algorithms": ("RS256",),
        **more,
    }
    with pytest.raises(UsageError) as caught:
        check_issuer(IssuerTable(**given))

    assert "issuer.invalid" == caught.value.code
    assert "secret" not in str(caught.value)
