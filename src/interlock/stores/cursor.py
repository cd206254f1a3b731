"""Cursors of lists: where a page ended, as an opaque text that a client hands back."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Annotated

import msgspec

from interlock.errors import UsageError

Milliseconds = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""What a database can compare with."""


def encode_cursor(entered_ms: int, entity: str) -> str:
    """The cursor behind this row."""
    return urlsafe_b64encode(msgspec.json.encode((entered_ms, entity))).decode().rstrip("=")


def decode_cursor(text: str) -> tuple[int, str]:
    """The row a cursor stands behind. Raises UsageError when the text is no cursor."""
    try:
        return msgspec.json.decode(urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=tuple[Milliseconds, str])
    except (ValueError, msgspec.MsgspecError) as error:
        raise UsageError(
            "this is not a cursor of a list", code="cursor.malformed", hint="take it from the last page"
        ) from error
