"""What a random document contains, for counting: one name per feature that the generator promises."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from interlock.model.document.document import Document, State


def features(made: Document) -> Counter[str]:
    """What a document contains, for counting: one line per feature that the generator promises."""
    found: Counter[str] = Counter({f"dialect {made.dialect}": 1, f"binding {made.binding}": 1})
    found[f"unhandled {made.unhandled}"] += 1
    found[f"errors {made.errors}"] += 1
    found["events declared"] += made.events is not None
    found["root transitions"] += bool(made.root.transitions)
    stack = [(made.root, 0)]
    while stack:
        state, depth = stack.pop()
        stack += [(each, depth + 1) for each in state.states]
        found[f"depth {depth}"] += 1
        _state_features(state, found)
    return found


def _state_features(state: State, found: Counter[str]) -> None:
    kind = f"history {state.history}" if state.type == "history" else state.type
    found[kind] += 1
    found["history content"] += state.type == "history" and bool(state.actions)
    found["output"] += state.output is not None
    found["several blocks"] += len(state.entry) > 1
    found["state fields"] += bool(state.key and state.context)
    if state.initial is not None:
        found["initial content"] += bool(state.initial.actions)
        found["initial several"] += len(state.initial.targets) > 1
    for invoke in state.invokes:
        found["invoke"] += 1
        found["autoforward"] += invoke.autoforward
        found["finalize"] += bool(invoke.finalize)
        found["invoke result"] += bool(invoke.done or invoke.error)
    for each in state.transitions:
        found[each.origin] += 1
        found["targetless"] += not each.targets
        found["several targets"] += len(each.targets) > 1
        found["internal"] += each.reenter is False
        found["wildcard"] += any("*" in name for name in each.events)
        found["guarded"] += each.guard is not None
    texts = repr(replace(state, states=()))
    for name in ("GuardName", "GuardIn", "GuardAll", "GuardNot", "In('", "Raise", "Send", "Cancel", "If(", "Foreach"):
        found[name] += name in texts
    for name in ("AssignCall", "Emit", "Log", "delay='", "1 / (", "obj.nothing"):
        found[name] += name in texts
