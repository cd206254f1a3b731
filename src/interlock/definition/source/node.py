"""A text's values with their places: what the YAML and the JSON parser make, and what the readers over them take."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from interlock.errors import Place

Scalar = None | bool | int | float | str


@dataclass(frozen=True, slots=True)
class Located:
    """A scalar, a list of located values, or a mapping of them with the place of each key.

    `is_exact`: the place is that of the value itself. Otherwise it is that of a text around it, such as an attribute.
    """

    value: Scalar | list[Located] | dict[str, Located]
    place: Place
    keys: dict[str, Place] = field(default_factory=dict)
    is_exact: bool = True

    @classmethod
    def within(cls, value: Any, place: Place) -> Located:
        """Plain JSON that was written somewhere inside a place."""
        if isinstance(value, dict):
            inner = {key: cls.within(each, place) for key, each in value.items()}
            return cls(inner, place, dict.fromkeys(inner, place), is_exact=False)
        if isinstance(value, list):
            return cls([cls.within(each, place) for each in value], place, is_exact=False)
        return cls(value, place, is_exact=False)

    def plain(self) -> Any:
        """The value as plain JSON, places dropped."""
        if isinstance(self.value, dict):
            return {key: each.plain() for key, each in self.value.items()}
        if isinstance(self.value, list):
            return [each.plain() for each in self.value]
        return self.value
