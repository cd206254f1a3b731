"""Typed fields of the context and of event payloads, and the check of values.

Rule 1: values are plain JSON: None, bool, int, float, str, list, dict with string keys.
Rule 2: `refusal` returns a sentence and never raises: the caller decides what an invalid value means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from math import isfinite
from typing import Any, Literal

from interlock.errors import NO_LOCATION, SourceLocation
from interlock.model.document.formats import Format, format_problem
from interlock.model.limits import INTEGER_BITS_MAX, STRING_LENGTH_MAX, VALUE_DEPTH_MAX, VALUES_MAX
from interlock.model.personal_token import is_token

FieldType = Literal["string", "integer", "number", "boolean", "object", "array", "any"]
FIELD_TYPES: tuple[FieldType, ...] = ("string", "integer", "number", "boolean", "object", "array", "any")

_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
}


class _Unset:
    """The absence of a value where None would be a value."""

    def __repr__(self) -> str:
        return "UNSET"

    def __bool__(self) -> bool:
        return False

    def __reduce__(self) -> str:
        return "UNSET"


UNSET = _Unset()


class _Lookups:
    """Lookups that are computed once per field, so that the time of a check depends on the value only.

    They are not fields of the dataclass: they are neither compared nor encoded.
    """

    __slots__ = ("_by_name", "_choices", "_required")
    _choices: frozenset[Any]
    _by_name: dict[str, Field]
    _required: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Field(_Lookups):
    """One field: its type, its bounds, and its first value. `index`: entities are found by it (`EntityQuery.where`).

    `personal`: its value is stored sealed (`personal_token`), so a token is valid in place of a value.
    """

    name: str
    type: FieldType = "any"
    default: Any = UNSET
    required: bool = False
    nullable: bool = False
    enum: tuple[Any, ...] | None = None
    min: float | None = None
    max: float | None = None
    length_max: int | None = None
    format: Format | None = None
    items: Field | None = None
    fields: tuple[Field, ...] | None = None
    index: bool = field(default=False, metadata={"hashed": False})
    personal: bool = field(default=False, metadata={"hashed": False, "hashed_if_set": True})
    description: str | None = None
    location: SourceLocation = field(default=NO_LOCATION, compare=False)

    @property
    def accepts_any(self) -> bool:
        """Whether every JSON value is valid: the field has the type `any` and no bounds."""
        return self.type == "any" and self.enum is None and self.min is None and self.max is None

    @property
    def choices(self) -> frozenset[Any]:
        """The values of `enum` in a hashable form."""
        try:
            return self._choices
        except AttributeError:
            found = frozenset(_hashable(each) for each in self.enum or ())
            object.__setattr__(self, "_choices", found)
            return found

    @property
    def fields_by_name(self) -> dict[str, Field]:
        """The fields of an object by name."""
        try:
            return self._by_name
        except AttributeError:
            found = {each.name: each for each in self.fields or ()}
            object.__setattr__(self, "_by_name", found)
            return found

    @property
    def required_names(self) -> tuple[str, ...]:
        """The names of the required fields of an object."""
        try:
            return self._required
        except AttributeError:
            found = tuple(each.name for each in self.fields or () if each.required)
            object.__setattr__(self, "_required", found)
            return found


Charge = Callable[[int], object]
"""Counts units of work (see `limits.WORK_MAX`), and raises when the step exceeds its limit."""

CHECK_WORK = 8
"""Units of work for checking one value inside an array or object."""

LISTED_MAX = 20
"""Names or values that a message lists. A thousand errors of one step may contain the same list."""

_SHORT = 80
_UNIFORM: dict[str, frozenset[type]] = {
    "string": frozenset({str}),
    "integer": frozenset({int}),
    "boolean": frozenset({bool}),
}
"""Types of items that need no check one by one."""


def field_problem(value: Any, spec: Field, path: str = "", charge: Charge | None = None) -> str | None:
    """Why the value is invalid for the field, as a sentence without the value itself; None if it is valid.

    The time depends on the value only, not on the length of the field's own lists. `charge` is called with the work.
    """
    name = path or spec.name
    if value is None:
        return None if spec.nullable or spec.type == "any" else f"`{name}` must be {_article(spec.type)}, not null"
    if spec.personal and is_token(value):
        return None
    if spec.type != "any":
        types = _PYTHON_TYPES[spec.type]
        if not isinstance(value, types) or (type(value) is bool and spec.type != "boolean"):
            return f"`{name}` must be {_article(spec.type)}, not {type_name(value)}"
    if type(value) is float and not isfinite(value):
        return f"`{name}` must be finite"
    return _bounds_problem(value, spec, name) or _inner_problem(value, spec, name, charge)


def _bounds_problem(value: Any, spec: Field, name: str) -> str | None:
    if spec.enum is not None and not _is_choice(value, spec):
        return f"`{name}` must be one of {_list_texts(map(repr, spec.enum[:LISTED_MAX]), len(spec.enum))}"
    if spec.min is not None or spec.max is not None:
        if type(value) is bool or not isinstance(value, int | float):
            return f"`{name}` has bounds and must be a number, not {type_name(value)}"
        if spec.min is not None and value < spec.min:
            return f"`{name}` must be at least {spec.min}"
        if spec.max is not None and value > spec.max:
            return f"`{name}` must be at most {spec.max}"
    if spec.length_max is not None and isinstance(value, str | list) and len(value) > spec.length_max:
        return f"`{name}` must not be longer than {spec.length_max}"
    if spec.format is not None and isinstance(value, str):
        expected = format_problem(value, spec.format)
        if expected is not None:
            return f"`{name}` must be {expected} (format `{spec.format}`)"
    return None


def _list_texts(texts: Iterable[str], count: int) -> str:
    """The first texts as a list, and the number of the rest."""
    more = f" and {count - LISTED_MAX:,} more" if count > LISTED_MAX else ""
    return ", ".join(texts) + more


def _is_choice(value: Any, spec: Field) -> bool:
    try:
        return _hashable(value) in spec.choices
    except TypeError:  # not plain JSON, which a program may pass
        return False


def _hashable(value: Any) -> Any:
    """The value in a hashable form; two such forms are equal if `same_value` is true."""
    return (type(value) is bool, _freeze(value))


def _freeze(value: Any) -> Any:
    if type(value) is dict:
        return frozenset((key, _freeze(each)) for key, each in value.items())
    return tuple(map(_freeze, value)) if type(value) is list else value


def _inner_problem(value: Any, spec: Field, name: str, charge: Charge | None) -> str | None:
    if spec.items is not None and isinstance(value, list):
        return _items_problem(value, spec.items, name, charge)
    if spec.fields is not None and isinstance(value, dict):
        if charge is not None:
            charge(CHECK_WORK * len(value))
        return _object_problem(value, spec.fields_by_name, spec.required_names, f"{name}.", charge)
    return None


def _items_problem(value: list[Any], spec: Field, name: str, charge: Charge | None) -> str | None:
    types = _UNIFORM.get(spec.type)
    bounds = (spec.enum, spec.min, spec.max, spec.length_max, spec.format)
    if types is not None and bounds == (None,) * 5 and types.issuperset(map(type, value)):
        return None
    if charge is not None:
        charge(CHECK_WORK * len(value))
    for index, each in enumerate(value):
        problem = field_problem(each, spec, f"{name}[{index}]", charge)
        if problem is not None:
            return problem
    return None


def fields_problem(value: dict[str, Any], fields: tuple[Field, ...], prefix: str = "") -> str | None:
    """Why the value is invalid for a mapping of these fields; None if it is valid."""
    required = tuple(each.name for each in fields if each.required)
    return _object_problem(value, {each.name: each for each in fields}, required, prefix, None)


def complete_payload(data: Any, fields: tuple[Field, ...]) -> tuple[Any, str | None]:
    """Return the payload with its defaults, and the problem if it does not fit the fields."""
    if data is None:
        data = {}
    if type(data) is not dict:
        return data, "the payload must be an object"
    defaults = {each.name: each.default for each in fields if each.name not in data and each.default is not UNSET}
    if defaults:
        data = {**data, **defaults}
    return data, fields_problem(data, fields)


def _object_problem(
    value: dict[str, Any], known: dict[str, Field], required: tuple[str, ...], prefix: str, charge: Charge | None
) -> str | None:
    """The first problem: unknown names first, then in the order of the fields. Each value is checked once."""
    problems: dict[str, str] = {}
    for key, each in value.items():
        spec = known.get(key)
        if spec is None:
            names = _list_texts(islice(known, LISTED_MAX), len(known)) or "none"
            return f"unknown field `{prefix}{str(key)[:_SHORT]}`; the fields are {names}"
        problem = field_problem(each, spec, f"{prefix}{key}", charge)
        if problem is not None:
            problems[key] = problem
    missing = next((name for name in required if name not in value), None)
    if missing is not None:
        problems[missing] = f"`{prefix}{missing}` is missing"
    return next((problems[name] for name in known if name in problems), None) if problems else None


def field_at(declared: dict[str, Field], path: str) -> Field | None:
    """The field that a dotted path leads to, if the declared types define it; otherwise None."""
    first, *rest = path.split(".")
    field = declared.get(first)
    for name in rest:
        if field is None:
            return None
        if field.items is not None and name.isdecimal():
            field = field.items
        else:
            field = next((each for each in field.fields or () if each.name == name), None)
    return field


def same_value(left: Any, right: Any) -> bool:
    """Whether two JSON values are equal; True is not equal to 1."""
    return bool(left == right) and (type(left) is bool) == (type(right) is bool)


def json_problem(value: Any, *, depth_max: int = VALUE_DEPTH_MAX) -> str | None:
    """Why a value is not plain JSON within the limits; None if it is. Walks level by level, without recursion.

    `depth_max` is the number of levels of mappings and lists that it may have.
    """
    count, depth, level = 1, 0, [value]
    while level:
        inner: list[Any] = []
        for each in level:
            kind = type(each)
            if kind is dict or kind is list:
                count += len(each)
                if depth >= depth_max:
                    return f"a value is nested more than {depth_max} levels deep"
                if count > VALUES_MAX:
                    return f"a value contains more than {VALUES_MAX:,} values"
                if kind is list:
                    inner += each
                    continue
                for key in each:
                    if type(key) is not str:
                        return "the keys of a mapping must be strings"
                    if not (key.isascii() or is_text(key)):
                        return LONE_SURROGATE
                inner += each.values()
            elif (problem := scalar_problem(each, kind)) is not None:
                return problem
        level = inner
        depth += 1
    return None


def copy_json(value: Any) -> Any:
    """A copy that shares nothing mutable with the value, which must be plain JSON."""
    if type(value) is dict:
        return {key: copy_json(each) for key, each in value.items()}
    return [copy_json(each) for each in value] if type(value) is list else value


def scalar_problem(value: Any, kind: type) -> str | None:
    """Why a value without parts is not plain JSON within the limits; None if it is."""
    if kind is str:
        if len(value) > STRING_LENGTH_MAX:
            return f"a string has more than {STRING_LENGTH_MAX:,} characters"
        return None if value.isascii() or is_text(value) else LONE_SURROGATE
    if kind is int:
        if value.bit_length() > INTEGER_BITS_MAX:
            return f"an integer has more than {INTEGER_BITS_MAX} bits"
        return None
    if value is None or kind is bool:
        return None
    if kind is float:
        return None if isfinite(value) else "a number must be finite"
    return f"{kind.__name__} is not a plain JSON value"


LONE_SURROGATE = "a string contains a lone surrogate"
"""The problem of a string for which `is_text` is false."""


def is_text(value: str) -> bool:
    """Whether a string can be encoded as UTF-8: a lone surrogate, which Python accepts, cannot."""
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def type_name(value: Any) -> str:
    """The type of a JSON value, as messages name it."""
    if value is None:
        return "null"
    names = {
        bool: "a boolean",
        int: "an integer",
        float: "a number",
        str: "a string",
        list: "an array",
        dict: "an object",
    }
    return names.get(type(value), type(value).__name__)


def _article(name: str) -> str:
    return f"an {name}" if name[0] in "aeiou" else f"a {name}"
