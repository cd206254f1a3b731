"""The charts that a runtime was given, by kind and revision.

Rule 1: these are the charts that the process was given, and their names. Which of them, or of the definitions in the
store, runs an entity is decided by `revisions`.
Rule 2: every runtime has the charts of the package itself, so that their entities can be shown, verified and archived
like any other. They are not listed among the runtime's kinds, and a user's chart cannot have their names. Their events
need the role `CONSOLE_ROLE`, which no user's chart names. A later edition of such a chart declares itself compatible
with the earlier ones, because jobs outlive releases. See ADR 0027.
Rule 3: the `src` of an invoke names an inline chart of the invoking chart, or a kind of this registry. The id of a
child comes from the invoke and the number of restarts, so that starting the child again finds the existing one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

from interlock.errors import InternalError, NotFoundError, RejectedError, UsageError
from interlock.kernel.step import Kernel
from interlock.model.charts.chart import Chart
from interlock.model.charts.sendable_events import knows_event, payload_mistake, unknown_event
from interlock.model.diagnostics import suggestion
from interlock.model.entity_id import split_entity
from interlock.model.limits import CHILD_DEPTH_MAX

JOB_KIND = "interlock-job"
"""The kind of the console's jobs: an event sent to many entities, or the verification of a store."""

JOB_FILE = Path(__file__).with_name("console_job.yaml")
"""The definition of that kind."""

REPORT_KIND = "interlock-report"
"""The kind of saved reports of shadow runs, shadow replays and refolds."""

MIGRATION_KIND = "interlock-migration"
"""The kind of migrations: what they do, who asked for them, and how far they are."""

RETENTION_KIND = "interlock-retention"
"""The kind of runs of retention: what they intended to remove, and what they removed."""

CONSOLE_ROLE = "interlock.console"

_BUILTIN_FILES = {
    JOB_KIND: JOB_FILE,
    REPORT_KIND: Path(__file__).with_name("report.yaml"),
    MIGRATION_KIND: Path(__file__).with_name("migration.yaml"),
    RETENTION_KIND: Path(__file__).with_name("retention.yaml"),
}

BUILTIN_KINDS = frozenset(_BUILTIN_FILES)

KNOWN_EVENTS_MAX = 10_000
"""Names of events that a registry remembers as known, so that a send looks a name up once."""


class ChartRegistry:
    """Kernels by kind and revision. The last kernel given for a kind creates new entities."""

    def __init__(self, kernels: Iterable[Kernel]) -> None:
        self._current: dict[str, Kernel] = {}
        self._all: dict[tuple[str, str], Kernel] = {}
        self._other_names: dict[tuple[str, str], Kernel] = {}
        self._known_events: set[tuple[str, str]] = set()
        self._child_names: set[tuple[str | None, str]] = set()
        self._given = tuple(kernels)
        for kernel in self._given:
            self._current[kernel.chart.kind] = kernel
            self._add(kernel)

    def _add(self, kernel: Kernel) -> None:
        """Add a chart and its inline charts: entities of those are found by kind and revision too."""
        if kernel.chart.kind in BUILTIN_KINDS:
            message = f"the kind `{kernel.chart.kind}` is reserved for Interlock itself"
            raise UsageError(message, code="kind.reserved", hint="give the chart another `kind`")
        chart = kernel.chart
        self._all[chart.kind, chart.revision] = kernel
        for name in chart.other_names:
            self._other_names[chart.kind, name] = kernel
        self._child_names.update(_child_names(chart))
        for each in inline_kernels(kernel).values():
            self._add(each)

    def kernels(self) -> tuple[Kernel, ...]:
        """Return the charts that were given, in their order."""
        return self._given

    def kinds(self) -> tuple[str, ...]:
        """Return the kinds of which this runtime can create entities, sorted."""
        return tuple(sorted(self._current))

    def every_kind(self) -> tuple[str, ...]:
        """Return the kinds that have a chart here, including inline charts, sorted."""
        return tuple(sorted({kind for kind, _ in self._all}))

    def revisions(self, kind: str) -> dict[str, Kernel]:
        """Return the charts of a kind by revision, in the order given. The last non-inline one creates new entities."""
        builtin = builtin_kernel(kind)
        if builtin is not None:
            return {builtin.chart.revision: builtin}
        return {revision: kernel for (each, revision), kernel in self._all.items() if each == kind}

    def is_child_id(self, entity: str) -> bool:
        """Whether an id is one that an invoke gives to a child: `<kind>/<invoke id>-<16 hex digits>`."""
        kind, name = split_entity(entity)
        found = _CHILD_NAME.fullmatch(name)
        if found is None or not self._child_names:
            return False
        invoke, state = found[1], found[1].rsplit(".", 2)[0]
        names = {(each, name) for each in (kind, None) for name in (invoke, f"{state}.*")}
        return not names.isdisjoint(self._child_names)

    def unknown_event(self, kind: str, name: str) -> UsageError | None:
        """Return the error for an event that no loaded revision of a kind knows; None if one does, or none is loaded.

        An entity may be on a revision that is not loaded here, which may know it.
        """
        if (kind, name) in self._known_events:
            return None
        charts = [each.chart for each in self.revisions(kind).values()]
        if charts and not any(knows_event(each, name) for each in charts):
            return unknown_event(charts, name)
        if len(self._known_events) >= KNOWN_EVENTS_MAX:  # prefixes and wildcards know any number of names
            self._known_events.clear()
        self._known_events.add((kind, name))
        return None

    def is_known_event(self, kind: str, name: str) -> bool:
        """Whether `unknown_event` has found this name to be known."""
        return type(name) is str and (kind, name) in self._known_events

    def payload_mistake(self, kind: str, name: str, data: Any) -> UsageError | None:
        """Return the error for a payload that no loaded revision accepts for an event; None if one does."""
        mistake: UsageError | None = None
        for each in self.revisions(kind).values():
            mistake = payload_mistake(each.chart, name, data)
            if mistake is None:
                return None
        return mistake

    def find(self, kind: str, revision: str) -> Kernel | None:
        """Return the chart of a revision, by any of its names. The name of a behaviour comes before other names."""
        name = (kind, revision)
        found = self._all.get(name) or self._other_names.get(name)
        if found is None and (builtin := builtin_kernel(kind)) is not None and builtin.chart.is_revision(revision):
            return builtin
        return found

    def current(self, kind: str) -> Kernel | None:
        """Return the chart for new entities of a kind, or None. An inline chart creates entities of its parent only."""
        return self._current.get(kind) or builtin_kernel(kind)

    def for_new_entity(self, kind: str) -> Kernel:
        """Return the chart for new entities of a kind. Raises NotFoundError when there is none."""
        found = self.current(kind)
        if found is None:
            raise unknown_kind(kind, self._current)
        return found


def unknown_kind(kind: str, known: Collection[str]) -> NotFoundError:
    """Return the error for a kind that is not one of those known, with the nearest of their names."""
    kind = kind[:80]
    return NotFoundError(f"unknown kind `{kind}`", code="kind.unknown", hint=kind_hint(kind, known))


def kind_hint(kind: str, known: Collection[str]) -> str:
    """Return the hint for an unknown kind: the nearest name, or all names."""
    return suggestion(kind, known) or f"known kinds: {', '.join(known) or 'none'}"


# Charts of the package itself


def builtin_kernel(kind: str) -> Kernel | None:
    """Return the chart of a kind that belongs to the package; None for any other kind."""
    return _builtin_kernel(kind) if kind in BUILTIN_KINDS else None


@cache
def _builtin_kernel(kind: str) -> Kernel:
    # Imported when needed: a runtime that uses none of them does not load the YAML reader.
    from interlock.compiler.build import compile_document
    from interlock.definition.yaml.format import FORMAT
    from interlock.evolve.identity import named

    reading = FORMAT.read(_BUILTIN_FILES[kind].read_text(encoding="utf-8"), source=f"<{kind}>")
    chart = None if reading.document is None else compile_document(reading.document).chart
    if chart is None:
        raise InternalError(f"the built-in chart `{kind}` does not compile", code="own.chart")
    return Kernel(named(chart))


# Children

_CHILD_NAME = re.compile(r"(.+)-[0-9a-f]{16}")
"""What `child_entity` returns, after the kind."""


def _child_names(chart: Chart) -> Iterator[tuple[str | None, str]]:
    """Yield the kind and the invoke id of the children that a chart can start; None for a kind that is computed.

    An invoke without an id gets a new one at each entry: `<state>.<version>.<ordinal>`, here `<state>.*`.
    """
    for state in chart.states:
        for each in state.invokes:
            if each.type != "handler":
                yield each.src if isinstance(each.src, str) else None, each.id or f"{state.id}.*"


def child_entity(kind: str, invokeid: str, key: str, *, restarts: int = 0) -> str:
    """Return the id of the child that the invoke with this effect key starts."""
    seed = key if restarts == 0 else f"{key}~{restarts}"
    return f"{kind}/{invokeid}-{blake2b(seed.encode(), digest_size=8).hexdigest()}"


def check_child_depth(depth: int) -> None:
    """Raise RejectedError for a child that would have this many ancestors, if that is too many."""
    if depth > CHILD_DEPTH_MAX:
        raise RejectedError(f"invokes are nested more than {CHILD_DEPTH_MAX} deep", code="invoke.depth")


def child_context(kernel: Kernel, given: Any) -> dict[str, Any]:
    """Return the initial context of a child. SCXML ignores fields that the child does not declare (W3C 245)."""
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise UsageError("the input of a chart must be a mapping of its fields", code="invoke.input")
    if kernel.chart.dialect.name != "scxml":
        return given
    fields = {each.name for each in kernel.chart.states[0].context}
    return {name: value for name, value in given.items() if name in fields}


def inline_kernels(kernel: Kernel) -> dict[str, Kernel]:
    """Return the inline charts of a chart, by the names that its invokes use."""
    actions = kernel.actions
    return {
        name: Kernel(chart, guards=actions.guards, assigns=actions.assigns, language=actions.language)
        for name, chart in kernel.chart.inline
    }
