"""The charts that wrote entries, each with its text, for what compares or copies journals: shadow replay and bundles.

Rule 1: a revision is found by the name in entries and by the name of its behaviour: first among the charts of this
        process, then among the definitions of the store.
Rule 2: inline charts are found by their own kind and revision: their entities have journals of their own.
Rule 3: functions of a stored definition are those of this process's charts of its kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from interlock.compiler.build import compile_document
from interlock.definition.json.format import FORMAT
from interlock.errors import UnavailableError
from interlock.evolve.identity import behaviour_name
from interlock.kernel.step import Kernel
from interlock.model.document.document import Document, State
from interlock.ports.store import Store
from interlock.runtime.chart_registry import inline_kernels

Functions = dict[str, Callable[..., Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedChart:
    """A chart with its text; the functions that it names are registered."""

    document: Document
    kernel: Kernel

    @property
    def revision(self) -> str:
        """The name of the revision in entries."""
        return self.kernel.chart.revision


class RecordedCharts:
    """The charts of a process and of a store, by kind and revision."""

    def __init__(self, charts: Iterable[RecordedChart], store: Store | None = None) -> None:
        self._known: dict[tuple[str, str], RecordedChart] = {}
        self._functions: dict[str, tuple[Functions, Functions]] = {}
        self._store = store
        for each in charts:
            self._add(each)

    def _add(self, chart: RecordedChart) -> None:
        kind, actions = chart.kernel.chart.kind, chart.kernel.actions
        guards, assigns = self._functions.setdefault(kind, ({}, {}))
        guards |= actions.guards
        assigns |= actions.assigns
        for name in (chart.revision, behaviour_name(chart.document)):
            self._known[kind, name] = chart
        inline = {each.chart.kind: each for each in inline_kernels(chart.kernel).values()}
        for document in _inline_documents(chart.document.root):
            if document.kind in inline:
                self._add(RecordedChart(document=document, kernel=inline[document.kind]))

    async def find(self, kind: str, revision: str) -> RecordedChart:
        """Return the chart of a revision.

        Raises UnavailableError if it is unknown, ambiguous or damaged, UsageError if a function is not registered.
        """
        found = self._known.get((kind, revision))
        if found is None:
            found = self._known[kind, revision] = await self._stored(kind, revision)
        return found

    async def _stored(self, kind: str, revision: str) -> RecordedChart:
        definitions = None if self._store is None else self._store.definitions
        stored = () if definitions is None else await definitions.read_definitions(kind, revision)
        if not stored:
            message = f"no chart was given for revision {revision} of `{kind}`"
            raise UnavailableError(message, code="revision.unknown", hint="load that chart too")
        if len(stored) > 1:
            message = f"revision {revision} of `{kind}` means {len(stored)} definitions of the store"
            raise UnavailableError(message, code="revision.ambiguous", hint="load the chart that wrote the entries")
        body = stored[0].body
        document = None if body is None else FORMAT.read(body, source=f"<{kind} {revision}>").document
        if document is None:
            message = f"the stored definition of revision {revision} of `{kind}` cannot be read"
            raise UnavailableError(message, code="definition.damaged", hint="load the chart that wrote the entries")
        return self.compile(document)

    def compile(self, document: Document) -> RecordedChart:
        """Return a definition with the functions of this process. Raises as `find` does."""
        chart = compile_document(document).chart
        if chart is None:
            message = f"a definition of `{document.kind}` does not compile in this release"
            raise UnavailableError(message, code="definition.damaged", hint="load the chart that wrote the entries")
        guards, assigns = self._functions.get(document.kind, ({}, {}))
        return RecordedChart(document=document, kernel=Kernel(chart, guards=guards, assigns=assigns))


def _inline_documents(state: State) -> Iterator[Document]:
    for each in state.invokes:
        if isinstance(each.src, Document):
            yield each.src
    for child in state.states:
        yield from _inline_documents(child)
