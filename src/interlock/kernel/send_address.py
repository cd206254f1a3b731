"""Where a send goes and when: the words of SCXML for targets, and delays (S24, S36).

Rule: what cannot be a target is an error of the chart (`error.execution`); what could be one and is not there is an
error of delivery (`error.communication`).
"""

from __future__ import annotations

from typing import Any

from interlock.kernel.errors import ActionError, name_of
from interlock.model.duration import format_duration, parse_duration
from interlock.model.limits import DELAY_MS_MAX, ENTITY_ID_BYTES_MAX, NAME_BYTES_MAX
from interlock.model.snapshot import Invocation, Parent

ADDRESS_LENGTH_MAX = NAME_BYTES_MAX + ENTITY_ID_BYTES_MAX + len("#_scxml_/")
"""Characters of a target: a kind and an id, the longest there are, in SCXML's spelling."""


def send_address(
    to: Any, entity: str, parent: Parent | None, invokes: tuple[Invocation, ...], sendid: str | None
) -> str:
    """The address that `to` names: this entity, `#_internal`, `#_parent`, `#_<active invoke>`, or another entity."""
    if to is None:
        return entity
    name_of(to, "send.target", "the target of a send", sendid, length_max=ADDRESS_LENGTH_MAX)
    if to in ("self", entity, f"#_scxml_{entity}"):
        return entity
    if to in ("internal", "#_internal"):
        return "#_internal"
    if to in ("parent", "#_parent"):
        if parent is None:
            raise _undeliverable("this entity has no parent", sendid)
        return "#_parent"
    if to.startswith("#_scxml_"):
        other: str = to.removeprefix("#_scxml_")
        if "/" not in other:
            raise _undeliverable(f"no entity {other[:80]!r}", sendid)
        return other
    return _named(to, invokes, sendid)


def _named(to: str, invokes: tuple[Invocation, ...], sendid: str | None) -> str:
    if "/" in to and not to.startswith(("#", "!")):
        return to
    name = to.removeprefix("#_")
    if to.startswith("#_") or _is_name(to):
        if not any(each.id == name for each in invokes):
            raise _undeliverable(f"no active invoke {name[:80]!r}", sendid)
        return f"#_{name}"
    raise ActionError("send.target", f"{to[:80]!r} is not a target", sendid=sendid)


def delay_of(delay: Any, sendid: str | None) -> int:
    """The milliseconds of a delay: none, a whole number of them, or a duration such as `30s`."""
    if delay is None:
        return 0
    ms = parse_duration(delay) if type(delay) is str else delay
    if type(ms) is not int or ms < 0:
        raise ActionError("send.delay", "a delay is a duration such as '30s', or whole milliseconds", sendid=sendid)
    if ms > DELAY_MS_MAX:
        raise ActionError("send.delay", f"a delay is at most {format_duration(DELAY_MS_MAX)}", sendid=sendid)
    return ms


def _undeliverable(message: str, sendid: str | None) -> ActionError:
    return ActionError("send.undeliverable", message, event="error.communication", sendid=sendid)


def _is_name(text: str) -> bool:
    return all(part.replace("-", "_").isidentifier() or part.isdigit() for part in text.split("."))
