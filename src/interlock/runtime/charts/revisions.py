"""Which chart runs an entity: the revisions of the process's own charts, and those whose definitions the store has.

Rule 1: a definition is durable before the first entry that names its revision (`register`). All charts of a kind are
registered, in the order given, when this process first writes an entity of that kind.
Rule 2: an entity continues on its own revision: own charts by any name, then the stored definition, then a chart that
declares itself compatible and has the entity's states, then an error. Nothing is lost by the error: another process,
or this one after `interlock db definitions add`, can continue.
Rule 3: entries are written under the name that the store uses for the revision (`Edition.written_name`). A store
without definitions gets the older name, which has the label that `compatible` compares.
Rule 4: guards and assigns of a stored definition are those of the process's charts of that kind, newest first. Stepping
without one of them is refused before the step (`function.missing`). Reading never needs them: a placeholder is used,
and a replay asks whether it was called.
Rule 5: roles and permits come from the newest edition of the kind that the store has, also for entities of older
revisions; an event that only the older one declares keeps its own. A process looks every `POLICY_AGE_MS_MAX`. An
outdated edition (`ports.definitions`) is not the newest: a process that serves an old text does not bring back its
roles.
Rule 6: a stored definition is compiled once, in a thread; concurrent first uses share the work.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import msgspec

from interlock.errors import UnavailableError
from interlock.evolve.labels import is_lower, is_within
from interlock.expression.language import SAFE, Language
from interlock.kernel.step import Kernel
from interlock.model.charts.chart import Chart
from interlock.model.charts.known_charts import remember_chart
from interlock.model.document.document import Document
from interlock.model.encoding.codec import UNDECODABLE
from interlock.model.encoding.storable import storable_text
from interlock.model.limits import POLICY_AGE_MS_MAX, REVISIONS_CACHED_MAX, REVISIONS_UNKNOWN_MAX, REVISIONS_UNKNOWN_MS
from interlock.model.snapshot import Snapshot
from interlock.ports.clock import Clock
from interlock.ports.definitions import Definition, Edition, StoredDefinition, newest_edition, outdated_editions
from interlock.ports.delivery import CHART_MISSING_CODES
from interlock.ports.store import Store
from interlock.ports.threads import in_thread
from interlock.runtime.charts.registry import ChartRegistry, inline_kernels
from interlock.trust.authorization import ChartPolicy

_log = logging.getLogger("interlock.runtime")

VOCABULARY = 1
"""The newest vocabulary that this release reads."""

LABEL_LENGTH_MAX = 200
"""Characters of a label that are stored: it is shown in lists."""

T = TypeVar("T")
Name = tuple[str, str]
"""A kind and a name of one of its revisions."""


class Placeholder:
    """Replaces a guard or assign function that is not registered here, and remembers that it was called."""

    def __init__(self, name: str, called: list[str]) -> None:
        self.name = name
        self.called = called

    def __call__(self, *_: Any, **__: Any) -> Any:
        """Raise LookupError."""
        self.called.append(self.name)
        raise LookupError(f"`{self.name}` is not registered here")


@dataclass(frozen=True, slots=True)
class StoredRevision:
    """A compiled stored definition: its kernel, the functions that are missing here, and those that were called."""

    kernel: Kernel
    missing: tuple[str, ...]
    called: list[str]


@dataclass(slots=True)
class KindPolicy:
    """The roles and permits of a kind: the chart that has them, when that was checked, and policies by revision.

    `newest` is the policy of that chart alone, for what is decided before an entity and its revision are known;
    `is_restricted`: it refuses some senders then.
    """

    chart: Chart | None
    digest: str
    checked_ms: int
    policies: dict[str, ChartPolicy]
    newest: ChartPolicy | None
    is_restricted: bool


@dataclass(frozen=True, slots=True)
class KnownRevisions:
    """What a process has learned of the revisions of a store."""

    ready: dict[Name, Kernel]
    registered: set[str]
    stored: OrderedDict[Name, StoredRevision]
    policies: dict[str, KindPolicy]

    @classmethod
    def none(cls) -> KnownRevisions:
        """Return what a process knows that has just opened the store."""
        return cls(ready={}, registered=set(), stored=OrderedDict(), policies={})

    def copied(self) -> KnownRevisions:
        """Return a copy that may be forgotten with a transaction of a caller."""
        return KnownRevisions(
            ready=dict(self.ready),
            registered=set(self.registered),
            stored=OrderedDict(self.stored),
            policies=dict(self.policies),
        )


class Revisions:
    """The revisions of one store, as a process with some charts can run and read them.

    `known` is what was learned of them before. With `is_direct`, nothing waits for a task or a thread.
    """

    def __init__(
        self,
        charts: ChartRegistry,
        store: Store,
        clock: Clock,
        *,
        known: KnownRevisions | None = None,
        is_direct: bool = False,
    ) -> None:
        self.charts = charts
        self._store = store
        self._definitions = store.definitions
        self._clock = clock
        self._known = known = known or KnownRevisions.none()
        self._ready = known.ready
        self._registered = known.registered
        self._stored = known.stored
        self.policies = known.policies
        self._editions: dict[str, tuple[Edition, ...]] = {}
        self._unknown: dict[Name, int] = {}
        self._tasks: dict[tuple[str, ...], asyncio.Task[Any]] = {}
        self._is_direct = is_direct

    def on_transaction(self, store: Store) -> Revisions:
        """Return the revisions for one call on a transaction of the caller, which may save definitions with its entry.

        What it saves is not known here: the transaction may be rolled back.
        """
        return Revisions(self.charts, store, self._clock, known=self._known.copied(), is_direct=True)

    # Writing

    def is_registered(self, kind: str) -> bool:
        """Whether the own charts of a kind are saved."""
        return kind in self._registered

    async def register_kind(self, kind: str) -> None:
        """Save the definitions of the own charts of a kind. Raises UnavailableError when the store cannot."""
        if kind not in self._registered:
            await self._once(("register", kind), lambda: self._register_kind(kind))

    def known(self, kind: str, revision: str) -> Kernel | None:
        """Return the own chart of a revision if it is registered: the lookup of every send."""
        return self._ready.get((kind, revision))

    async def for_new_entity(self, kernel: Kernel) -> Kernel:
        """Return the chart for an entity that is created by this one, registered."""
        return self._ready.get((kernel.chart.kind, kernel.chart.revision)) or await self.register(kernel)

    async def for_rollout(self, kind: str, revision: str) -> Kernel:
        """Return the chart for an entity that is created on a revision of the store, registered.

        Raises UnavailableError as `for_step` does.
        """
        return self._ready.get((kind, revision)) or await self.register(await self.for_repeating(kind, revision))

    async def for_step(self, snapshot: Snapshot) -> Kernel:
        """Return the chart for the next step of an entity, registered.

        Raises UnavailableError: `kind.unknown`, `revision.unknown`, `revision.ambiguous`, `definition.damaged`,
        `definition.newer`, `function.missing`.
        """
        return await self.register(await self.for_preview(snapshot))

    async def for_preview(self, snapshot: Snapshot, *, needs_functions: bool = True) -> Kernel:
        """Return what `for_step` returns, without writing anything; without functions too, if they are not needed."""
        kind, name = snapshot.kind, snapshot.revision
        own = self._own(kind, name)
        if own is not None:
            return own
        stored = await self._find_stored(kind, name)
        if stored is None:  # without its definition, nothing can say what a compatible chart would lose
            return await self._compatible_with(snapshot)
        if needs_functions and stored.missing:
            raise missing_functions(stored.kernel.chart, stored.missing)
        return stored.kernel

    async def register(self, kernel: Kernel) -> Kernel:
        """Save the definition of a chart and those of all own charts of its kind; return the chart as entries name it.

        Raises UnavailableError when the store cannot save it, or a function of it is not registered here.
        """
        kind, revision = kernel.chart.kind, kernel.chart.revision
        await self.register_kind(kind)
        found = self._ready.get((kind, revision))
        if found is not None:
            return found
        stored = self._stored.get((kind, revision))
        if stored is None:  # an inline chart of a stored one
            stored = await self._once(("save", kind, revision), lambda: self._save_inline(kernel))
        if stored.missing:
            raise missing_functions(stored.kernel.chart, stored.missing)
        return stored.kernel

    async def _register_kind(self, kind: str) -> None:
        for kernel in self.charts.revisions(kind).values():
            written = await self._register_one(kernel)
            for name in (kernel.chart.revision, written.chart.revision, *written.chart.other_names):
                if self.charts.find(kind, name) in (kernel, None):
                    self._ready[kind, name] = written
        self._registered.add(kind)

    async def _save_inline(self, kernel: Kernel) -> StoredRevision:
        written = await self._register_one(kernel)
        chart, functions = written.chart, {**written.actions.assigns, **written.actions.guards}
        placeholders = [functions[each] for each in (*chart.guards, *chart.assigns)]
        found = [each for each in placeholders if isinstance(each, Placeholder)]
        stored = StoredRevision(written, tuple(each.name for each in found), found[0].called if found else [])
        self._keep(chart.kind, (kernel.chart.revision, chart.revision), stored)
        return stored

    async def _register_one(self, kernel: Kernel) -> Kernel:
        """Save the definition of one chart; return its kernel under the name that entries have."""
        if self._definitions is None:  # the label of a revision is in its older name only
            labelled = next((each for each in kernel.chart.other_names if "+" in each), kernel.chart.revision)
            return restamped(kernel, labelled, set())
        definition = make_definition(kernel.chart)
        if definition is None:
            return kernel
        editions = await self._definitions.list_definitions(definition.kind)
        if all(each.revision != definition.revision for each in editions):
            definition = msgspec.structs.replace(
                definition, written_name=await self._written_name(definition, editions)
            )
        edition = await self._definitions.save_definition(definition, now_ms=self._clock.now_ms())
        self._editions.pop(definition.kind, None)
        names = {edition.revision, *edition.names, *definition.names}
        written = edition.written_name if edition.written_name in names else edition.revision
        return restamped(kernel, written, names)

    async def _written_name(self, definition: Definition, editions: tuple[Edition, ...]) -> str:
        """Return an older name of this very chart if entities in the store have it, so that workers of earlier releases
        go on; else the name of the behaviour. An older name that another revision has too is not unique.
        """
        if self._store.statistics is None:
            return definition.revision
        used = {each.revision for each in await self._store.statistics.count_states(definition.kind) if each.entities}
        taken = {name for each in editions for name in each.names}
        return next((each for each in definition.names if each in used - taken), definition.revision)

    # Permissions

    async def policy(self, kernel: Kernel) -> ChartPolicy:
        """Return the roles and permits for entities of a revision: those of the newest definition of its kind."""
        if not self.is_policy_known(kernel.chart.kind):
            await self.check_policy(kernel.chart.kind)
        return self.known_policy(kernel)

    def known_policy(self, kernel: Kernel) -> ChartPolicy:
        """Return the same, as it was when it was last checked."""
        chart = kernel.chart
        known = self.policies.get(chart.kind)
        if known is None:  # neither a chart of the process nor a definition of the store
            return ChartPolicy(chart)
        found = known.policies.get(chart.revision)
        if found is None:
            found = known.policies[chart.revision] = ChartPolicy(known.chart or chart, chart)
        return found

    async def newest_policy(self, kind: str) -> ChartPolicy | None:
        """Return the roles and permits of the newest definition of a kind; None for a kind without one."""
        if not self.is_policy_known(kind):
            await self.check_policy(kind)
        known = self.policies.get(kind)
        return None if known is None else known.newest

    def is_policy_known(self, kind: str) -> bool:
        """Whether the roles and permits of a kind were checked recently."""
        policy = self.policies.get(kind)
        return policy is not None and 0 <= self._clock.now_ms() - policy.checked_ms < POLICY_AGE_MS_MAX

    async def check_policy(self, kind: str) -> None:
        """Find the newest definition of a kind. While the store does not respond, what is known stays.

        Nothing is kept of a kind without a chart: callers could fill the memory with names.
        """
        before = self.policies.get(kind)
        chart, digest = None if before is None else before.chart, "" if before is None else before.digest
        try:
            chart, digest = await self._once(("policy", kind), lambda: self._newest_policy(kind, digest, chart))
        except UnavailableError as error:
            if error.code in CHART_MISSING_CODES:
                facts = {"kind": kind, "code": error.code}
                _log.warning("the newest definition cannot be read; older roles and permits stay in use", extra=facts)
            current = self.charts.current(kind)
            chart = chart or (None if current is None else current.chart)
        if chart is None and not self.charts.revisions(kind):
            return
        if before is not None and chart is before.chart:
            self.policies[kind] = replace(before, digest=digest, checked_ms=self._clock.now_ms())
            return
        newest = None if chart is None else ChartPolicy(chart)
        is_restricted = newest is not None and newest.is_restricted
        self.policies[kind] = KindPolicy(chart, digest, self._clock.now_ms(), {}, newest, is_restricted)

    async def _newest_policy(self, kind: str, digest: str, chart: Chart | None) -> tuple[Chart | None, str]:
        """Return the chart of the newest edition, and its digest: an own chart that is not saved, if not outdated."""
        kernel = self.charts.current(kind)
        current = None if kernel is None else kernel.chart
        editions = () if self._definitions is None else await self._definitions.list_definitions(kind)
        newest = newest_edition(editions)
        if newest is None:
            return current, ""
        own = None if current is None else make_definition(current)
        if current is not None and own is not None:
            is_saved = own.digest in {each.digest for each in editions}
            if not (is_saved or is_lower(current.label, newest.label)):
                return current, ""
            if newest.digest == own.digest:
                return current, newest.digest
        if newest.digest == digest:
            return chart, digest
        assert self._definitions is not None
        found = await self._definitions.read_definitions(kind, newest.revision)
        guards, assigns, language = self._functions(kind)
        compiling = partial(compile_stored, found[0], guards, assigns, language)
        stored = compiling() if self._is_direct else await in_thread(compiling)
        return stored.kernel.chart, newest.digest

    # Reading

    async def for_reading(self, kind: str, revision: str) -> Kernel:
        """Return the chart of a revision, to show, draw and replay: the exact one, else one that is compatible.

        Functions may be missing; see `missing_call`. Raises UnavailableError as `for_step` does.
        """
        own = self._own(kind, revision)
        if own is not None:
            return own
        stored = await self._find_stored(kind, revision)
        if stored is not None:
            return stored.kernel
        compatible = await self.compatible(kind, revision)
        if compatible is None:
            raise self._missing(kind, revision)
        return compatible

    async def compatible(self, kind: str, revision: str) -> Kernel | None:
        """Return the chart for new entities of a kind if it declares itself compatible with a revision, else None."""
        current = self.charts.current(kind)
        if current is None or current.chart.compatible is None:
            return None
        label = await self.label(kind, revision)
        label = revision.partition("+")[0] if label is None else label
        return current if is_within(label, current.chart.compatible) else None

    def _own(self, kind: str, name: str) -> Kernel | None:
        """Return the own chart of a revision, by any of its names."""
        return self._ready.get((kind, name)) or self.charts.find(kind, name)

    async def _compatible_with(self, snapshot: Snapshot) -> Kernel:
        """Return the chart that declares itself compatible with the revision of an entity, and has its states.

        Raises UnavailableError when there is none.
        """
        kind, revision = snapshot.kind, snapshot.revision
        found = await self.compatible(kind, revision)
        if found is None:
            raise self._missing(kind, revision)
        if not found.has(snapshot):
            states = ", ".join(f"`{each}`" for each in snapshot.configuration)
            message = (
                f"`{snapshot.entity}` is in {states}. Revision {found.chart.revision} lacks one of these states, or a "
                f"state in a history, although it declares itself compatible with {revision}"
            )
            hint = "load the chart of that revision too, or keep its states until no entity is in them"
            raise UnavailableError(message, code="revision.unknown", hint=hint)
        remember_chart(found.chart, revision=revision)
        return found

    def _missing(self, kind: str, revision: str) -> UnavailableError:
        """Return the error for a revision that no chart of this process may run; another process may have it."""
        if self.charts.current(kind) is None:
            message = f"this process has no chart of kind `{kind}` and cannot run its entities"
            return UnavailableError(message, code="kind.unknown", hint="load that chart too")
        message = f"this process has no chart for revision {revision} of `{kind}`"
        hint = "load that revision too, or save its definition: interlock db definitions add FILE"
        return UnavailableError(message, code="revision.unknown", hint=hint)

    async def for_repeating(self, kind: str, revision: str) -> Kernel:
        """Return the exact chart of a revision with all functions that it names, to repeat recorded steps.

        Raises UnavailableError as `for_step` does.
        """
        own = self.charts.find(kind, revision)
        stored = None if own is not None else await self._find_stored(kind, revision)
        if own is None and stored is None:
            message = f"the store has no definition of revision {revision} of `{kind}`"
            hint = "give its chart, or save it: interlock db definitions add FILE"
            raise UnavailableError(message, code="revision.unknown", hint=hint)
        if stored is not None and stored.missing:
            raise missing_functions(stored.kernel.chart, stored.missing)
        kernel = own if stored is None else stored.kernel
        assert kernel is not None
        return kernel

    async def chart(self, kind: str, revision: str) -> Chart:
        """Return the chart of a revision. Raises UnavailableError as `for_reading` does."""
        return (await self.for_reading(kind, revision)).chart

    async def newest(self, kind: str) -> Kernel:
        """Return the chart for new entities, else the newest stored one. Raises NotFoundError when there is none."""
        current = self.charts.current(kind)
        if current is None:
            for each in reversed(await self.editions(kind)):
                stored = await self._find_stored(kind, each.revision)
                if stored is not None:
                    return stored.kernel
        return self.charts.for_new_entity(kind)

    def missing_call(self, kernel: Kernel) -> str | None:
        """Return a function that the last steps of a kernel called and that is not registered here, and forget it."""
        stored = self._stored.get((kernel.chart.kind, kernel.chart.revision))
        if stored is None or not stored.called:
            return None
        name = stored.called[0]
        stored.called.clear()
        return name

    def for_child(self, parent: Kernel, src: object) -> Kernel:
        """Return the chart of a child: an inline chart of the parent, or the current one of a kind.

        Raises NotFoundError.
        """
        if isinstance(src, str) and any(name == src for name, _ in parent.chart.inline):
            chart = next(each for name, each in parent.chart.inline if name == src)
            return self.charts.find(chart.kind, chart.revision) or inline_kernels(parent)[src]
        return self.charts.for_new_entity(str(src))

    async def definition(self, kind: str, revision: str) -> Definition | None:
        """Return the definition of a revision as it can be saved in another store; None if it is unknown here."""
        own = self.charts.find(kind, revision)
        if own is not None and (made := make_definition(own.chart)) is not None:
            return made
        found = () if self._definitions is None else await self._definitions.read_definitions(kind, revision)
        return found[0].definition if len(found) == 1 else None

    async def document(self, kind: str, revision: str) -> Document | None:
        """Return the document of a revision, without compiling it; None if it cannot be read here."""
        from interlock.definition.json.format import read_json

        own = self.charts.find(kind, revision)
        if own is not None and own.chart.document is not None:
            return own.chart.document
        found = await self.definition(kind, revision)
        return None if found is None else read_json(found.body, source=f"<{kind} {revision}>").document

    # The index

    async def editions(self, kind: str) -> tuple[Edition, ...]:
        """Return the editions of a kind, read once; read again when a revision is unknown."""
        if self._definitions is None:
            return ()
        found = self._editions.get(kind)
        if found is None:
            found = self._editions[kind] = await self._definitions.list_definitions(kind)
        return found

    async def warn_outdated(self) -> None:
        """Log a warning for each own chart with a lower label than the newest edition that the store has of its kind.

        In a rolling deployment the store has seen the older chart before: then there is no warning.
        """
        for kind in self.charts.kinds() if self._definitions is not None else ():
            current = self.charts.for_new_entity(kind)
            editions = await self.editions(kind)
            newest = newest_edition(editions)
            if newest is None or not is_lower(current.chart.label, newest.label):
                continue
            own, outdated = make_definition(current.chart), outdated_editions(editions)
            if own is None or own.digest in {each.digest for each in editions if each not in outdated}:
                continue
            facts = {"kind": kind, "label": current.chart.label, "newest": newest.label, "revision": newest.revision}
            _log.warning("this process serves an outdated chart; roles and moves follow the newest one", extra=facts)

    async def label(self, kind: str, revision: str) -> str | None:
        """Return the label of a revision: that of its newest edition or of the own chart, or the first part of an older
        name.
        """
        labels = [each.label for each in await self.editions(kind) if revision in (each.revision, *each.names)]
        own = self.charts.find(kind, revision)
        label, plus, _ = revision.partition("+")
        return (labels[-1] if labels else None) or (own and own.chart.label) or (label if plus else None)

    # Stored definitions

    async def _find_stored(self, kind: str, name: str) -> StoredRevision | None:
        """Return a stored revision; None when the store does not have it. Raises UnavailableError."""
        if self._definitions is None:
            return None
        found = self._stored.get((kind, name))
        if found is not None:
            self._stored.move_to_end((kind, name))
            return found
        since_ms = self._unknown.get((kind, name))
        if since_ms is not None and 0 <= self._clock.now_ms() - since_ms < REVISIONS_UNKNOWN_MS:
            return None
        return await self._once(("read", kind, name), lambda: self._read(kind, name))

    async def _read(self, kind: str, name: str) -> StoredRevision | None:
        assert self._definitions is not None
        found = await self._definitions.read_definitions(kind, name)
        self._editions.pop(kind, None)
        if not found:
            if len(self._unknown) >= REVISIONS_UNKNOWN_MAX:
                self._unknown.clear()
            self._unknown[kind, name] = self._clock.now_ms()
            return None
        if len(found) > 1:
            raise _ambiguous(kind, name, [each.edition for each in found])
        guards, assigns, language = self._functions(kind)
        compiling = partial(compile_stored, found[0], guards, assigns, language)
        stored = compiling() if self._is_direct else await in_thread(compiling)
        self._keep(kind, (name, stored.kernel.chart.revision), stored)
        return stored

    def _keep(self, kind: str, names: Iterable[str], stored: StoredRevision) -> None:
        for each in dict.fromkeys(names):
            self._stored[kind, each] = stored
        while len(self._stored) > REVISIONS_CACHED_MAX:
            self._stored.popitem(last=False)

    def _functions(self, kind: str) -> tuple[dict[str, Any], dict[str, Any], Language]:
        """Return the guards and assigns of the own charts of a kind, newest first, and their language.

        An inline chart, such as `order.payment`, has those of `order`, too, if the newest chart no longer has its kind.
        """
        guards: dict[str, Any] = {}
        assigns: dict[str, Any] = {}
        parts = kind.split(".")
        kinds = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
        kernels = [each for name in kinds for each in reversed(list(self.charts.revisions(name).values()))]
        for each in kernels:
            guards = {**each.actions.guards, **guards}
            assigns = {**each.actions.assigns, **assigns}
        return guards, assigns, kernels[0].actions.language if kernels else SAFE

    async def _once(self, name: tuple[str, ...], work: Callable[[], Awaitable[T]]) -> T:
        """Run work, or wait for the task that is running it. A caller that is cancelled does not cancel the others."""
        if self._is_direct:
            return await work()
        task = self._tasks.get(name)
        if task is None:
            task = asyncio.ensure_future(_awaited(work))
            self._tasks[name] = task
            task.add_done_callback(lambda done: self._finish(name, done))
        result: T = await asyncio.shield(task)
        return result

    def _finish(self, name: tuple[str, ...], task: asyncio.Task[Any]) -> None:
        self._tasks.pop(name, None)
        if not task.cancelled():
            task.exception()  # retrieved: every caller may have been cancelled


async def _awaited(work: Callable[[], Awaitable[T]]) -> T:
    return await work()


# Definitions of charts


def make_definition(chart: Chart) -> Definition | None:
    """Return the definition of a chart; None for a chart that was made without a document.

    Raises UsageError if it is too large to be stored.
    """
    # Imported when needed: a process that only reads does not need the writer of definitions.
    from interlock.definition.json.format import canonical_json
    from interlock.evolve.identity import SCHEME, behaviour_name

    if chart.document is None:
        return None
    is_named = chart.other_names and chart.revision.startswith(f"{SCHEME}.")
    revision = chart.revision if is_named else behaviour_name(chart.document)
    names = tuple(each for each in (chart.revision, *chart.other_names) if each != revision)
    label = None if chart.label is None else storable_text(chart.label, LABEL_LENGTH_MAX)
    return Definition(kind=chart.kind, revision=revision, body=canonical_json(chart.document), label=label, names=names)


def restamped(kernel: Kernel, revision: str, names: set[str]) -> Kernel:
    """Return a kernel whose entries have this name; the same one if they have it already."""
    chart = kernel.chart
    others = tuple(sorted({*names, chart.revision, *chart.other_names} - {revision}))
    if chart.revision == revision and set(others) <= set(chart.other_names):
        return kernel
    actions = kernel.actions
    return Kernel(
        replace(chart, revision=revision, other_names=others),
        guards=actions.guards,
        assigns=actions.assigns,
        language=actions.language,
        fast=kernel.fast,
    )


def compile_stored(
    stored: StoredDefinition, guards: Mapping[str, Any], assigns: Mapping[str, Any], language: Language
) -> StoredRevision:
    """Return the kernel of a stored definition. Raises UnavailableError: `definition.damaged`, `definition.newer`."""
    from interlock.compiler.build import compile_document
    from interlock.definition.json.format import read_json
    from interlock.evolve.identity import SCHEME, behaviour_name, named

    edition, body = stored.edition, stored.body
    if body is None:
        raise _damaged(edition, "its bytes do not match their digest")
    if _vocabulary(body) > VOCABULARY:
        raise _newer(edition, f"it is written in vocabulary {_vocabulary(body)}")
    reading = read_json(body, source=f"<{edition.kind} {edition.revision}>")
    errors = [each for each in reading.diagnostics if each.severity == "error"]
    if reading.document is None or errors:
        raise _newer(edition, errors[0].message if errors else "it is not a definition")
    if reading.document.kind != edition.kind:
        raise _damaged(edition, f"it is of kind `{reading.document.kind[:80]}`")
    if edition.revision.partition(".")[0] == SCHEME and behaviour_name(reading.document) != edition.revision:
        raise _damaged(edition, "it has another behaviour than its name says")
    compiled = compile_document(reading.document, language=language)
    if compiled.chart is None:
        first = next(each for each in compiled.diagnostics if each.severity == "error")
        raise _newer(edition, first.message)
    chart = named(compiled.chart)
    names = {edition.revision, *edition.names, chart.revision, *chart.other_names}
    written = edition.written_name if edition.written_name in names else edition.revision
    chart = replace(chart, revision=written, other_names=tuple(sorted(names - {written})))
    missing = tuple(each for each in chart.guards if each not in guards)
    missing += tuple(each for each in chart.assigns if each not in assigns)
    called: list[str] = []
    placeholders = {each: Placeholder(each, called) for each in missing}
    kernel = Kernel(chart, guards={**placeholders, **guards}, assigns={**placeholders, **assigns}, language=language)
    return StoredRevision(kernel, missing, called)


def _vocabulary(body: bytes) -> int:
    """Return the number of the vocabulary of a definition; 0 if there is none."""
    try:
        found = msgspec.json.decode(body)
    except UNDECODABLE:
        return 0
    number = found.get("interlock") if isinstance(found, dict) else None
    return number if isinstance(number, int) else 0


# Errors


def missing_functions(chart: Chart, names: tuple[str, ...]) -> UnavailableError:
    """Return the error for functions that a definition names and this process does not have."""
    shown = ", ".join(f"`{each}`" for each in names)
    message = f"revision {chart.revision} of `{chart.kind}` needs {shown}, which this process does not register"
    hint = "register it on the newest chart of this kind, with other_revisions=True if that chart does not name it"
    return UnavailableError(message, code="function.missing", hint=hint)


def _damaged(edition: Edition, why: str) -> UnavailableError:
    message = f"the stored definition of `{edition.kind}` {edition.revision} is damaged: {why}"
    hint = "save it again: interlock db definitions add FILE"
    return UnavailableError(message, code="definition.damaged", hint=hint)


def _newer(edition: Edition, why: str) -> UnavailableError:
    message = f"this release cannot read the stored definition of `{edition.kind}` {edition.revision}: {why}"
    hint = "a newer release of Interlock wrote it: upgrade this process"
    return UnavailableError(message, code="definition.newer", hint=hint)


def _ambiguous(kind: str, name: str, editions: list[Edition]) -> UnavailableError:
    names = " and ".join(each.revision for each in editions)
    message = f"revision {name} of `{kind}` may be {names}: an earlier release gave both this name"
    return UnavailableError(message, code="revision.ambiguous", hint="load the chart of the right one")
