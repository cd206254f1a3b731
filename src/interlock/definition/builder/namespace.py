"""Charts in Python: every function that creates a part of a `Document`, fully typed, in one namespace.

The result equals that of the YAML reader for the same chart: it is compiled, checked and drawn the same way.

Rule 1: one function per word of the vocabulary; strings are literals or names, expressions are created with `expr`.
Rule 2: this module only collects the functions. The classes are their results, for annotations.
Rule 3: places are the caller's file and line, so that the compiler's diagnostics point into Python code.
"""

from __future__ import annotations

from interlock.definition.builder.actions import (
    all_of,
    any_of,
    assign,
    assign_from,
    blocks,
    cancel,
    do,
    emit,
    foreach,
    guard,
    if_,
    in_state,
    log,
    not_,
    raise_,
    script,
    send,
)
from interlock.definition.builder.chart import access, approvals, chart, event
from interlock.definition.builder.invokes import call, invoke, retry, saga, saga_step
from interlock.definition.builder.states import deep_history, expect, final, history, parallel, sensitive, state
from interlock.definition.builder.transitions import after, always, initial, on, on_done, to, transition
from interlock.definition.builder.values import boolean, expr, field, integer, number, string
from interlock.model.document.document import Invoke, State, Transition

__all__ = (
    "Invoke",
    "State",
    "Transition",
    "access",
    "after",
    "all_of",
    "always",
    "any_of",
    "approvals",
    "assign",
    "assign_from",
    "blocks",
    "boolean",
    "call",
    "cancel",
    "chart",
    "deep_history",
    "do",
    "emit",
    "event",
    "expect",
    "expr",
    "field",
    "final",
    "foreach",
    "guard",
    "history",
    "if_",
    "in_state",
    "initial",
    "integer",
    "invoke",
    "log",
    "not_",
    "number",
    "on",
    "on_done",
    "parallel",
    "raise_",
    "retry",
    "saga",
    "saga_step",
    "script",
    "send",
    "sensitive",
    "state",
    "string",
    "to",
    "transition",
)
