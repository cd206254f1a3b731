"""Python values as JSON and back: the one form in which payloads, contexts and results are stored.

| Python | JSON |
|---|---|
| `datetime` with a zone | UTC, `2026-11-14T12:00:00Z`; microseconds only if there are any |
| `date`, `time`, `UUID` | ISO 8601; a UUID in lower case |
| `Decimal` | a string of plain digits: `"1000"`, never `"1E+3"` |
| `timedelta` | ISO 8601 in seconds: `PT3601.5S` |
| `bytes` | base64 |
| `Enum` | its value |
| tuple, other sequences and mappings | array, object |
| dataclass, msgspec Struct, pydantic model | an object of its fields |

Rule 1: a value has one form, the same in every process. What has none is refused: NaN, sets (their order differs from
process to process), a `datetime` without a zone. A value that is plain JSON stays as it is.
Rule 2: an error names the path, the type and the fix, and never the value.
Rule 3: no model library is imported. A model is recognised by what its library adds to a class.
"""

from __future__ import annotations

import base64
import dataclasses
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from math import isfinite
from typing import (
    Any,
    ClassVar,
    Literal,
    Protocol,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from interlock.errors import UsageError
from interlock.model.document.field import scalar_problem
from interlock.model.limits import VALUE_DEPTH_MAX, VALUES_MAX

T = TypeVar("T")

_PATH_LENGTH_MAX = 120


class DataclassLike(Protocol):
    """A dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


class StructLike(Protocol):
    """A msgspec Struct."""

    __struct_fields__: ClassVar[tuple[str, ...]]


class PydanticLike(Protocol):
    """A pydantic model."""

    def model_dump(self, *, mode: Literal["json"]) -> Any: ...


Model: TypeAlias = DataclassLike | StructLike | PydanticLike
"""An instance of a model. A TypedDict is a mapping, and has no type at run time."""


class _Unconvertible(Exception):
    """A value without a JSON form: its path, the problem, and the fix."""

    def __init__(self, problem: str, hint: str) -> None:
        super().__init__(problem)
        self.problem, self.hint = problem, hint


def to_json(value: Any, *, what: str, code: str) -> Any:
    """Return the JSON form of a value. The result shares nothing mutable with it, unless the value is plain JSON.

    Raises UsageError with this code; `what` names the whole value in its message: `the payload of ...`.

        >>> to_json({"price": Decimal("1E+3"), "open": timedelta(hours=1)}, what="the payload", code="event.payload")
        {'price': '1000', 'open': 'PT3600S'}
    """
    try:
        return _Writer().json(value, "", 0)
    except _Unconvertible as error:
        raise UsageError(f"{what} is invalid: {error.problem}", code=code, hint=error.hint) from None


class _Writer:
    """Converts one value, within the limits of a payload."""

    def __init__(self) -> None:
        self.count = 0

    def json(self, value: Any, path: str, depth: int) -> Any:
        self.count += 1
        if self.count > VALUES_MAX:
            raise _Unconvertible(f"it contains more than {VALUES_MAX:,} values", "send fewer values, or a reference")
        kind = type(value)
        if value is None or kind is bool:
            return value
        if kind is str or kind is int:
            return _checked(value, path)
        if kind is float:
            return _finite(value, path)
        scalar = _scalar(value, path)
        if scalar is not _NO_SCALAR:
            return scalar
        if depth >= VALUE_DEPTH_MAX:
            hint = "send a flatter value; a value that contains itself cannot be sent"
            raise _Unconvertible(f"{_name(path)} is nested more than {VALUE_DEPTH_MAX} levels deep", hint)
        fields = model_values(value)
        if fields is not None:
            return {name: self.json(each, _inside(path, name), depth + 1) for name, each in fields}
        if isinstance(value, Mapping):
            return {_key(name, path): self.json(each, _inside(path, name), depth + 1) for name, each in value.items()}
        if isinstance(value, Sequence):
            return [self.json(each, f"{path}[{index}]", depth + 1) for index, each in enumerate(value)]
        raise _unknown_type(value, path)


_NO_SCALAR = object()


def _scalar(value: Any, path: str) -> Any:
    """Return the JSON form of a value without parts, or `_NO_SCALAR`."""
    match value:
        case Enum():  # before str and int, from which many enums inherit
            inner = value.value
            if inner is None or type(inner) in (str, int, bool):
                return _checked(inner, path)
            if type(inner) is float:
                return _finite(inner, path)
            hint = "use an enum whose values are strings or numbers"
            raise _Unconvertible(f"{_name(path)} is an enum whose value is a `{type(inner).__name__}`", hint)
        case str():
            return _checked(str.__str__(value), path)
        case int():
            return _checked(int(value), path)
        case float():
            return _finite(float(value), path)
        case datetime():
            return datetime_text(value, path)
        case date():
            return value.isoformat()
        case time():
            if value.tzinfo is not None:
                hint = "send a datetime, or a time without a zone"
                raise _Unconvertible(f"{_name(path)} is a time with a zone, which has no meaning without a date", hint)
            return value.isoformat()
        case timedelta():
            return duration_text(value)
        case Decimal():
            if not value.is_finite():
                raise _Unconvertible(f"{_name(path)} is a Decimal that is not finite", "send a finite number")
            return decimal_text(value)
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(value).decode()
        case _:
            return str(value) if _is_uuid(value) else _NO_SCALAR


def _is_uuid(value: object) -> bool:
    """Whether a value is a UUID. The module `uuid` is not imported, because it reads clocks and makes numbers."""
    return any(each.__module__ == "uuid" and each.__name__ == "UUID" for each in type(value).__mro__)


def _checked(value: Any, path: str) -> Any:
    problem = scalar_problem(value, type(value))
    if problem is not None:
        raise _Unconvertible(f"{_name(path)}: {problem}", "send a shorter value, or text that is valid UTF-8")
    return value


def _finite(value: float, path: str) -> float:
    if not isfinite(value):
        what = "NaN" if value != value else "infinite"  # noqa: PLR0124  # only NaN differs from itself
        raise _Unconvertible(f"{_name(path)} is a float that is {what}", "send a finite number, or null")
    return value


def datetime_text(value: datetime, path: str = "") -> str:
    """Return a time with a zone in UTC."""
    if value.utcoffset() is None:
        hint = "add its zone, such as datetime.now(UTC) or value.replace(tzinfo=UTC)"
        raise _Unconvertible(f"{_name(path)} is a datetime without a zone", hint)
    try:
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    except OverflowError:
        message = f"{_name(path)} is a datetime outside of the years 1 to 9999 in UTC"
        raise _Unconvertible(message, "send a time within those years") from None


def decimal_text(value: Decimal) -> str:
    """Return a decimal number as plain digits, without an exponent; zero has no sign.

    >>> [decimal_text(Decimal(text)) for text in ("1E+3", "19.90", "-0")]
    ['1000', '19.90', '0']
    """
    return format(value or abs(value), "f")


def duration_text(value: timedelta) -> str:
    """Return a duration in seconds as ISO 8601.

    >>> [duration_text(each) for each in (timedelta(hours=1, milliseconds=500), timedelta(), timedelta(seconds=-2))]
    ['PT3600.5S', 'PT0S', '-PT2S']
    """
    seconds, rest = divmod(abs(value // timedelta(microseconds=1)), 1_000_000)
    part = f".{rest:06}".rstrip("0") if rest else ""
    return f"{'-' if value < timedelta() else ''}PT{seconds}{part}S"


def _key(name: Any, path: str) -> str:
    if isinstance(name, Enum) and isinstance(name.value, str):
        name = name.value
    if not isinstance(name, str):
        hint = "use strings as keys, such as str(key)"
        raise _Unconvertible(f"{_name(path)} has a key of type `{type(name).__name__}`", hint)
    return str(_checked(str.__str__(name), path))


def _unknown_type(value: Any, path: str) -> _Unconvertible:
    if isinstance(value, AbstractSet):
        message = f"{_name(path)} is a `{type(value).__name__}`, whose order differs from process to process"
        return _Unconvertible(message, "send a sorted list: sorted(value)")
    if isinstance(value, type):
        return _Unconvertible(f"{_name(path)} is the class `{value.__name__}`", "send an instance of it")
    if isinstance(value, Iterator):
        return _Unconvertible(f"{_name(path)} is an iterator", "send a list: list(value)")
    if hasattr(value, "__await__"):
        return _Unconvertible(f"{_name(path)} is a coroutine", "await it, and send its result")
    types_known = "datetime, date, Decimal, UUID, Enum, timedelta, bytes, a dataclass or a model"
    message = f"{_name(path)} is a `{type(value).__name__}`, which has no JSON form"
    return _Unconvertible(message, f"send plain JSON, {types_known}")


def _name(path: str) -> str:
    shown = path if len(path) <= _PATH_LENGTH_MAX else path[: _PATH_LENGTH_MAX - 1] + "…"
    return f"`{shown}`" if path else "the value"


def _inside(path: str, name: Any) -> str:
    text = str(name)[:80]
    return f"{path}.{text}" if path else text


# Models


def is_model(value: Any) -> bool:
    """Whether a value is an instance of a dataclass, a msgspec Struct or a pydantic model."""
    return not isinstance(value, type) and is_model_class(type(value))


def is_model_class(cls: Any) -> bool:
    """Whether a class is a dataclass, a msgspec Struct or a pydantic model."""
    return isinstance(cls, type) and (
        dataclasses.is_dataclass(cls) or hasattr(cls, "__struct_fields__") or is_pydantic_class(cls)
    )


def is_pydantic_class(cls: Any) -> bool:
    """Whether a class is a pydantic model, of version 2."""
    return isinstance(cls, type) and hasattr(cls, "model_fields") and callable(getattr(cls, "model_validate", None))


def is_typed_dict(cls: Any) -> bool:
    """Whether a class is a TypedDict."""
    return isinstance(cls, type) and issubclass(cls, dict) and hasattr(cls, "__total__")


def model_values(value: Any) -> list[tuple[str, Any]] | None:
    """Return the fields of a model by the names that they have in JSON; None for any other value."""
    if isinstance(value, type):
        return None
    cls = type(value)
    if is_pydantic_class(cls):  # in Python mode: its own JSON mode has other forms of Decimal, bytes and times
        return list(value.model_dump(mode="python", by_alias=True).items())
    struct_names = getattr(cls, "__struct_fields__", None)
    if struct_names is not None:
        pairs = zip(struct_names, cls.__struct_encode_fields__, strict=True)
        found = [(written, getattr(value, name)) for name, written in pairs]
        tag = cls.__struct_config__.tag
        shown = [(name, each) for name, each in found if each is not msgspec.UNSET]
        return shown if tag is None else [(cls.__struct_config__.tag_field, tag), *shown]
    if dataclasses.is_dataclass(cls):
        return [(each.name, getattr(value, each.name)) for each in dataclasses.fields(value)]
    return None


# Back


def from_json(value: Any, cls: Callable[..., T] | type[T], *, what: str, code: str) -> T:
    """Return a value of a type from its JSON form: a model, or a type of the table above.

    Raises UsageError with this code when the JSON does not fit the type; the message names the path.

        >>> from_json({"price": "19.90"}, dict[str, Decimal], what="the context", code="context.model")
        {'price': Decimal('19.90')}
    """
    try:
        found: T = _read(value, cls)
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        text = _problem_text(error)
        hint = "make the model and the chart agree; `interlock.load(..., context=..., models=...)` compares them"
        name = getattr(cls, "__name__", str(cls))
        raise UsageError(f"{what} does not fit `{name}`: {text}", code=code, hint=hint) from error
    return found


def _problem_text(error: Exception) -> str:
    """Return what does not fit, and where; pydantic's own text would quote the value."""
    listed = getattr(error, "errors", None)
    if callable(listed):
        found = (f"`{'.'.join(str(part) for part in each['loc'])}`: {each['msg']}" for each in listed()[:3])
        return "; ".join(found)[:300]
    return str(error).replace(" - at `$.", " at `").replace(" - at `$", " at `")[:300]


def _read(value: Any, cls: Any) -> Any:
    if is_pydantic_class(cls):
        return cls.model_validate(_with_bytes(value, cls))
    return msgspec.convert(value, cls, dec_hook=_decode_hook, strict=True)


def _decode_hook(cls: type, value: Any) -> Any:
    """Convert what msgspec does not know: a pydantic model inside another model. msgspec adds the place to an error."""
    if is_pydantic_class(cls):
        return _read(value, cls)
    raise TypeError(f"the type `{cls.__name__}` has no JSON form")


def _with_bytes(value: Any, annotation: Any) -> Any:
    """Decode the base64 of fields of type bytes, which pydantic would take for text."""
    if not _has_bytes(annotation):
        return value
    if annotation is bytes:
        return base64.b64decode(value, validate=True) if isinstance(value, str) else value
    if is_pydantic_class(annotation):
        if not isinstance(value, dict):
            return value
        hints = _field_types(annotation)
        return {name: _with_bytes(each, hints.get(name, Any)) for name, each in value.items()}
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        found = next((each for each in inner if _has_bytes(each)), None)
        return value if value is None else _with_bytes(value, found)
    if isinstance(value, list) and inner:
        return [_with_bytes(each, inner[min(index, len(inner) - 1)]) for index, each in enumerate(value)]
    if isinstance(value, dict) and len(inner) == 2:  # the types of key and value
        return {name: _with_bytes(each, inner[1]) for name, each in value.items()}
    return value


@lru_cache(maxsize=1024)
def _field_types(cls: Any) -> dict[str, Any]:
    """Return the types of a pydantic model's fields, by name and by alias."""
    found: dict[str, Any] = {}
    for name, each in cls.model_fields.items():
        found[name] = each.annotation
        if each.alias is not None:
            found[each.alias] = each.annotation
    return found


def _has_bytes(annotation: Any, seen: tuple[Any, ...] = ()) -> bool:
    if annotation is bytes:
        return True
    if any(annotation is each for each in seen):
        return False
    if is_pydantic_class(annotation):
        return any(_has_bytes(each, (*seen, annotation)) for each in _field_types(annotation).values())
    return any(_has_bytes(each, seen) for each in get_args(annotation))


def type_hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of a function, evaluated; those that cannot be evaluated are left out."""
    try:
        return get_type_hints(function)
    except (NameError, TypeError, AttributeError, SyntaxError):
        return {}
