"""Keys of indexed context fields: bytes whose order is the order of the values.

Rule 1: one encoder for every store and every cursor: a database compares bytes and never parses a value.
Rule 2: a key is one byte that names the type of the value, then bytes in the order of the values of that type. Values
that are equal have equal keys: `1` and `1.0`, `-0.0` and `0`.
Rule 3: times and decimals are never indexed as text: `03:00:00.5Z` sorts before `03:00:00Z`, and `10` before `9`.
Rule 4: a key has at most `KEY_BYTES_MAX` bytes: PostgreSQL refuses rows of an index that exceed 2,704. Of a longer
value it has the first bytes and a hash, so two keys may be equal in order only up to there: a range that touches such a
key is compared with the values themselves (`conditions.KeyRange`).
Rule 5: null, a missing value, an array and an object have no key.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from hashlib import blake2b
from math import isfinite
from struct import pack, unpack
from typing import Any, Literal

from msgspec import Struct

from interlock.model.document.field import Field
from interlock.model.limits import INTEGER_BITS_MAX

IndexForm = Literal["string", "number", "boolean", "decimal", "date-time", "date", "duration"]
"""How the values of an indexed field are read. `decimal`, times and durations are strings in JSON."""

INDEX_FORMS: tuple[IndexForm, ...] = ("string", "number", "boolean", "decimal", "date-time", "date", "duration")

PLAIN_FORMS: frozenset[str] = frozenset({"string", "number", "boolean"})
"""Forms whose keys follow from the JSON value alone: a field may change from one to another without a new index."""

_FORM_OF_TYPE: dict[str, IndexForm] = {
    "string": "string",
    "integer": "number",
    "number": "number",
    "boolean": "boolean",
}
_FORM_OF_FORMAT: dict[str, IndexForm] = {
    "decimal": "decimal",
    "date-time": "date-time",
    "date": "date",
    "duration": "duration",
}

PREFIX_BYTES = 200
"""Bytes of a long value that its key has: enough to distinguish most texts, and an index row stays small."""

HASH_BYTES = 16
KEY_BYTES_MAX = 10 + PREFIX_BYTES + HASH_BYTES
"""The longest key: its type, sign and exponent of a decimal, the first bytes of the value, and a hash."""

FALSE, TRUE = b"\x08", b"\x09"
NUMBER, STRING, DECIMAL, DATE_TIME, DATE, DURATION = b"\x10", b"\x20", b"\x30", b"\x40", b"\x41", b"\x42"

_HEAD_BYTES = {STRING: 1, DECIMAL: 10}
"""Bytes of a key before the part of the value that may be cut."""

_TYPE_BYTES: dict[str, bytes] = {
    "string": STRING,
    "number": NUMBER,
    "boolean": FALSE,
    "decimal": DECIMAL,
    "date-time": DATE_TIME,
    "date": DATE,
    "duration": DURATION,
}

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
_DECIMAL_TEXT = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?")
_DATE_TEXT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_DURATION_TEXT = re.compile(
    r"(?P<sign>[+-]?)P(?:(?P<weeks>[0-9]{1,9})W)?(?:(?P<days>[0-9]{1,12})D)?"
    r"(?:T(?:(?P<hours>[0-9]{1,15})H)?(?:(?P<minutes>[0-9]{1,15})M)?"
    r"(?:(?P<seconds>[0-9]{1,15})(?:\.(?P<part>[0-9]{1,9}))?S)?)?"
)


class IndexedField(Struct, frozen=True):
    """A context field that the entities of a kind are found by."""

    kind: str
    field: str
    form: IndexForm


def form_of_field(field: Field) -> IndexForm | None:
    """Return how the values of a field are read; None for a type that has no keys."""
    form = _FORM_OF_FORMAT.get(field.format or "")
    return form if form is not None and field.type == "string" else _FORM_OF_TYPE.get(field.type)


# Keys of values


def index_key(value: Any, form: str) -> bytes | None:
    """Return the key of a JSON value of a context; None for a value without a key.

    A value that the form cannot read gets the key of its own JSON type: another revision of the chart may have
    written it. It never raises.
    """
    kind = type(value)
    if kind is str:
        key = None if form in PLAIN_FORMS else _key_of_formatted(value, form)
        return string_key(value) if key is None else key
    if kind is bool:
        return TRUE if value else FALSE
    if kind is int:
        return number_key(value) if value.bit_length() <= INTEGER_BITS_MAX else None
    if kind is float:
        return number_key(value) if isfinite(value) else None
    return None


def is_exact(key: bytes) -> bool:
    """Return whether a key has the whole value; keys of longer values have another order after their first bytes."""
    return key[:1] not in _HEAD_BYTES or len(key) <= _HEAD_BYTES[key[:1]] + PREFIX_BYTES


def type_byte(form: IndexForm) -> bytes:
    """Return the first byte of the keys of a form; of `boolean` that of false."""
    return _TYPE_BYTES[form]


def number_key(value: float) -> bytes:
    """Return the key of a number: a double in the order of its bits, then exactly what the double lost."""
    double = float(value) or 0.0  # -0.0 and 0 are one value
    bits = unpack(">Q", pack(">d", double))[0]
    bits = bits ^ (2**64 - 1) if bits >> 63 else bits | 1 << 63
    rest = int(value) - int(double) if isinstance(value, int) else 0
    size = (rest.bit_length() + 8) // 8 if rest else 0
    sign = 128 + (size if rest > 0 else -size)
    return NUMBER + pack(">Q", bits) + bytes([sign]) + (rest % (1 << 8 * size)).to_bytes(size, "big")


def string_key(value: str) -> bytes:
    """Return the key of a string: its UTF-8, which sorts by code point."""
    return STRING + _cut(value.encode("utf-8", "surrogatepass"))


def decimal_key(value: Decimal) -> bytes:
    """Return the key of a finite decimal: sign, exponent, digits."""
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int), "the decimal is finite"
    text = bytes(digits).strip(b"\0") if any(digits) else b""
    if not text:
        return DECIMAL + b"\x01"
    leading = len(digits) - len(bytes(digits).lstrip(b"\0"))
    scale = pack(">Q", exponent + len(digits) - leading + 2**63)
    if not sign:
        return DECIMAL + b"\x02" + scale + _cut(bytes(each + 1 for each in text))
    turned = bytes(255 - each for each in scale)
    return DECIMAL + b"\x00" + turned + _cut(bytes(10 - each for each in text) + b"\xff")


def _cut(data: bytes) -> bytes:
    return data if len(data) <= PREFIX_BYTES else data[:PREFIX_BYTES] + _hash(data)


def _hash(data: bytes) -> bytes:
    return blake2b(data, digest_size=HASH_BYTES).digest()


def _key_of_formatted(text: str, form: str) -> bytes | None:
    value = read_formatted(text, form)
    return None if value is None else key_of_value(value)


def key_of_value(value: Decimal | datetime | date | timedelta) -> bytes:
    """Return the key of a value that JSON has as a string."""
    if isinstance(value, Decimal):
        return decimal_key(value)
    if isinstance(value, datetime):
        return DATE_TIME + _signed((value - _EPOCH) // _MICROSECOND)
    if isinstance(value, date):
        return DATE + _signed((value - _EPOCH_DAY).days)
    return DURATION + _signed(value // _MICROSECOND)


def _signed(number: int) -> bytes:
    return pack(">Q", number + 2**63)


def read_formatted(text: str, form: str) -> Decimal | datetime | date | timedelta | None:
    """Return the value of a formatted string; None when it is not of the form."""
    try:
        match form:
            case "decimal":
                return Decimal(text) if _DECIMAL_TEXT.fullmatch(text) else None
            case "date-time":
                moment = datetime.fromisoformat(text)
                return None if moment.tzinfo is None else moment.astimezone(UTC)
            case "date":
                return date.fromisoformat(text) if _DATE_TEXT.fullmatch(text) else None
            case _:
                return _read_duration(text)
    except (ValueError, OverflowError, InvalidOperation):
        return None


def _read_duration(text: str) -> timedelta | None:
    found = _DURATION_TEXT.fullmatch(text)
    if found is None or text[-1] in "PT":
        return None
    count = {name: int(found[name] or 0) for name in ("weeks", "days", "hours", "minutes", "seconds")}
    micro = int((found["part"] or "")[:6].ljust(6, "0"))
    size = timedelta(**count, microseconds=micro)
    return -size if found["sign"] == "-" else size
