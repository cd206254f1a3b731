"""The names under which a store lists and counts entities for others: for readers who may not see hidden states.

Rule 1: such a name begins with `VISIBLE`, and the id of a state never does. So these rows are kept in the lists and the
counters of states, without tables of their own, and entities without hidden states have none.
Rule 2: an entity that others see has one name for itself, one for each state, and one for each tag that they see.
"""

from __future__ import annotations

VISIBLE = ":visible"
"""The name of every entity that others see."""

_STATE, _TAG = f"{VISIBLE}.", f"{VISIBLE}#"


def visible_state(state: str) -> str:
    """Return the name of the entities that others see in a state."""
    return _STATE + state


def visible_tag(tag: str) -> str:
    """Return the name of the entities that others see with a tag."""
    return _TAG + tag


def visible_names(states: tuple[str, ...], tags: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of an entity that others see in these states, with these tags."""
    return (VISIBLE, *map(visible_state, states), *map(visible_tag, tags))


def is_for_others(name: str) -> bool:
    """Whether a name in a list or a counter is one of these, and not a state."""
    return name.startswith(VISIBLE)


def state_for_others(name: str) -> str | None:
    """Return the state of such a name; None for that of the entity or of a tag."""
    return name.removeprefix(_STATE) if name.startswith(_STATE) else None
