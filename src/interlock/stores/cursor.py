"""Cursors of lists: the end of a page, as an opaque text that a client passes back."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Annotated

import msgspec

from interlock.errors import UsageError
from interlock.model.encoding.codec import UNDECODABLE

Milliseconds = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""A time that a database can compare with."""


def encode_cursor(entered_ms: int, entity: str) -> str:
    """Return the cursor after this row."""
    return urlsafe_b64encode(msgspec.json.encode((entered_ms, entity))).decode().rstrip("=")


def decode_cursor(text: str) -> tuple[int, str]:
    """Return the position that a cursor encodes. Raises UsageError (`cursor.malformed`) for an invalid one."""
    try:
        return msgspec.json.decode(urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=tuple[Milliseconds, str])
    except (ValueError, *UNDECODABLE) as error:
        raise invalid_cursor() from error


def invalid_cursor() -> UsageError:
    """Return the error for text that is not a cursor."""
    hint = "pass the cursor of the previous page unchanged"
    return UsageError("invalid list cursor", code="cursor.malformed", hint=hint)


def encode_field_cursor(field: str, value: bytes, entity: str) -> str:
    """Return the cursor after this row of a list by a field, in the order of its keys."""
    return urlsafe_b64encode(msgspec.json.encode((field, value, entity))).decode().rstrip("=")


def decode_field_cursor(text: str) -> tuple[str, bytes, str]:
    """Return the field and the position that a cursor encodes. Raises UsageError (`cursor.malformed`)."""
    try:
        return msgspec.json.decode(urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=tuple[str, bytes, str])
    except (ValueError, *UNDECODABLE) as error:
        raise invalid_cursor() from error
