"""Load charts: the only module that knows every format by name and reads definition files.

`load` returns a `BoundChart`: the immutable chart with the registered functions and handlers of the application.
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast, overload

from interlock.compiler.build import CompileResult, compile_document
from interlock.definition.format import Format, ReadResult, SourceLoader, WriteResult
from interlock.errors import DefinitionError, Diagnostic, NotFoundError, SourceLocation, UsageError
from interlock.evolve.identity import named
from interlock.kernel.explain import Candidate
from interlock.kernel.step import Kernel, check_time
from interlock.model.arguments import check_options
from interlock.model.charts.chart import Chart
from interlock.model.charts.known_charts import remember_chart
from interlock.model.diagnostics import suggestion
from interlock.model.document.document import Document, State
from interlock.model.document.field import copy_json, json_problem
from interlock.model.driver_events import Done, call_failed, invoke_done, invoke_failed, timer_fired
from interlock.model.duration import parse_duration
from interlock.model.effect import Effect
from interlock.model.encoding.convert import Model, from_json
from interlock.model.encoding.json_value import context_values
from interlock.model.event import Event
from interlock.model.limits import (
    DEFINITION_BYTES_MAX,
    DEFINITION_STORED_BYTES_MAX,
    RECONCILE_RATE,
    RECONCILE_RUNNING_MAX,
)
from interlock.model.snapshot import Snapshot, Timer
from interlock.model.step import Step
from interlock.runtime.reconcile.definition import Reconciler, ReconcilerOptions, build_reconciler

if TYPE_CHECKING:
    from interlock.effects.handlers import Attempt
    from interlock.effects.retry import HandlerDefaults
    from interlock.evolve.carry import Carrier
    from interlock.kernel.speed_report import SpeedReport
    from interlock.render.drawing import Drawing

FORMAT_MODULES = {
    "yaml": ("yaml.format", "FORMAT"),
    "scxml": ("scxml.format", "FORMAT"),
    "json": ("json.format", "FORMAT"),
    "xstate": ("xstate.format", "FORMAT"),
    "xstate4": ("xstate.format", "FORMAT_V4"),
    "smcat": ("smcat.format", "FORMAT"),
}
"""The formats of this package: the module in `definition/` and the name of its `Format`."""

FORMATS = tuple(FORMAT_MODULES)

FORMAT_GROUP = "interlock.formats"
"""The entry points by which other packages add formats: a name, and a `Format`."""

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])
I = TypeVar("I")  # noqa: E741  # the input of a handler
R = TypeVar("R")

CONTEXT = "context"
"""The key of `models` for the context of a chart."""

NO_MODELS: Mapping[str, type[Any]] = MappingProxyType({})

if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultTypeVar

    C = DefaultTypeVar("C", default=dict[str, Any])
else:  # a default of a type variable needs Python 3.13 at run time
    C = TypeVar("C")


def get_format(name: str) -> Format:
    """Return the format of this name, imported on first use. Raises UsageError if it is unknown."""
    if name in FORMAT_MODULES:
        module, attribute = FORMAT_MODULES[name]
        found: Format = getattr(import_module(f"interlock.definition.{module}"), attribute)
        return found
    others = _other_formats()
    if name in others:
        other: Format = others[name].load()
        return other
    known = (*FORMATS, *others)
    hint = suggestion(name, known) or f"the formats are {', '.join(known)}"
    raise UsageError(f'unknown format "{name}"', code="format.unknown", hint=hint)


def format_writer(name: str) -> Callable[[Document], WriteResult]:
    """Return the function that writes documents in this format. Raises UsageError for one that is only read."""
    found = get_format(name)
    if found.is_read_only:
        known = ", ".join(each for each in FORMATS if not get_format(each).is_read_only)
        message = f"the format {name} can be read but not written"
        raise UsageError(message, code="format.read_only", hint=f"write it as one of {known}")
    return found.write


def _other_formats() -> dict[str, Any]:
    found = import_module("importlib.metadata").entry_points(group=FORMAT_GROUP)
    return {each.name: each for each in found if each.name not in FORMAT_MODULES}


def format_for_suffix(name: str) -> str | None:
    """Return the name of the format in which a file of this name is written, or None."""
    return next(_formats_with_suffix(name), None)


def format_for_text(name: str, text: str | bytes) -> str | None:
    """Return the name of the format of a file by its suffix, or None.

    If several formats have the suffix, the text decides.
    """
    known = list(_formats_with_suffix(name))
    found = (each for each in known if (recognizes := get_format(each).recognizes) is not None and recognizes(text))
    return next(found, known[0] if known else None)


def _formats_with_suffix(name: str) -> Iterator[str]:
    """The formats that have the suffix of a file. Formats are imported as far as the caller reads."""
    known = (*FORMATS, *_other_formats()) if Path(name).suffix else ()
    return (each for each in known if name.lower().endswith(get_format(each).suffixes))


def suffixes() -> list[str]:
    """Return the suffixes of all formats of this package."""
    return list(dict.fromkeys(suffix for name in FORMATS for suffix in get_format(name).suffixes))


def read_text(text: str | bytes, *, format: str, source: str, loader: SourceLoader | None = None) -> ReadResult:
    """Return the document and diagnostics of a text. `source` is its name in diagnostics."""
    return get_format(format).read(text, source=source, loader=loader)


def read_file(path: str | os.PathLike[str], *, format: str | None = None, allow_src: bool = False) -> ReadResult:
    """Return the document and diagnostics of a file. No other file is opened unless `allow_src` is set.

    With `allow_src`, the attribute `src` of SCXML may name regular files in the folder of the definition and below.
    Raises NotFoundError if the file does not exist, UsageError if its format is unknown.
    """
    file = Path(path)
    data = _bytes(file)
    named = format or format_for_text(file.name, data)
    if named is None:
        known = ", ".join(suffixes())
        raise UsageError(
            f"unknown format of {file.name}", code="format.unknown", hint=f"pass `format`, or use one of {known}"
        )
    return read_text(data, format=named, source=str(path), loader=_resolver(file.parent) if allow_src else None)


def _bytes(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            # One byte more than allowed, so that the reader sees that it is too large.
            return stream.read(DEFINITION_STORED_BYTES_MAX + 1)
    except FileNotFoundError:
        raise NotFoundError(f"file {file} does not exist", code="file.not_found", hint=_file_hint(file)) from None
    except IsADirectoryError:
        raise NotFoundError(f"{file} is a directory, not a definition", code="file.directory") from None
    except PermissionError:
        raise NotFoundError(f"no permission to read {file}", code="file.permission") from None
    except OSError as error:
        raise NotFoundError(f"{file} cannot be read: {error.strerror}", code="file.unreadable") from None


def _file_hint(file: Path) -> str | None:
    """Return the hint for a missing definition: a file with a similar name."""
    try:
        near = [each.name for each in file.parent.iterdir() if format_for_suffix(each.name) is not None]
    except OSError:
        return None
    stem = file.name.partition(".")[0]
    same = next((each for each in sorted(near) if each.partition(".")[0] == stem), None)
    return suggestion(file.name, near) if same is None else f'did you mean "{same}"?'


def _resolver(folder: Path) -> SourceLoader:
    """Return a function that reads files below this folder.

    It reads regular files only, no larger than a definition. It follows no symbolic links, opens no hidden files, and
    does not wait for a writer.
    """

    def resolve(reference: str) -> str:
        names = posixpath.normpath(reference.removeprefix("file:")).split("/")
        if "" in names or ".." in names:
            raise NotFoundError(f"{reference} is outside the definition's folder", code="file.outside")
        if any(each.startswith(".") for each in names):
            raise NotFoundError(f"{reference} is a hidden file", code="file.hidden")
        data = _bytes_below(folder, names)
        if len(data) > DEFINITION_BYTES_MAX:
            message = f"{reference} has more than {DEFINITION_BYTES_MAX:,} bytes"
            raise NotFoundError(message, code="file.too_large")
        return data.decode("utf-8")

    return resolve


def _bytes_below(folder: Path, names: list[str]) -> bytes:
    """Return the bytes of a regular file, up to one more than allowed. Each part of its path is opened separately."""
    above = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in names[:-1]:
            inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
            os.close(above)
            above = inner
        # O_NONBLOCK: opening a FIFO would otherwise wait for a writer.
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
        found = os.open(names[-1], flags, dir_fd=above)
        if not stat.S_ISREG(os.fstat(found).st_mode):
            os.close(found)
            raise NotFoundError(f"{'/'.join(names)} is not a regular file", code="file.not_regular")
        with os.fdopen(found, "rb") as stream:
            return stream.read(DEFINITION_BYTES_MAX + 1)
    except FileNotFoundError:
        raise NotFoundError(f"file {'/'.join(names)} does not exist", code="file.not_found") from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise NotFoundError(f"{'/'.join(names)} is a symbolic link", code="file.link") from None
        raise NotFoundError(f"{'/'.join(names)} cannot be read: {error.strerror}", code="file.unreadable") from None
    finally:
        os.close(above)


def compile_reading(reading: ReadResult) -> CompileResult:
    """Return the chart of a document, with the diagnostics of reader and compiler."""
    if reading.document is None or any(each.severity == "error" for each in reading.diagnostics):
        compilation = None if reading.document is None else compile_document(reading.document)
        # Lints would report parts as missing that could not be read, so only errors are kept.
        found = () if compilation is None else compilation.diagnostics
        extra = [each for each in found if each.severity == "error"]
        return CompileResult(chart=None, diagnostics=_sorted((*reading.diagnostics, *extra)))
    compilation = compile_document(reading.document)
    diagnostics = (*reading.diagnostics, *compilation.diagnostics)
    unstorable = () if compilation.chart is None else _storage_problems(reading)
    if unstorable:
        return CompileResult(chart=None, diagnostics=_sorted((*diagnostics, *unstorable)))
    chart = None if compilation.chart is None else named(compilation.chart)
    return CompileResult(chart=chart, diagnostics=_sorted(diagnostics))


def _storage_problems(reading: ReadResult) -> tuple[Diagnostic, ...]:
    """Return the errors for a definition that no store can keep, or that it could not give back.

    With aliases, a small text can be a large definition. SCXML and XState have values that the vocabulary does not
    have: entities would be created, and no other process could read their definition.
    """
    from interlock.definition.json.format import canonical_json, read_json

    document = reading.document
    assert document is not None
    try:
        stored = canonical_json(document)
    except UsageError as error:
        location = SourceLocation(file=document.source)
        return (Diagnostic(code=error.code, message=error.message, location=location, hint=error.hint),)
    if reading.is_vocabulary:
        return ()
    found = read_json(stored, source=document.source).diagnostics
    return tuple(
        replace(each, location=_nearest_location(document.root, each.location))
        for each in found
        if each.severity == "error"
    )


def _nearest_location(root: State, found: SourceLocation) -> SourceLocation:
    """Return the place in the text of the innermost state on the path of a problem, with that path."""
    state, rest = root, found.path
    while rest:  # each turn removes the key of a state
        inner = (each for each in state.states if rest.startswith((f"states.{each.key}.", f"states.{each.key}[")))
        below = max(inner, key=lambda each: len(each.key), default=None)
        if below is None:
            break
        state, rest = below, rest.removeprefix(f"states.{below.key}").lstrip(".")
    return replace(state.location, file=found.file, path=found.path)


def _sorted(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    return tuple(sorted(dict.fromkeys(diagnostics), key=lambda each: (each.location, each.code)))


@overload
def load(
    source: str | os.PathLike[str] | Document,
    *,
    context: type[C],
    models: Mapping[str, type[Any]] = ...,
    format: str | None = ...,
    allow_src: bool = ...,
) -> BoundChart[C]: ...


@overload
def load(
    source: str | os.PathLike[str] | Document,
    *,
    models: Mapping[str, type[Any]] = ...,
    format: str | None = ...,
    allow_src: bool = ...,
) -> BoundChart: ...


def load(
    source: str | os.PathLike[str] | Document,
    *,
    context: type[Any] | None = None,
    models: Mapping[str, type[Any]] = NO_MODELS,
    format: str | None = None,
    allow_src: bool = False,
    **unknown: Any,
) -> BoundChart[Any]:
    """Load a chart from a file, or from a document made by the builder.

    `context` is the model of the context: a dataclass, a msgspec Struct, a pydantic model or a TypedDict. `models` are
    those of events, by name: `{"payment.confirmed": Paid}`. They are compared with the fields of the chart. Then
    `context_of` returns the model, and `send("order/1", Paid(...))` finds its event.

    With `allow_src`, an SCXML file may include regular files of its folder and below by `src`. Do not set it for a
    definition that you do not trust: it could read files next to it.

    Raises DefinitionError with all diagnostics, NotFoundError if the file does not exist.

        order = interlock.load("order.interlock.yaml")
    """
    check_options(unknown, call="load", known=("context", "models", "format", "allow_src"))
    if isinstance(source, str) and "\n" in source:
        hint = "write interlock.loads(text)"
        raise UsageError("`load` reads a file, and got a text of several lines", code="text.file", hint=hint)
    found = ReadResult(document=source) if isinstance(source, Document) else None
    reading = found or read_file(source, format=format, allow_src=allow_src)  # type: ignore[arg-type]  # not a Document
    return _bind(reading, _all_models(context, models))


@overload
def loads(
    text: str | bytes,
    *,
    context: type[C],
    models: Mapping[str, type[Any]] = ...,
    format: str = ...,
    source: str = ...,
) -> BoundChart[C]: ...


@overload
def loads(
    text: str | bytes, *, models: Mapping[str, type[Any]] = ..., format: str = ..., source: str = ...
) -> BoundChart: ...


def loads(
    text: str | bytes,
    *,
    context: type[Any] | None = None,
    models: Mapping[str, type[Any]] = NO_MODELS,
    format: str = "yaml",
    source: str = "<text>",
    **unknown: Any,
) -> BoundChart[Any]:
    """Load a chart from text, as `load` does. Raises DefinitionError with all diagnostics."""
    check_options(unknown, call="loads", known=("context", "models", "format", "source"))
    if isinstance(text, os.PathLike) or (isinstance(text, str) and "\n" not in text and format_for_suffix(text)):
        hint = f"write interlock.load({os.fspath(text)!r:.80})"
        raise UsageError("`loads` reads a text, and got the name of a file", code="text.file", hint=hint)
    return _bind(read_text(text, format=format, source=source), _all_models(context, models))


def _all_models(context: type[Any] | None, models: Mapping[str, type[Any]]) -> dict[str, type[Any]]:
    """Return the models of a chart by name, that of the context under `context`."""
    if not isinstance(models, Mapping):
        hint = 'write models={"payment.confirmed": Paid}'
        raise UsageError(f"`models` must be a mapping, got {models!r:.80}", code="model.malformed", hint=hint)
    if context is not None and CONTEXT in models:
        hint = "write one of them; type checkers know the model of `context=`"
        raise UsageError(
            'a model of the context is given twice, by `context=` and by `models["context"]`',
            code="model.malformed",
            hint=hint,
        )
    return dict(models) if context is None else {CONTEXT: context, **models}


def _bind(reading: ReadResult, models: Mapping[str, type[Any]] = NO_MODELS) -> BoundChart[Any]:
    compilation = compile_reading(reading)
    if compilation.chart is None or reading.document is None:
        found = compilation.diagnostics or (
            Diagnostic(code="definition", message="the definition is empty", location=SourceLocation()),
        )
        raise DefinitionError(found)
    diagnostics = compilation.diagnostics
    if models:
        from interlock.compiler.models import check_models

        diagnostics = (*diagnostics, *check_models(compilation.chart, models))
        if any(each.severity == "error" for each in diagnostics):
            raise DefinitionError(diagnostics)
    return BoundChart(compilation.chart, reading.document, diagnostics, models)


class HandlerDecorator(Protocol):
    """Registers a handler: a function of the attempt, or of its input and the attempt."""

    @overload
    def __call__(self, function: Callable[[Attempt], Awaitable[R]], /) -> Callable[[Attempt], Awaitable[R]]: ...

    @overload
    def __call__(self, function: Callable[[I, Attempt], Awaitable[R]], /) -> Callable[[I, Attempt], Awaitable[R]]: ...

    @overload
    def __call__(self, function: Callable[[Attempt], AsyncIterator[R]], /) -> Callable[[Attempt], AsyncIterator[R]]: ...

    @overload
    def __call__(
        self, function: Callable[[I, Attempt], AsyncIterator[R]], /
    ) -> Callable[[I, Attempt], AsyncIterator[R]]: ...

    @overload
    def __call__(self, function: Callable[[Attempt], R], /) -> Callable[[Attempt], R]: ...

    @overload
    def __call__(self, function: Callable[[I, Attempt], R], /) -> Callable[[I, Attempt], R]: ...


class BoundChart(Generic[C]):
    """A chart with its registered guards, assign functions and handlers.

    The chart itself, `.chart`, is immutable. `start` and `step` are pure: they return values and have no side effects.
    """

    def __init__(
        self,
        chart: Chart,
        document: Document,
        diagnostics: tuple[Diagnostic, ...] = (),
        models: Mapping[str, type[Any]] = NO_MODELS,
    ) -> None:
        remember_chart(chart)
        self.chart = chart
        self.document = document
        self.diagnostics = diagnostics
        self.models = dict(models)
        self.guards: dict[str, Callable[..., Any]] = {}
        self.assigns: dict[str, Callable[..., Any]] = {}
        self.handlers: dict[str, Callable[..., Any]] = {}
        self.busy: set[str] = set()
        self.heartbeats: dict[str, int] = {}
        self.handler_defaults: HandlerDefaults | None = None
        self.reconcilers: dict[str, Reconciler] = {}
        self._kernel: Kernel | None = None

    def __repr__(self) -> str:
        chart = self.chart
        states, transitions = len(chart.states) - 1, len(chart.transitions)
        return f"<chart {chart.kind} {chart.revision_text}: {states} states, {transitions} transitions>"

    def __getstate__(self) -> dict[str, Any]:
        # The kernel is made again after unpickling: generated functions cannot be pickled.
        return {**{name: value for name, value in self.__dict__.items() if name != "step"}, "_kernel": None}

    def guard(self, name: str, *, other_revisions: bool = False) -> Callable[[AnyFunction], AnyFunction]:
        """Register a pure function of (context, event) as the guard with this name.

        With `other_revisions`, this chart need not use the name: entities of an earlier or later revision do. So code
        is deployed before the chart that names it, and stays while entities are on the last one that does.
        """
        return self._register(name, self.guards, self.chart.guards, "guard", other_revisions=other_revisions)

    def assign(self, name: str, *, other_revisions: bool = False) -> Callable[[AnyFunction], AnyFunction]:
        """Register a pure function of (context, event) that returns a mapping of fields to values.

        `other_revisions` is as in `guard`.
        """
        return self._register(name, self.assigns, self.chart.assigns, "assign", other_revisions=other_revisions)

    def handler(
        self, name: str, *, cpu: bool = False, heartbeat: str | None = None, other_revisions: bool = False
    ) -> HandlerDecorator:
        """Register the function that performs a named action or an invoke.

        A coroutine function runs in the event loop, a plain function in a thread, and with `cpu` in a separate process.
        With a `heartbeat` such as "30s", an attempt without heartbeat for that long fails like one that times out.
        `other_revisions` is as in `guard`.

        Raises UsageError for a name that the chart does not use, a second function under one name, and a function that
        cannot be called with an attempt.
        """
        from interlock.effects.signatures import check_handler

        register = self._register(name, self.handlers, self.chart.handlers, "handler", other_revisions=other_revisions)
        beat_ms = None if heartbeat is None else parse_duration(str(heartbeat))
        if heartbeat is not None and not beat_ms:
            message = f"invalid heartbeat of `{name}`: {heartbeat!r:.60} is not a duration"
            raise UsageError(message, code="handler.heartbeat", hint='write heartbeat="30s"')

        def register_handler(function: AnyFunction) -> AnyFunction:
            check_handler(name, function, cpu=cpu)
            register(function)
            (self.busy.add if cpu else self.busy.discard)(name)
            self.heartbeats.pop(name, None)
            if beat_ms:
                self.heartbeats[name] = beat_ms
            return function

        return cast("HandlerDecorator", register_handler)

    def reconciler(
        self,
        name: str,
        *,
        state: str,
        older: str = "0s",
        every: str = "1m",
        rate: float = RECONCILE_RATE,
        running: int = RECONCILE_RUNNING_MAX,
        timeout: str = "30s",
        desired: str | None = None,
        drift: str | None = None,
    ) -> Callable[[AnyFunction], AnyFunction]:
        """Register a coroutine function that is called, once per `every`, for each entity in a state.

        Only entities that have been in the state for longer than `older` count. The function gets a `ReconcileRequest`
        and returns a `ReconcileResult` with an event for the entity, or None. With `desired`, a field of the context,
        it returns what it observes instead: if that differs, the entity gets the event `drift` with both values.

        At most `rate` calls start per second and `running` run at the same time. A call that takes longer than
        `timeout` has failed.
        """
        options = ReconcilerOptions(
            name=name,
            state=state,
            older=older,
            every=every,
            rate=rate,
            running=running,
            timeout=timeout,
            desired=desired,
            drift=drift,
        )

        def register(function: AnyFunction) -> AnyFunction:
            self.reconcilers[name] = build_reconciler(self.chart, options, function)
            return function

        return register

    def _register(
        self,
        name: str,
        functions: dict[str, Callable[..., Any]],
        known: tuple[str, ...],
        what: str,
        *,
        other_revisions: bool,
    ) -> Callable[[AnyFunction], AnyFunction]:
        if not isinstance(name, str):
            hint = f'write @chart.{what}("name")'
            raise UsageError(f"a {what} must be registered by name", code=f"{what}.unknown", hint=hint)
        if name not in known and not other_revisions:
            used = ", ".join(known) or "none"
            hint = suggestion(name, known) or f"it uses {used}; if another revision uses it: other_revisions=True"
            raise UsageError(
                f"chart `{self.chart.kind}` does not use a {what} `{name}`", code=f"{what}.unknown", hint=hint
            )

        def register(function: AnyFunction) -> AnyFunction:
            if what == "handler":  # a guard may be replaced: it is pure, and takes effect immediately
                self._check_second(functions.get(name), function, name=name)
            functions[name] = function
            self._kernel = None
            vars(self).pop("step", None)
            return function

        return register

    def _check_second(self, first: Callable[..., Any] | None, function: Callable[..., Any], *, name: str) -> None:
        """Raise UsageError when another function has the name already: the last one would win silently.

        The same definition may come again, as when a module is imported again. An interactive session may replace it.
        """
        if first is None or hasattr(sys, "ps1") or _definition_of(first) == _definition_of(function):
            return
        places = f"{_place_of(first)} and {_place_of(function)}"
        message = f"chart `{self.chart.kind}` has two functions for the handler `{name}`: {places}"
        hint = f"remove one of them, or replace the first on purpose: `chart.handlers[{name!r}] = ...`"
        raise UsageError(message, code="handler.twice", hint=hint)

    @property
    def kernel(self) -> Kernel:
        """The kernel of the chart. Raises UsageError if a guard or assign function is not registered."""
        if self._kernel is None:
            self._kernel = Kernel(self.chart, guards=self.guards, assigns=self.assigns)
            # From now on this instance calls `Kernel.step` directly: the hot path exists once, and a step is one call.
            self.step = self._kernel.step  # type: ignore[method-assign]  # see above
        return self._kernel

    def start(self, context: Mapping[str, Any] | Model | None = None, *, entity: str, time_ms: int = 0) -> Step:
        """Return the first step of an entity: version 1. The context may be a model.

        Raises RejectedError if the context does not fit the chart.
        """
        if context is not None and not isinstance(context, Mapping):
            context = context_values(context)
        if not isinstance(entity, str):
            raise UsageError(f"expected a string as the id of an entity, got {entity!r:.60}", code="entity.id")
        check_time(time_ms)
        return self.kernel.start(context, entity=entity, time_ms=time_ms)

    def step(self, snapshot: Snapshot, event: Event | str, data: Any = None, time_ms: int = 0) -> Step:
        """Return the step of one event run to completion. `event` may be a name with `data`."""
        return self.kernel.step(snapshot, event, data, time_ms)

    def context_of(self, snapshot: Snapshot) -> C:
        """Return the context of a snapshot as its model; without a model as a mapping, without the progress of sagas.

        Raises UsageError (`context.model`) when the context does not fit the model.
        """
        context = self.chart.visible_context(snapshot.context)
        model = self.models.get(CONTEXT)
        if model is None:
            return copy_json(context)  # type: ignore[no-any-return]  # C is a mapping by default
        what = f"the context of `{snapshot.entity}`"
        found: C = from_json(context, model, what=what, code="context.model")
        return found

    def fold(self, snapshot: Snapshot, events: Iterable[Event]) -> Snapshot:
        """Return the snapshot after these events, without effects: replay."""
        return self.kernel.fold(snapshot, events)

    def explain_speed(self) -> SpeedReport:
        """Return which steps are compiled once they are used often, and why others are not. `print` it to read it."""
        return self.kernel.explain_speed()

    def draw(self, *active: str | Snapshot, theme: str = "vars", collapse: int | None = None) -> Drawing:
        """Return a drawing with these states highlighted, given by id or by a snapshot.

        Notebooks show it; `.svg` is its text.
        """
        from interlock.render.drawing import make_drawing

        return make_drawing(self.chart, active, theme=theme, collapse=collapse)

    def diff(self, before: BoundChart) -> Drawing:
        """Return a drawing of the differences from an earlier revision."""
        return self.draw().against(before.chart)

    def carrier(self, before: BoundChart) -> Carrier:
        """Return what carries entities of an earlier revision to this chart, or says why one cannot be carried.

        Raises UsageError if the charts are of different kinds, or a guard or assign function is not registered.
        """
        from interlock.evolve.carry import Carrier

        return Carrier(before.document, self.document, self.kernel)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return self.draw()._repr_mimebundle_(include, exclude)

    def candidates(self, snapshot: Snapshot, event: Event | None = None) -> tuple[Candidate, ...]:
        """Return the transitions that events could take now, inner states first, each with the result of its guard."""
        return self.kernel.candidates(snapshot, event)


def _definition_of(function: Any) -> object:
    """Return what two functions made by one definition share."""
    code = getattr(function, "__code__", None)
    return function if code is None else (function.__module__, function.__qualname__, code.co_firstlineno)


def _place_of(function: Any) -> str:
    code, name = getattr(function, "__code__", None), getattr(function, "__qualname__", type(function).__name__)
    return f"`{name}`" if code is None else f"`{function.__module__}.{name}` (line {code.co_firstlineno})"


def done_event(effect: Effect, result: Any = None, *, time_ms: int = 0) -> Event:
    """Return the event that sends the result of an invoke back to its entity."""
    _check_effect(effect)
    name = _invokeid(effect)
    _check_plain(effect, result)
    return invoke_done(name, effect.key, result, time_ms=time_ms)


def failed_event(effect: Effect, code: str, message: str = "", *, done: Done = "unknown", time_ms: int = 0) -> Event:
    """Return the event of the final failure of an invoke or a named action.

    `done` is `no` if the handler knows that nothing happened, else `unknown`: a saga then compensates the step.
    """
    _check_effect(effect)
    if effect.type == "call":
        return call_failed(effect.name, effect.key, code, time_ms=time_ms)
    name = _invokeid(effect)
    _check_plain(effect, [code, message])
    return invoke_failed(name, effect.key, code, message, done=done, time_ms=time_ms)


def _check_effect(effect: Effect) -> None:
    if not isinstance(effect, Effect):
        hint = "pass an effect of the step"
        raise UsageError(f"expected an Effect, got `{type(effect).__name__}`", code="effect.result", hint=hint)


def _check_plain(effect: Effect, data: Any) -> None:
    problem = json_problem(data)
    if problem is not None:
        raise UsageError(f"the result of `{effect.key}` cannot be stored: {problem}", code="event.payload")


def _invokeid(effect: Effect) -> str:
    if effect.type != "invoke":
        raise UsageError(f"a `{effect.type}` effect has no result", code="effect.result")
    name: str = effect.payload["id"]
    return name


def timer_event(timer: Timer) -> Event:
    """Return the event of a timer that fires at its due time."""
    if not isinstance(timer, Timer):
        hint = "pass a timer of `snapshot.timers`"
        raise UsageError(f"expected a Timer, got `{type(timer).__name__}`", code="timer.type", hint=hint)
    return timer_fired(timer, time_ms=timer.due_ms)
