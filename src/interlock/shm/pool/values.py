"""Payloads, results and errors as bytes between the processes of a pool.

Rule 1: the first byte is the type: bytes as they are, other plain values as MessagePack, errors as their class, message
and traceback.
Rule 2: decoding never runs code.
"""

from __future__ import annotations

import traceback
from typing import Any

import msgspec

from interlock.errors import (
    ConflictError,
    CorruptionError,
    DeniedError,
    InterlockError,
    InternalError,
    MissingExtraError,
    NotFoundError,
    RejectedError,
    UnavailableError,
    UsageError,
)

RAW, PLAIN, ERROR = b"\0", b"\1", b"\2"
RESULT_BYTES_MIN = 1024
"""Enough for the message of an error."""

MESSAGE_CHARACTERS_MAX = 300
_ERRORS: dict[str, type[InterlockError]] = {
    each.__name__: each
    for each in (
        ConflictError,
        CorruptionError,
        DeniedError,
        InternalError,
        MissingExtraError,
        NotFoundError,
        RejectedError,
        UnavailableError,
        UsageError,
    )
}
"""The classes that an error of a handler keeps; every other becomes RejectedError."""


def encode_value(value: object) -> bytes:
    """Return a payload or result as bytes. Raises UsageError unless it is bytes or plain data."""
    if isinstance(value, bytes | bytearray | memoryview):
        return RAW + bytes(value)
    try:
        return PLAIN + msgspec.msgpack.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise UsageError(
            f"cannot send a {type(value).__name__} to another process: {error}",
            code="pool.value",
            hint="use bytes, None, numbers, strings, lists and dicts of them",
        ) from None


def decode_value(data: bytes) -> Any:
    """Return the value that was encoded; a dataclass is returned as a dict."""
    if data[:1] == RAW:
        return data[1:]
    if data[:1] != PLAIN:
        raise _corrupt_error()
    try:
        return msgspec.msgpack.decode(data[1:])
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise _corrupt_error() from None


def encode_error(error: BaseException, bytes_max: int) -> bytes:
    """Return an exception of a handler as bytes, with as much of its traceback as fits."""
    known = error if isinstance(error, InterlockError) else None
    fields = {
        "class": "" if known is None else type(known).__name__,
        "message": f"{type(error).__qualname__}: {_text(error)}" if known is None else str(known.message),
        "code": "" if known is None else known.code,
        "hint": None if known is None else known.hint,
        "trace": "".join(traceback.format_exception(error)),
    }
    # A lone surrogate, as in the name of a file that is not UTF-8, cannot be encoded.
    fields = {name: text and str(text).encode(errors="backslashreplace").decode() for name, text in fields.items()}
    data = ERROR + msgspec.msgpack.encode(fields)
    if len(data) > bytes_max:
        fields["message"] = str(fields["message"])[:MESSAGE_CHARACTERS_MAX]
        fields["hint"] = str(fields["hint"])[:MESSAGE_CHARACTERS_MAX] if fields["hint"] else None
        left = bytes_max - len(msgspec.msgpack.encode({**fields, "trace": ""})) - 16
        fields["trace"] = str(fields["trace"]).encode()[-max(0, left) :].decode(errors="ignore") if left > 0 else ""
        data = ERROR + msgspec.msgpack.encode(fields)
    if len(data) > bytes_max:  # a message of characters of four bytes each
        data = ERROR + msgspec.msgpack.encode({"class": "", "message": "the error is too long to send", "code": ""})
    return data


def decode_error(data: bytes) -> InterlockError:
    """Return the error of a task, in its class if it is one of Interlock's, else RejectedError (`task.failed`)."""
    try:
        fields = msgspec.msgpack.decode(data[1:], type=dict[str, str | None])
    except (msgspec.DecodeError, ValueError):
        fields = {}
    if data[:1] != ERROR or not fields.get("message"):
        return _corrupt_error()
    error_class = _ERRORS.get(fields.get("class") or "", RejectedError)
    error = error_class(
        str(fields["message"]), code=fields.get("code") or "task.failed", hint=fields.get("hint") or None
    )
    if fields.get("trace"):
        error.add_note(f"In the worker:\n{fields['trace']}")
    return error


def poisoned_error(claims: int) -> UnavailableError:
    """Return the error of a task whose workers ended too often."""
    return UnavailableError(
        f"the task was abandoned: {claims} workers died while running it",
        code="task.poisoned",
        hint="look for a crash or an out-of-memory kill in its handler; it may have run in part",
    )


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - if its text fails, its class is still reported
        return "(no text)"


def _corrupt_error() -> CorruptionError:
    return CorruptionError("the bytes of a task are corrupt", code="pool.bytes", hint="other code writes to the region")
