"""Changes of typed fields, in the context and in payloads.

Rule 1: a field is wider than another if it accepts every value that the other accepts.
Rule 2: the default and `required` say how a field gets its first value, not which values are valid; they are compared
        apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from interlock.evolve.changes import Change
from interlock.model.document.document import EventType
from interlock.model.document.field import UNSET, Field, field_problem, same_value


def accepts(new: Field, old: Field) -> bool:
    """Return whether a field accepts every value that another one accepts."""
    if old.nullable and not new.nullable and new.type != "any":
        return False
    if old.enum is not None:
        return all(field_problem(value, new) is None for value in old.enum)
    if new.enum is not None or not (new.type in ("any", old.type) or (new.type, old.type) == ("number", "integer")):
        return False
    low = new.min is None or (old.min is not None and old.min >= new.min)
    high = new.max is None or (old.max is not None and old.max <= new.max)
    length = new.length_max is None or (old.length_max is not None and old.length_max <= new.length_max)
    written = new.format in (None, old.format)
    items = new.items is None or (old.items is not None and accepts(new.items, old.items))
    return low and high and length and written and items and _accepts_fields(new, old)


def _accepts_fields(new: Field, old: Field) -> bool:
    if new.fields is None:
        return True
    if old.fields is None:
        return False
    if any(
        each.name not in new.fields_by_name or not accepts(new.fields_by_name[each.name], each) for each in old.fields
    ):
        return False
    return all(name in old.required_names for name in new.required_names)


def field_changes(old: Field, new: Field) -> Iterator[Change]:
    """Yield the changes of a field of the context."""
    yield from _shape_changes(old, new, "field")
    yield from personal_changes(old, new, "field")
    if not _same_default(old, new):
        yield Change(code="field.default", subject=new.name)
    if old.required != new.required:
        yield Change(code="field.creation", subject=new.name, detail="required" if new.required else "optional")


def payload_changes(old: EventType, new: EventType) -> Iterator[Change]:
    """Yield the changes of an event's payload, which has exactly the declared fields."""
    name = new.name
    if old.payload is None or new.payload is None:
        if old.payload is not None:
            yield Change(code="payload.widened", subject=name, detail="any payload")
        elif new.payload is not None:
            yield Change(code="payload.narrowed", subject=name, detail="exactly the declared fields")
        return
    before, after = {each.name: each for each in old.payload}, {each.name: each for each in new.payload}
    for key, field in before.items():
        subject = f"{name}: {key}"
        if key not in after:
            yield Change(code="payload.removed", subject=subject)
            continue
        yield from _shape_changes(field, after[key], "payload", subject)
        yield from personal_changes(field, after[key], "payload", subject)
        if field.required != after[key].required:
            yield Change(code="payload.required" if after[key].required else "payload.widened", subject=subject)
        elif not _same_default(field, after[key]):
            yield Change(code="payload.default", subject=subject)
    for key in (each for each in after if each not in before):
        code = "payload.required" if after[key].required else "payload.added"
        yield Change(code=code, subject=f"{name}: {key}")


def personal_changes(old: Field, new: Field, what: str, subject: str | None = None) -> Iterator[Change]:
    """Yield that a field, or a part that both have, is sealed now or no longer is."""
    before, after = (dict(_personal_parts(each)) for each in (old, new))
    both = before.keys() & after.keys()
    if any(before[path] and not after[path] for path in both):
        yield Change(code=f"{what}.declassified", subject=subject or new.name)
    elif any(after[path] and not before[path] for path in both):
        yield Change(code=f"{what}.personal", subject=subject or new.name)


def _personal_parts(field: Field, path: str = "", *, sealed: bool = False) -> Iterator[tuple[str, bool]]:
    """The path of a field and of each part of it, and whether its value is sealed."""
    sealed = sealed or field.personal
    yield path, sealed
    for each in field.fields or ():
        yield from _personal_parts(each, f"{path}.{each.name}", sealed=sealed)


def _shape_changes(old: Field, new: Field, what: str, subject: str | None = None) -> Iterator[Change]:
    if _shape(old) != _shape(new):
        code = "widened" if accepts(new, old) else "narrowed"
        yield Change(code=f"{what}.{code}", subject=subject or new.name)


def _shape(field: Field) -> Field:
    """A field without what does not decide which values are valid."""
    return replace(
        field,
        default=UNSET,
        required=False,
        index=False,
        personal=False,
        description=None,
        items=None if field.items is None else _shape(field.items),
        fields=None if field.fields is None else tuple(sorted(map(_part, field.fields), key=lambda each: each.name)),
    )


def _part(field: Field) -> Field:
    """The shape of a field in an object, where `required` does decide."""
    return replace(_shape(field), required=field.required)


def _same_default(old: Field, new: Field) -> bool:
    if UNSET in (old.default, new.default):
        return old.default is new.default
    return same_value(old.default, new.default) and type(old.default) is type(new.default)
