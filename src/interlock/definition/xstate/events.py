"""Names of events that XState makes itself, and ours for the same events, both ways (X19).

| XState 5 | ours |
|---|---|
| `xstate.done.state.ID` | `done.state.ID` |
| `xstate.done.actor.ID` | `done.invoke.ID` |
| `xstate.error.actor.ID` | `error.invoke.ID` |
| `xstate.after.DELAY.ID` | `after.DELAY.ID`, the delay as a duration |

Rule 1: state ids are translated too: in XState they start with the id of the root.
Rule 2: a name with no counterpart keeps its text: it matches nothing here, and the reader says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from interlock.model.duration import format_duration, parse_duration

_PREFIXES = (
    ("xstate.done.state", "done.state"),
    ("xstate.done.actor", "done.invoke"),
    ("xstate.error.actor", "error.invoke"),
    ("xstate.after", "after"),
)
_GROUPS = {"xstate.done.*": "done.*", "xstate.error.*": "error.*"} | {
    f"{far}.*": f"{near}.*" for far, near in _PREFIXES
}
_OLD = re.compile(r"(?:done\.(?:invoke|state)|error\.(?:invoke|platform)|after)\.")
_AFTER = re.compile(r"([0-9]{1,12})\.(.+)")
_OUR_AFTER = re.compile(r"([0-9][0-9a-z]*)\.(.+)")


def is_version4_name(text: str) -> bool:
    """Whether a descriptor has the form of an event that XState 4 or our kernel generates."""
    return _OLD.match(text) is not None


def from_xstate(text: str, ids: Mapping[str, str]) -> str | None:
    """Our descriptor for one of XState 5, given our id of each state id; None if we have no such event."""
    if not text.startswith("xstate."):
        return text
    if text in _GROUPS:
        return _GROUPS[text]
    stem, wild = (text[:-2], ".*") if text.endswith(".*") else (text, "")
    for far, near in _PREFIXES:
        if stem.startswith(f"{far}."):
            rest = _from_xstate_rest(near, stem[len(far) + 1 :], ids)
            return None if rest is None else f"{near}.{rest}{wild}" if rest else f"{near}.*" if wild else None
    return None


def _from_xstate_rest(near: str, rest: str, ids: Mapping[str, str]) -> str | None:
    if near == "done.state":
        return ids.get(rest)
    if near != "after":
        return rest
    found = _AFTER.fullmatch(rest)
    if found is None or not ids.get(found[2]):
        return None
    return f"{format_duration(int(found[1]))}.{ids[found[2]]}"


def to_xstate(text: str, ids: Mapping[str, str]) -> str:
    """XState's descriptor for one of ours, given XState's id of each of our state ids."""
    for far, near in _GROUPS.items():
        if text == near:
            return far
    stem, wild = (text[:-2], ".*") if text.endswith(".*") else (text, "")
    for far, near in _PREFIXES:
        if stem.startswith(f"{near}."):
            rest = _to_xstate_rest(near, stem[len(near) + 1 :], ids)
            return text if rest is None else f"{far}.{rest}{wild}"
    return text


def _to_xstate_rest(near: str, rest: str, ids: Mapping[str, str]) -> str | None:
    if near == "done.state":
        return ids.get(rest)
    if near != "after":
        return rest
    found = _OUR_AFTER.fullmatch(rest)
    delay = parse_duration(found[1]) if found is not None else None
    if found is None or delay is None or found[2] not in ids:
        return None
    return f"{delay}.{ids[found[2]]}"
