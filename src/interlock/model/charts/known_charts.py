"""The charts of this process, by kind and revision, so that a snapshot can be asked about its states.

A snapshot contains the ids of its atomic states only; which states contain those, and what their tags are, is in the
chart. Rule: charts are referenced weakly, so that a process which loads many does not keep them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from weakref import ref

from interlock.errors import UsageError
from interlock.model.charts.chart import Chart
from interlock.model.diagnostics import suggestion

_PRUNE_AT = 1_000
"""Revisions after which those without a chart are forgotten."""


@dataclass(slots=True)
class StateNames:
    """The states of one chart: what is active with each of them, and their tags."""

    active: dict[str, frozenset[str]] = field(default_factory=dict)
    tags: dict[str, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, chart: Chart) -> StateNames:
        """Return the names of a chart's states."""
        found = cls()
        for state in chart.states[1:]:
            path = [chart.states[index] for index in chart.path(state.index) if index > 0]
            found.active[state.id] = frozenset(each.id for each in path)
            found.tags[state.id] = frozenset(tag for each in path for tag in each.tags)
        return found


@dataclass(slots=True)
class _Known:
    charts: list[ref[Chart]] = field(default_factory=list)
    names: StateNames | None = None


_KNOWN: dict[tuple[str, str], _Known] = {}


def remember_chart(chart: Chart, *, revision: str | None = None) -> None:
    """Let snapshots of this kind and revision answer `matches` and `tags` while the chart is in use.

    `revision` is an earlier one with whose entities the chart is compatible.
    """
    if len(_KNOWN) >= _PRUNE_AT:
        for name, known in list(_KNOWN.items()):
            if all(each() is None for each in known.charts):
                _KNOWN.pop(name, None)
    for each in (revision or chart.revision, *chart.other_names):
        _remember(chart, each)


def _remember(chart: Chart, revision: str) -> None:
    known = _KNOWN.setdefault((chart.kind, revision), _Known())
    if not any(each() is chart for each in known.charts):
        known.charts = [*(each for each in known.charts if each() is not None), ref(chart)]
        known.names = None  # tags are not part of a revision's name, so the newest chart decides


def state_names(kind: str, revision: str) -> StateNames:
    """Return the states of a revision. Raises UsageError (`snapshot.chart`) when no chart of it is in use."""
    known = _KNOWN.get((kind, revision))
    if known is not None and known.names is None:
        chart = next((found for each in reversed(known.charts) if (found := each()) is not None), None)
        known.names = None if chart is None else StateNames.of(chart)
    if known is None or known.names is None:
        message = f"this process has no chart of `{kind}` with the revision {revision}"
        raise UsageError(message, code="snapshot.chart", hint="load that chart first, and keep it")
    return known.names


def unknown_state(kind: str, state: object, names: StateNames) -> UsageError:
    """Return the error for a state that a chart does not have."""
    shown = str(state)[:80]
    hint = suggestion(shown, names.active) or f"its states are {', '.join(list(names.active)[:20])}"
    return UsageError(f"unknown state `{shown}` in chart `{kind}`", code="state.unknown", hint=hint)
