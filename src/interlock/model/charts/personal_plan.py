"""What of a chart is personal: the fields that are sealed where data enters, computed once when the chart is loaded.

Rule 1: a value is sealed as a whole at the outermost field that is marked. Fields inside a marked object are not
sealed again, and an array is marked itself, not its items.
Rule 2: null is not sealed, so that `== null` shows whether there is a value.
Rule 3: a chart without personal data has no plan, and costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from interlock.errors import RejectedError
from interlock.model.charts.chart import Chart
from interlock.model.document.field import Field, field_problem
from interlock.model.personal_token import is_token

ResultFields = tuple[str, ...] | Literal[True]
"""The personal fields of a handler's result, or True for the whole result."""

SealValue = Callable[[Any], Any]
"""Returns the token of a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonalPlan:
    """The personal fields of a chart: of its context, of the payloads of its events, and of results of its invokes.

    Fields that only contain a personal field are listed too.
    """

    context: Mapping[str, Field]
    payloads: Mapping[str, Mapping[str, Field]]
    results: Mapping[str, ResultFields]


def is_personal(field: Field) -> bool:
    """Whether a field is personal or contains a personal field."""
    return field.personal or any(map(is_personal, field.fields or ()))


def plan_of(chart: Chart) -> PersonalPlan | None:
    """Return what of a chart is personal; None if nothing is."""
    context = _marked(field for state in chart.states for field in state.context)
    events = ((each.name, _marked(each.payload or ())) for each in chart.events or () if each.direction != "out")
    payloads = {name: fields for name, fields in events if fields}
    invokes = (each for state in chart.states for each in state.invokes)
    results = {str(each.id): each.personal for each in invokes if each.personal is not None}
    if not (context or payloads or results):
        return None
    return PersonalPlan(context=context, payloads=payloads, results=results)


def _marked(fields: Iterable[Field]) -> dict[str, Field]:
    return {each.name: each for each in fields if is_personal(each)}


def seal_fields(data: Any, fields: Mapping[str, Field], seal: SealValue) -> Any:
    """Return data with the values of its personal fields sealed. Tokens stay as they are.

    Raises RejectedError (`payload.personal`) for a value that does not fit its field, which cannot be checked later.
    """
    if type(data) is not dict:
        return data
    found = data
    for name, field in fields.items():
        value = data.get(name)
        if value is None or is_token(value):
            continue
        if field.personal:
            problem = field_problem(value, field)
            if problem is not None:
                raise RejectedError(problem, code="payload.personal")
            sealed = seal(value)
        else:
            sealed = seal_fields(value, field.fields_by_name, seal)
        if sealed is not value:
            found = dict(data) if found is data else found
            found[name] = sealed
    return found


def seal_result(result: Any, fields: ResultFields, seal: SealValue) -> Any:
    """Return the result of a handler with its personal fields sealed, or sealed as a whole. A missing field is fine."""
    if result is None or is_token(result):
        return result
    if fields is True:
        return seal(result)
    if type(result) is not dict:
        return seal(result)  # the fields cannot be found: all of it may be personal
    plain = {name for name in fields if result.get(name) is not None and not is_token(result[name])}
    return {name: seal(value) if name in plain else value for name, value in result.items()} if plain else result


def unsealed_fields(data: Any, fields: Mapping[str, Field], prefix: str = "") -> Iterator[str]:
    """Yield the personal fields of data that have a plain value."""
    if type(data) is not dict:
        return
    for name, field in fields.items():
        value = data.get(name)
        if value is None or is_token(value):
            continue
        if field.personal:
            yield f"{prefix}{name}"
        else:
            yield from unsealed_fields(value, field.fields_by_name, f"{prefix}{name}.")
