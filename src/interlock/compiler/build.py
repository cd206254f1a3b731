"""Document to chart: expand sagas, resolve names, number states and transitions, check, and report all problems.

Rule 1: a chart is built only if no diagnostic is an error.
Rule 2: the order in which a state's transitions are tried is fixed here: results of invokes, then its own in document
        order.
Rule 3: a chart is named by its label and a hash over the content of the document. `evolve.identity` names it by its
        behaviour.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from interlock.compiler.approvals import expand_approvals
from interlock.compiler.checks.limits import check_nesting
from interlock.compiler.checks.run import run_checks
from interlock.compiler.checks.sensitive import with_hidden_states
from interlock.compiler.resolve import NameResolver, exact_descriptor, parse_descriptor
from interlock.compiler.saga import expand_sagas, saga_info, unwind_of
from interlock.errors import Diagnostic, SourceLocation
from interlock.expression.language import SAFE, Language
from interlock.model.charts.chart import (
    DIALECTS,
    After,
    Chart,
    Descriptor,
    Invoke,
    LateCompensation,
    RetentionPolicy,
    State,
    StateType,
    Transition,
)
from interlock.model.charts.sites import block_sites, guard_sites
from interlock.model.diagnostics import Diagnostics
from interlock.model.document import document as doc
from interlock.model.document.actions import AssignCall, Do, Expression, GuardName
from interlock.model.document.document import DialectName
from interlock.model.document.field import UNSET, Field, field_at
from interlock.model.document.walk import guard_parts
from interlock.model.duration import format_duration, parse_duration
from interlock.model.encoding.codec import content_hash
from interlock.model.limits import DELAY_MS_MAX, DEPTH_MAX, KEY_WINDOW_MS, STATES_MAX, TRANSITIONS_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileResult:
    """The chart (None if a diagnostic is an error) and all diagnostics, sorted by position."""

    chart: Chart | None
    diagnostics: tuple[Diagnostic, ...]


def compile_document(document: doc.Document, *, language: Language = SAFE) -> CompileResult:
    """The chart of a document, with all errors and lints."""
    diagnostics = Diagnostics()
    if not _within_limits(document, diagnostics) or not check_nesting(document, diagnostics):
        return CompileResult(chart=None, diagnostics=_unique(diagnostics))
    written = document
    document = expand_approvals(expand_sagas(document, diagnostics))
    if document is not written and not _within_limits(document, diagnostics):
        return CompileResult(chart=None, diagnostics=_unique(diagnostics))
    builder = ChartBuilder(document, language, diagnostics, content_hash(written))
    chart = replace(builder.chart(), document=written)
    is_covered = run_checks(chart, written, builder.names, diagnostics)
    if diagnostics.has_errors:
        return CompileResult(chart=None, diagnostics=_unique(diagnostics))
    chart = with_hidden_states(chart, is_covered=is_covered)
    return CompileResult(chart=chart, diagnostics=_unique(diagnostics))


def _unique(diagnostics: Diagnostics) -> tuple[Diagnostic, ...]:
    """The diagnostics, sorted and without the duplicates that the states of a saga cause."""
    return tuple(dict.fromkeys(diagnostics.sorted()))


def _within_limits(document: doc.Document, diagnostics: Diagnostics) -> bool:
    """Whether the document is within the limits that keep every later walk over it short."""
    states, transitions = -1, 0  # the root is not counted
    stack = [(document.root, 0)]
    while stack:
        state, depth = stack.pop()
        states += 1
        transitions += len(state.transitions)
        if depth > DEPTH_MAX:
            diagnostics.error("chart.depth", f"states are nested more than {DEPTH_MAX} levels deep", state.location)
            return False
        stack.extend((child, depth + 1) for child in state.states)
    if states > STATES_MAX:
        diagnostics.error(
            "chart.states", f"the chart has {states:,} states; the limit is {STATES_MAX:,}", document.root.location
        )
    if transitions > TRANSITIONS_MAX:
        message = f"the chart has {transitions:,} transitions; the limit is {TRANSITIONS_MAX:,}"
        diagnostics.error("chart.transitions", message, document.root.location)
    return states <= STATES_MAX and transitions <= TRANSITIONS_MAX


class ChartBuilder:
    """Numbers the states and transitions of one document and resolves its names."""

    def __init__(self, document: doc.Document, language: Language, diagnostics: Diagnostics, content: str) -> None:
        self.document = document
        self.diagnostics = diagnostics
        self.content = content
        self.language = language
        self.names = NameResolver(document, language, diagnostics)
        self.tree = self.names.tree
        self.transitions: list[Transition] = []
        self.inline: list[tuple[str, Chart]] = []

    def chart(self) -> Chart:
        document, tree = self.document, self.tree
        for index in tree.duplicate_ids():
            name = tree.ids[index]
            other = tree.states[tree.by_id[name]].location
            message = f'two states have the id "{name}"; the other is at {other.line}:{other.column}'
            self.diagnostics.error("state.duplicate_id", message, tree.states[index].location)
        dialect = DIALECTS[document.dialect]
        if document.errors is not None:
            dialect = replace(dialect, errors=document.errors)
        label = document.revision
        states = tuple(self._state(index) for index in range(len(tree.states)))
        chart = Chart(
            kind=document.kind,
            revision=f"{label or '0'}+{self.content}",
            dialect=dialect,
            states=states,
            transitions=tuple(self.transitions),
            completion_root=1 if document.dialect == "xstate" and len(document.root.states) == 1 else 0,
            unhandled=document.unhandled or dialect.unhandled,
            binding=document.binding,
            create=document.create,
            read=document.read,
            events=self._events(),
            script=self._script(),
            label=label,
            compatible=document.compatible,
            upgrade=document.upgrade,
            retention=self._retention(),
            renamed=document.renamed,
            properties=document.properties,
            inline=tuple(self.inline),
            source=document.source,
        )
        return with_required_names(chart)

    def _retention(self) -> RetentionPolicy | None:
        """The retention, in milliseconds. A key that does nothing is an error: its author expects something of it."""
        written = self.document.retention
        if written is None:
            return None
        if written.ended is None and written.entries is None:
            hint = "such as {ended: 90d, entries: 400d}"
            self.diagnostics.error("retention.empty", "`retention` removes nothing", written.location, hint=hint)
        ended_ms = None if written.ended is None else parse_duration(written.ended)
        entries_ms = None if written.entries is None else parse_duration(written.entries)
        if entries_ms is not None and entries_ms < KEY_WINDOW_MS:
            message = f"`entries: {written.entries}` is shorter than keys are remembered"
            self.diagnostics.error("retention.entries", message, written.location, hint="30d at least")
        return RetentionPolicy(ended_ms, entries_ms, written.archive)

    def _state(self, index: int) -> State:
        tree, written = self.tree, self.tree.states[index]
        children = tuple(tree.children[index])
        invokes = tuple(self._invoke(index, position, each) for position, each in enumerate(written.invokes))
        transitions, after = self._transitions(index, written, invokes)
        kind = self._type(index, written)
        parent = tree.parents[index]
        history = kind == "history"
        return State(
            index=index,
            id=tree.ids[index],
            key=written.key,
            type=kind,
            parent=parent,
            last=tree.last[index],
            depth=tree.depths[index],
            children=children,
            initial=self._initial(index, written) if kind == "compound" else (),
            initial_block=self.names.block(index, written.initial.actions) if written.initial else (),
            entry=tuple(self.names.block(index, block) for block in written.entry if block),
            exit=tuple(self.names.block(index, block) for block in written.exit if block),
            transitions=transitions,
            after=after,
            invokes=invokes,
            context=tuple(self._field(index, each) for each in written.context),
            history=written.history if history else None,
            default=self._default(index, written) if history else (),
            default_block=self.names.block(index, written.actions),
            output=self.names.value(index, written.output),
            saga=saga_info(written, tree.ids[index], tree.by_id),
            saga_unwind=unwind_of(written, tree.ids[index], tree.by_id),
            expect=written.expect,
            sensitive=written.sensitive,
            description=written.description,
            tags=written.tags,
            meta=written.meta,
            location=written.location,
        )

    def _type(self, index: int, written: doc.State) -> StateType:
        if written.type != "state":
            return written.type
        return "compound" if self.tree.children[index] or index == 0 else "atomic"

    def _initial(self, index: int, written: doc.State) -> tuple[int, ...]:
        if written.initial is not None:
            return self.names.resolve_children(index, written.initial.targets, written.initial.location)
        first = [each for each in self.tree.children[index] if self.tree.states[each].type != "history"]
        return (first[0],) if first else ()

    def _default(self, index: int, written: doc.State) -> tuple[int, ...]:
        return self.names.resolve_children(self.tree.parents[index], written.targets, written.location)

    def _field(self, index: int, field: Field) -> Field:
        return field if field.default is UNSET else replace(field, default=self.names.value(index, field.default))

    def _transitions(
        self, index: int, written: doc.State, invokes: tuple[Invoke, ...]
    ) -> tuple[tuple[int, ...], tuple[After, ...]]:
        made: list[Transition] = []
        for invoke, source in zip(invokes, written.invokes, strict=True):
            made += self._invoke_results(index, invoke, source)
        afters = _Afters()
        for each in written.transitions:
            descriptors, driven = self._descriptors(index, each, afters), each.origin in ("after", "onDone")
            made.append(self._transition(index, each, descriptors, _label(each), driven=driven))
        ordered = selection_order(made, self.document.dialect)
        numbers = tuple(range(len(self.transitions), len(self.transitions) + len(ordered)))
        self.transitions += [replace(each, index=number) for each, number in zip(ordered, numbers, strict=True)]
        return numbers, tuple(afters.by_label.values())

    def _invoke_results(self, index: int, invoke: Invoke, source: doc.Invoke) -> list[Transition]:
        made = []
        for name, label, found in (("done", "done", source.done), ("error", "error", source.error)):
            for each in found:
                descriptors = (exact_descriptor(f"{name}.invoke.{invoke.id}"),)
                made.append(self._transition(index, each, descriptors, f"{label} {invoke.id}", driven=True))
        return made

    def _descriptors(self, index: int, written: doc.Transition, afters: _Afters) -> tuple[Descriptor, ...]:
        name = self.tree.ids[index]
        match written.origin:
            case "after":
                return (exact_descriptor(self._after(index, written, afters)),)
            case "onDone":
                return (exact_descriptor(f"done.state.{name}"),)
            case _:
                return tuple(parse_descriptor(text, self.document.dialect) for text in written.events)

    def _after(self, index: int, written: doc.Transition, afters: _Afters) -> str:
        """The event of an `after`. Transitions of one state with the same delay share one timer."""
        delay, name = written.delay, self.tree.ids[index]
        text = delay.text if isinstance(delay, Expression) else str(delay)
        known = afters.by_label.get(text)
        if known is not None:
            return known.event
        value: int | Expression
        if isinstance(delay, Expression):
            mark = str(afters.expressions)
            afters.expressions += 1
            value = self.names.expression(index, delay)
        else:
            mark, value = text, self._duration(text, written.location) or 0
        event = f"after.{mark}.{name}"
        afters.by_label[text] = After(event=event, delay=value, restore=written.restore or "deadline", label=text)
        return event

    def _transition(
        self, index: int, written: doc.Transition, descriptors: tuple[Descriptor, ...], label: str, *, driven: bool
    ) -> Transition:
        return Transition(
            index=0,
            source=index,
            descriptors=descriptors,
            targets=self.names.resolve_targets(index, written.targets, written.location),
            guard=self.names.guard(index, written.guard),
            block=self.names.block(index, written.actions),
            internal=written.reenter is False,
            reenter=written.reenter is True,
            roles=written.roles,
            driven=driven,
            origin=written.origin,
            label=label,
            description=written.description,
            meta=written.meta,
            location=written.location,
        )

    def _invoke(self, index: int, position: int, written: doc.Invoke) -> Invoke:
        state = self.tree.ids[index]
        name = written.id
        if name is None and (written.done or written.error or written.personal):
            name = f"{state}.{position}"
        src = written.src
        if isinstance(src, doc.Document):
            src = self._inline(f"{state}.{position}", src)
        elif isinstance(src, Expression):
            src = self.names.expression(index, src)
        return Invoke(
            id=name,
            src=src,
            id_location=written.id_location,
            type=self.names.value(index, written.type),
            input=self.names.value(index, written.input),
            autoforward=written.autoforward,
            finalize=None if written.finalize is None else self.names.block(index, written.finalize),
            retry=written.retry,
            timeout_ms=self._duration(written.timeout, written.location),
            key=self.names.value(index, written.key),
            restore=written.restore or "keep",
            late=self._late(index),
            personal=written.personal or self._personal_output(index),
            location=written.location,
        )

    def _saga_step(self, index: int) -> doc.SagaStep | None:
        """The saga step that a state was generated from."""
        parent = self.tree.states[self.tree.parents[index]] if index > 0 else self.tree.states[0]
        if parent.saga is None:
            return None
        return next((each for each in parent.saga.steps if each.id == self.tree.states[index].key), None)

    def _personal_output(self, index: int) -> Literal[True] | None:
        """Whether a saga step puts its result into a personal field: then the whole result is personal."""
        step = self._saga_step(index)
        if step is None or step.do.output is None:
            return None
        declared = {field.name: field for state in self.tree.states for field in state.context}
        field = field_at(declared, step.do.output)
        return True if field is not None and field.personal else None

    def _late(self, index: int) -> LateCompensation | None:
        """The compensation for a saga step whose result arrives after the saga was left (S30)."""
        step = self._saga_step(index)
        parent = self.tree.states[max(self.tree.parents[index], 0)]
        if step is None or step.compensate is None or parent.saga is None or parent.saga.compensation == "none":
            return None
        return LateCompensation(
            name=step.compensate.src,
            input=self.names.value(index, step.compensate.input),
            output=step.do.output,
            key=self.names.value(index, step.do.key),
        )

    def _inline(self, name: str, document: doc.Document) -> str:
        compilation = compile_document(document, language=self.language)
        self.diagnostics.items += compilation.diagnostics
        if compilation.chart is not None:
            self.inline.append((name, compilation.chart))
        return name

    def _duration(self, text: str | None, location: SourceLocation) -> int | None:
        if text is None:
            return None
        ms = parse_duration(text)
        if ms is None:
            self.diagnostics.error(
                "duration.syntax", f'"{text}" is not a duration', location, "write it like 30s or 1h30m"
            )
        elif ms > DELAY_MS_MAX:
            longest = format_duration(DELAY_MS_MAX)
            self.diagnostics.error(
                "duration.range", f'the duration "{text}" is too long', location, f"the longest is {longest}"
            )
        return ms

    def _events(self) -> tuple[doc.EventType, ...] | None:
        if self.document.events is None:
            return None
        return tuple(replace(each, dedupe=self.names.value(0, each.dedupe)) for each in self.document.events)

    def _script(self) -> str | None:
        script = self.document.script
        if script is not None and self.language.script(script) is None:
            hint = "move the work into registered functions or assign actions"
            self.diagnostics.error(
                "script.untrusted", "scripts are not allowed: they run code", self.document.root.location, hint
            )
        return script


def _label(written: doc.Transition) -> str:
    match written.origin:
        case "after":
            text = written.delay.text if isinstance(written.delay, Expression) else written.delay
            return f"after {text}"
        case "onDone":
            return "done"
        case _:
            return ", ".join(written.events) or "always"


def with_required_names(chart: Chart) -> Chart:
    """The chart with the names of guards, functions, handlers and charts that it needs, each list sorted."""
    inline = {name for name, _ in chart.inline}
    sources = [
        (invoke.src, invoke.type == "chart")
        for state in chart.states
        for invoke in state.invokes
        if isinstance(invoke.src, str) and invoke.src not in inline
    ]
    actions = [action for site in block_sites(chart) for action in site.actions()]
    calls = {action.name for action in actions if isinstance(action, Do)}
    parts = (part for _, guard, _ in guard_sites(chart) for part in guard_parts(guard))
    return replace(
        chart,
        guards=_sorted({part.name for part in parts if isinstance(part, GuardName)}),
        assigns=_sorted({action.name for action in actions if isinstance(action, AssignCall)}),
        handlers=_sorted(calls | {src for src, is_chart in sources if not is_chart}),
        charts=_sorted({src for src, is_chart in sources if is_chart}),
    )


def _sorted(names: set[str]) -> tuple[str, ...]:
    return tuple(sorted(names))


def selection_order(transitions: list[Transition], dialect: DialectName) -> list[Transition]:
    """The transitions of a state in the order in which they are tried: as written, except in XState.

    XState tries exact names first, then longer wildcards before shorter ones.
    """
    if dialect != "xstate":
        return transitions
    return sorted(transitions, key=lambda each: xstate_rank(each.descriptors))


def xstate_rank(descriptors: tuple[Descriptor, ...]) -> tuple[bool, int]:
    """The rank of a transition among those of its state in XState: the smallest is tried first."""
    if not descriptors or descriptors[0].exact:
        return (False, 0)
    return (True, -len(descriptors[0].text))


class _Afters:
    """The timers of a state by their delay as written, and how many of them are computed."""

    def __init__(self) -> None:
        self.by_label: dict[str, After] = {}
        self.expressions = 0
