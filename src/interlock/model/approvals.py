"""Who approved what: the record of senders in the context of an entity, and the rule that counts approvals.

Rule 1: the record is the field `_actors` of the context: for each recorded event a list of `{id, version, time_ms}`,
one for each user, the latest last. The compiler adds the field and the assignments that write it
(`compiler.approvals`), so a replay, a move and a compaction keep it like any other field. No author and no creator
writes it.
Rule 2: only users are recorded: principals with an id, of the kind `user` or without a kind. Two keys of one person
have one id. Services, buses and the system approve nothing.
Rule 3: the last `APPROVERS_MAX` users of an event are remembered. A full list of users who cannot approve may have lost
one, so then no approval counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from interlock.model.document.document import Approvals
from interlock.model.duration import parse_duration
from interlock.model.event import Event
from interlock.model.limits import APPROVERS_MAX, NAME_BYTES_MAX

ACTORS_FIELD = "_actors"
"""The field of the context; authors cannot declare a name that starts with `_`."""

_USER_KINDS = frozenset({None, "user", "person"})


def record_sender(actors: Any, event: Event | None, version: int, name: str, cleared: Iterable[str]) -> dict[str, Any]:
    """Return the record without some events, and with the sender of this event under `name`, unless that is empty."""
    found: dict[str, Any] = dict(actors) if isinstance(actors, dict) else {}
    for each in cleared:
        found.pop(each, None)
    user = _user_id(None if event is None else event.principal)
    if name and event is not None and user is not None:
        others = [each for each in found.get(name, ()) if each["id"] != user]
        found[name] = [*others, {"id": user, "version": version, "time_ms": event.time_ms}][-APPROVERS_MAX:]
    return found


def _user_id(principal: Any) -> str | None:
    if not isinstance(principal, Mapping) or principal.get("kind") not in _USER_KINDS:
        return None
    found = principal.get("id")
    return found if isinstance(found, str) and 0 < len(found.encode()) <= NAME_BYTES_MAX else None


def actor_ids(actors: Any, name: str) -> list[str]:
    """Return the ids of the users who sent an event, the latest at the end."""
    return [each["id"] for each in actors.get(name, ())] if isinstance(actors, dict) else []


def count_approvals(approvals: Approvals, context: Mapping[str, Any], time_ms: int | None) -> int:
    """Return how many users have approved; `time_ms` is the time at which `within` ends, None for any time."""
    actors = context.get(ACTORS_FIELD)
    if not isinstance(actors, dict):
        return 0
    excluded: set[str] = set()
    for name in approvals.without:
        ids = actor_ids(actors, name)
        if len(ids) >= APPROVERS_MAX:
            return 0
        excluded.update(ids)
    within_ms = None if approvals.within is None else parse_duration(approvals.within)
    since_ms = None if within_ms is None or time_ms is None else time_ms - within_ms
    return sum(
        each["id"] not in excluded and (since_ms is None or each["time_ms"] >= since_ms)
        for each in actors.get(approvals.of, ())
    )
