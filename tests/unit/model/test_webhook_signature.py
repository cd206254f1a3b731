"""Signatures of webhooks: published vectors, the public package in both directions, and both schemes."""

from __future__ import annotations

import sys
from base64 import b64decode, b64encode
from datetime import UTC, datetime

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from interlock.errors import MissingExtraError, UsageError
from interlock.model.webhook_signature import (
    ID_FORM,
    TIMESTAMP_FORM,
    SecretTable,
    SigningKey,
    is_signed,
    parse_key,
    sign,
    signing_keys,
)

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OLD = f"whsec_{b64encode(b'o' * 32).decode()}"
ID, SECONDS, BODY = "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'

# RFC 8032, section 7.1, test 2: the seed, the public key and the signature of the byte 0x72.
SEED = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
PUBLIC = bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
SIGNED = bytes.fromhex(
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
    "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
)
PRIVATE_KEY, PUBLIC_KEY = f"whsk_{b64encode(SEED).decode()}", f"whpk_{b64encode(PUBLIC).decode()}"


def verifies(keys: list[SigningKey], header: str, *, body: bytes = BODY, seconds: int = SECONDS) -> bool:
    """Whether a header is accepted at the time of the message."""
    return is_signed(keys, ID, str(seconds), body, header, now_ms=SECONDS * 1000)


def test_the_published_vector_of_standard_webhooks() -> None:
    header = sign([parse_key(SECRET, "a test")], ID, SECONDS, BODY)

    assert "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" == header


def test_ed25519_keys_are_those_of_rfc_8032() -> None:
    key = parse_key(PRIVATE_KEY, "a test").key

    assert (SIGNED, PUBLIC) == (key.sign(b"\x72"), key.public_key().public_bytes_raw())
    both = parse_key(f"whsk_{b64encode(SEED + PUBLIC).decode()}", "a test")
    assert SIGNED == both.key.sign(b"\x72")


def test_ed25519_signs_and_verifies_the_bytes_of_the_specification() -> None:
    header = sign([parse_key(PRIVATE_KEY, "a test")], ID, SECONDS, BODY)
    scheme, _, text = header.partition(",")
    Ed25519PrivateKey.from_private_bytes(SEED).public_key().verify(b64decode(text), f"{ID}.{SECONDS}.".encode() + BODY)

    assert "v1a" == scheme
    for key in (PUBLIC_KEY, PRIVATE_KEY):
        assert verifies([parse_key(key, "a test")], header)
        assert not verifies([parse_key(key, "a test")], header, body=BODY + b" ")
        assert not verifies([parse_key(key, "a test")], header, seconds=SECONDS + 1)
    assert "" == sign([parse_key(PUBLIC_KEY, "a test")], ID, SECONDS, BODY)  # it cannot sign


def test_the_public_package_accepts_what_we_sign_and_we_accept_what_it_signs() -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    seconds, theirs = int(now.timestamp()), Webhook(SECRET)
    ours = [parse_key(OLD, "a test"), parse_key(PRIVATE_KEY, "a test"), parse_key(SECRET, "a test")]
    header = sign(ours, ID, seconds, BODY)
    headers = {"webhook-id": ID, "webhook-timestamp": str(seconds), "webhook-signature": header}

    assert {"test": 2432232314} == theirs.verify(BODY, headers)
    assert {"test": 2432232314} == Webhook(OLD).verify(BODY, headers)
    signed = theirs.sign(ID, now, BODY.decode())
    assert is_signed([parse_key(SECRET, "a test")], ID, str(seconds), BODY, signed, now_ms=seconds * 1000)
    assert not is_signed([parse_key(OLD, "a test")], ID, str(seconds), BODY, signed, now_ms=seconds * 1000)
    with pytest.raises(WebhookVerificationError):
        theirs.verify(BODY + b" ", headers)


def test_all_keys_that_are_valid_sign_and_verify() -> None:
    moment = datetime.fromtimestamp(SECONDS, UTC)
    tables = [
        SecretTable("old", OLD, not_after=moment),
        SecretTable("new", SECRET, not_before=moment),
        SecretTable("pair", PRIVATE_KEY),
    ]
    keys = signing_keys(tables, "a test")
    before, after = sign(keys, ID, SECONDS - 1, BODY), sign(keys, ID, SECONDS, BODY)

    assert ["v1", "v1a"] == [each.partition(",")[0] for each in before.split(" ")]
    assert sign([parse_key(OLD, "a test")], ID, SECONDS - 1, BODY) in before
    assert sign([parse_key(SECRET, "a test")], ID, SECONDS, BODY) in after
    assert not verifies([keys[0]], sign([parse_key(OLD, "a test")], ID, SECONDS, BODY))  # it has ended
    assert verifies([keys[1]], after)


@pytest.mark.parametrize(
    "header",
    ["", "v1", "v1,", "v1,!", "v2,AAAA", "v1a,AAAA", "v1," + "A" * 44, "v1a," + b64encode(b"s" * 64).decode(), "ä"],
)
def test_a_header_without_a_valid_signature_is_refused(header: str) -> None:
    keys = [parse_key(SECRET, "a test"), parse_key(PUBLIC_KEY, "a test")]

    assert not verifies(keys, header)
    assert verifies(keys, f"{header} {sign(keys, ID, SECONDS, BODY)}")


def test_only_so_many_signatures_are_looked_at() -> None:
    good = sign([parse_key(SECRET, "a test")], ID, SECONDS, BODY)

    assert verifies([parse_key(SECRET, "a test")], "v1,AAAA " * 15 + good)
    assert not verifies([parse_key(SECRET, "a test")], "v1,AAAA " * 16 + good)


def test_ids_and_times_that_could_move_bytes_have_no_form() -> None:
    assert ID_FORM.fullmatch("order%2F1%2F2%2F0")
    assert not any(ID_FORM.fullmatch(each) for each in ("a.b", "", "a b", "a" * 257, "a\n", "ä", "a/b"))
    assert TIMESTAMP_FORM.fullmatch("1614265330")
    assert not any(TIMESTAMP_FORM.fullmatch(each) for each in (" 1", "1.0", "1.", "", "-1", "1" * 13, "1\n", "\u0661"))


@pytest.mark.parametrize(
    "text",
    [
        "whsec_",
        "whsec_c2hvcnQ=",
        "whsk_c2hvcnQ=",
        "whpk_",
        "no base64!",
        PRIVATE_KEY[:-8] + "AAAAAAAA=",
        f"whsk_{b64encode(SEED + SEED).decode()}",
    ],
)
def test_an_invalid_key_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_key(text, "the test")

    assert "bus.secret" == caught.value.code
    assert (text.partition("_")[2] or f"{text}{text}") not in str(caught.value)


def test_no_text_of_a_key_shows_it() -> None:
    table = SecretTable("new", SECRET)
    (key,) = signing_keys([table], "a test")

    assert "MfKQ" not in repr(table) + repr(key) + str(key)
    with pytest.raises(UsageError):
        signing_keys([table, table], "a test")


def test_without_the_extra_a_public_key_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("cryptography.hazmat.primitives.asymmetric.ed25519")
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric.ed25519", None)
    with pytest.raises(MissingExtraError) as raised:
        parse_key(PUBLIC_KEY, "a test")

    assert "extra.jwt" == raised.value.code
