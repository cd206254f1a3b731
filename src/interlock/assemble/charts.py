"""The composition root of charts: the only module that knows every format by name, reads files, and joins charts with
code.

`load` turns a definition into a `BoundChart`: the immutable chart together with the functions and handlers that code
brings. `opening` joins charts with a store.
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from interlock.compiler.build import CompileResult, compile_document
from interlock.definition.format import Format, ReadResult, SourceLoader, WriteResult
from interlock.errors import DefinitionError, Diagnostic, NotFoundError, Place, UsageError
from interlock.kernel.explain import Candidate
from interlock.kernel.step import Kernel, check_time
from interlock.model.chart import Chart
from interlock.model.diagnostics import suggestion
from interlock.model.document.document import Document
from interlock.model.document.field import plain_refusal
from interlock.model.driver_events import Done, call_failed, invoke_done, invoke_failed, timer_fired
from interlock.model.duration import parse_duration
from interlock.model.effect import Effect
from interlock.model.event import Event
from interlock.model.limits import DEFINITION_BYTES_MAX, RECONCILE_RATE, RECONCILE_RUNNING_MAX
from interlock.model.snapshot import Snapshot, Timer
from interlock.model.step import Step
from interlock.runtime.reconcile.definition import Reconciler, ReconcilerOptions, build_reconciler

if TYPE_CHECKING:
    from interlock.render.drawing import Drawing

FORMAT_MODULES = {
    "yaml": ("yaml.format", "FORMAT"),
    "scxml": ("scxml.format", "FORMAT"),
    "xstate": ("xstate.format", "FORMAT"),
    "xstate4": ("xstate.format", "FORMAT_V4"),
    "smcat": ("smcat.format", "FORMAT"),
}
"""The formats that come with the package, by name: a module of `definition/` and the name of its `Format` there."""

FORMATS = tuple(FORMAT_MODULES)

FORMAT_GROUP = "interlock.formats"
"""The entry points by which other packages add formats: a name, and a `Format`."""

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])


def format_named(name: str) -> Format:
    """The format of this name, imported at its first use. Raises UsageError for an unknown one."""
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
    """The function that writes documents in this format. Raises UsageError for one that is only read."""
    found = format_named(name)
    if found.is_read_only:
        known = ", ".join(each for each in FORMATS if not format_named(each).is_read_only)
        message = f"the format {name} can be read but not written"
        raise UsageError(message, code="format.read_only", hint=f"write it as one of {known}")
    return found.write


def _other_formats() -> dict[str, Any]:
    found = import_module("importlib.metadata").entry_points(group=FORMAT_GROUP)
    return {each.name: each for each in found if each.name not in FORMAT_MODULES}


def format_of(name: str) -> str | None:
    """The format that a file's suffix belongs to, or None. Formats are imported one by one until one has the suffix."""
    known = (*FORMATS, *_other_formats()) if Path(name).suffix else ()
    return next((each for each in known if name.lower().endswith(format_named(each).suffixes)), None)


def suffixes() -> list[str]:
    """The suffixes of all formats that come with the package."""
    return [suffix for name in FORMATS for suffix in format_named(name).suffixes]


def read(text: str | bytes, *, format: str, source: str, loader: SourceLoader | None = None) -> ReadResult:
    """What a reader makes of a text; `source` names it in diagnostics."""
    return format_named(format).read(text, source=source, loader=loader)


def read_file(path: str | os.PathLike[str], *, format: str | None = None, allow_src: bool = False) -> ReadResult:
    """What a reader makes of a file. No other file is opened unless `allow_src` is given.

    With `allow_src`, the attribute `src` of SCXML may name regular files in the definition's folder and below.
    Raises NotFoundError when there is no such file, UsageError when its format cannot be told.
    """
    file = Path(path)
    data = _bytes(file)
    named = format or format_of(file.name)
    if named is None:
        known = ", ".join(suffixes())
        raise UsageError(
            f"the format of {file.name} is not known", code="format.unknown", hint=f"name it, or use one of {known}"
        )
    return read(data, format=named, source=str(path), loader=_resolver(file.parent) if allow_src else None)


def _bytes(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            # One byte more than is allowed: enough for the reader to see that it is too large.
            return stream.read(DEFINITION_BYTES_MAX + 1)
    except FileNotFoundError:
        raise NotFoundError(f"no file {file}", code="file.not_found") from None
    except IsADirectoryError:
        raise NotFoundError(f"{file} is a directory, not a definition", code="file.directory") from None
    except PermissionError:
        raise NotFoundError(f"{file} may not be read", code="file.permission") from None
    except OSError as error:
        raise NotFoundError(f"{file} cannot be read: {error.strerror}", code="file.unreadable") from None


def _resolver(folder: Path) -> SourceLoader:
    """Gives the text of a file below this folder.

    Only regular files, opened without following a symbolic link and without waiting for a writer; no hidden names; at
    most as large as a definition.
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
    """What a regular file holds, up to one byte more than allowed. Each part of its path is opened by itself."""
    above = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in names[:-1]:
            inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
            os.close(above)
            above = inner
        # O_NONBLOCK: opening a FIFO would otherwise wait until somebody writes to it.
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
        found = os.open(names[-1], flags, dir_fd=above)
        if not stat.S_ISREG(os.fstat(found).st_mode):
            os.close(found)
            raise NotFoundError(f"{'/'.join(names)} is not a regular file", code="file.not_regular")
        with os.fdopen(found, "rb") as stream:
            return stream.read(DEFINITION_BYTES_MAX + 1)
    except FileNotFoundError:
        raise NotFoundError(f"no file {'/'.join(names)}", code="file.not_found") from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise NotFoundError(f"{'/'.join(names)} is a symbolic link", code="file.link") from None
        raise NotFoundError(f"{'/'.join(names)} cannot be read: {error.strerror}", code="file.unreadable") from None
    finally:
        os.close(above)


def compiled(reading: ReadResult) -> CompileResult:
    """The chart of a reading, with the diagnostics of reader and compiler together."""
    if reading.document is None or any(each.severity == "error" for each in reading.diagnostics):
        compilation = None if reading.document is None else compile_document(reading.document)
        # Of a document that was read only in part, lints would tell of what is missing for that reason alone.
        found = () if compilation is None else compilation.diagnostics
        extra = [each for each in found if each.severity == "error"]
        return CompileResult(chart=None, diagnostics=_sorted((*reading.diagnostics, *extra)))
    compilation = compile_document(reading.document)
    return CompileResult(chart=compilation.chart, diagnostics=_sorted((*reading.diagnostics, *compilation.diagnostics)))


def _sorted(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    return tuple(sorted(dict.fromkeys(diagnostics), key=lambda each: (each.place, each.code)))


def load(
    source: str | os.PathLike[str] | Document, *, format: str | None = None, allow_src: bool = False
) -> BoundChart:
    """The chart of a definition: a file, or a document made by the builder.

    With `allow_src`, an SCXML file may include regular files of its own folder and below by `src`. Leave it out for a
    definition that you do not trust: it could read files that lie next to it.
    Raises DefinitionError with every problem found, NotFoundError when there is no such file.

        order = interlock.load("order.interlock.yaml")
    """
    if isinstance(source, Document):
        return _bound(ReadResult(document=source))
    return _bound(read_file(source, format=format, allow_src=allow_src))


def loads(text: str | bytes, *, format: str = "yaml", source: str = "<text>") -> BoundChart:
    """The chart of a definition's text. Raises DefinitionError with every problem found."""
    return _bound(read(text, format=format, source=source))


def _bound(reading: ReadResult) -> BoundChart:
    compilation = compiled(reading)
    if compilation.chart is None or reading.document is None:
        found = compilation.diagnostics or (Diagnostic(code="definition", message="nothing was read", place=Place()),)
        raise DefinitionError(found)
    return BoundChart(compilation.chart, reading.document, compilation.diagnostics)


class BoundChart:
    """A chart together with its code: registered guards, assign functions and handlers.

    The chart itself is immutable (`.chart`). `start` and `step` are pure: they return values and touch nothing.
    """

    def __init__(self, chart: Chart, document: Document, diagnostics: tuple[Diagnostic, ...] = ()) -> None:
        self.chart = chart
        self.document = document
        self.diagnostics = diagnostics
        self.guards: dict[str, Callable[..., Any]] = {}
        self.assigns: dict[str, Callable[..., Any]] = {}
        self.handlers: dict[str, Callable[..., Any]] = {}
        self.busy: set[str] = set()
        self.heartbeats: dict[str, int] = {}
        self.reconcilers: dict[str, Reconciler] = {}
        self._kernel: Kernel | None = None

    def __repr__(self) -> str:
        chart = self.chart
        states, transitions = len(chart.states) - 1, len(chart.transitions)
        return f"<chart {chart.kind} {chart.revision}: {states} states, {transitions} transitions>"

    def __getstate__(self) -> dict[str, Any]:
        # What the kernel has worked out is made anew where it is needed; generated functions cannot be pickled.
        return {**{name: value for name, value in self.__dict__.items() if name != "step"}, "_kernel": None}

    def guard(self, name: str) -> Callable[[AnyFunction], AnyFunction]:
        """Register a pure function of (context, event) as the guard of this name."""
        return self._registered(name, self.guards, self.chart.guards, "guard")

    def assign(self, name: str) -> Callable[[AnyFunction], AnyFunction]:
        """Register a pure function of (context, event) that returns a mapping of fields to values."""
        return self._registered(name, self.assigns, self.chart.assigns, "assign")

    def handler(
        self, name: str, *, cpu: bool = False, heartbeat: str | None = None
    ) -> Callable[[AnyFunction], AnyFunction]:
        """Register the function that performs an effect: a named action or an invoke.

        A coroutine function runs in the event loop, a plain one in a thread; with `cpu`, in a process of its own.
        With a `heartbeat`, such as "30s", an attempt that gives no sign of life for so long is over, as by a timeout.
        """
        registered = self._registered(name, self.handlers, self.chart.handlers, "handler")
        beat_ms = None if heartbeat is None else parse_duration(str(heartbeat))
        if heartbeat is not None and not beat_ms:
            message = f"the heartbeat of `{name}` is no duration: {heartbeat!r:.60}"
            raise UsageError(message, code="handler.heartbeat", hint='write heartbeat="30s"')
        (self.busy.add if cpu else self.busy.discard)(name)
        self.heartbeats.pop(name, None)
        if beat_ms:
            self.heartbeats[name] = beat_ms
        return registered

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
        """Register a coroutine function that is asked, `every` so often, about entities that rest in a state.

        About those that do so for longer than `older`. It gets a `Seen` and gives an `Answer`, the event that the
        entity shall have, or None. With `desired`, a field of the context, it gives what it observes instead: where
        that differs, the event `drift` tells both.
        At most `rate` calls a second and `running` side by side; one that takes longer than `timeout` has failed.
        """
        wish = ReconcilerOptions(
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
            self.reconcilers[name] = build_reconciler(self.chart, wish, function)
            return function

        return register

    def _registered(
        self, name: str, functions: dict[str, Callable[..., Any]], known: tuple[str, ...], what: str
    ) -> Callable[[AnyFunction], AnyFunction]:
        if not isinstance(name, str):
            hint = f'write @chart.{what}("name")'
            raise UsageError(f"a {what} is registered by its name", code=f"{what}.unknown", hint=hint)
        if name not in known:
            hint = suggestion(name, known) or f"it names {', '.join(known) or 'none'}"
            raise UsageError(f"chart `{self.chart.kind}` names no {what} `{name}`", code=f"{what}.unknown", hint=hint)

        def register(function: AnyFunction) -> AnyFunction:
            functions[name] = function
            self._kernel = None
            vars(self).pop("step", None)
            return function

        return register

    @property
    def kernel(self) -> Kernel:
        """The chart made runnable. Raises UsageError while a guard or assign function is not registered."""
        if self._kernel is None:
            self._kernel = Kernel(self.chart, guards=self.guards, assigns=self.assigns)
        return self._kernel

    def start(self, context: Mapping[str, Any] | None = None, *, entity: str, time_ms: int = 0) -> Step:
        """The first step of an entity: version 1. Raises RejectedError when the chart refuses the context."""
        if not isinstance(entity, str):
            raise UsageError(f"the id of an entity is a string, not {entity!r:.60}", code="entity.id")
        check_time(time_ms)
        return self.kernel.start(context, entity=entity, time_ms=time_ms)

    def step(self, snapshot: Snapshot, event: Event | str, data: Any = None, time_ms: int = 0) -> Step:
        """Return the step of one event run to completion. A name with `data` and `time_ms` stands for an event."""
        # From now on this instance calls `Kernel.step` directly: the hot path exists once, and a step is one call.
        self.step = self.kernel.step  # type: ignore[method-assign]  # see above
        return self.kernel.step(snapshot, event, data, time_ms)

    def fold(self, snapshot: Snapshot, events: Iterable[Event]) -> Snapshot:
        """The snapshot after all these events, effects discarded: replay."""
        return self.kernel.fold(snapshot, events)

    def draw(self, *active: str | Snapshot, theme: str = "vars", collapse: int | None = None) -> Drawing:
        """The chart as a drawing with states lit, by id or a snapshot's. Notebooks show it; `.svg` is its text."""
        from interlock.render.drawing import make_drawing

        return make_drawing(self.chart, active, theme=theme, collapse=collapse)

    def diff(self, before: BoundChart) -> Drawing:
        """What differs from an earlier revision, in one drawing."""
        return self.draw().against(before.chart)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return self.draw()._repr_mimebundle_(include, exclude)

    def candidates(self, snapshot: Snapshot, event: Event | None = None) -> tuple[Candidate, ...]:
        """The transitions in question now, inner first: for each its event, and whether its guard holds and why not."""
        return self.kernel.candidates(snapshot, event)


def done_event(effect: Effect, result: Any = None, *, time_ms: int = 0) -> Event:
    """The event by which the result of an invoke comes back to the entity that asked for it."""
    _check_effect(effect)
    name = _invokeid(effect)
    _check_plain(effect, result)
    return invoke_done(name, effect.key, result, time_ms=time_ms)


def failed_event(effect: Effect, code: str, message: str = "", *, done: Done = "unknown", time_ms: int = 0) -> Event:
    """The event by which an invoke or a named action fails for good.

    `done` is `no` when the handler knows that nothing happened, else `unknown`: a saga compensates what perhaps
    happened.
    """
    _check_effect(effect)
    if effect.type == "call":
        return call_failed(effect.name, effect.key, code, time_ms=time_ms)
    name = _invokeid(effect)
    _check_plain(effect, [code, message])
    return invoke_failed(name, effect.key, code, message, done=done, time_ms=time_ms)


def _check_effect(effect: Effect) -> None:
    if not isinstance(effect, Effect):
        hint = "give the effect as the step returned it"
        raise UsageError(f"only an effect has a result, not `{type(effect).__name__}`", code="effect.result", hint=hint)


def _check_plain(effect: Effect, data: Any) -> None:
    problem = plain_refusal(data)
    if problem is not None:
        raise UsageError(f"the result of `{effect.key}` cannot be kept: {problem}", code="event.payload")


def _invokeid(effect: Effect) -> str:
    if effect.type != "invoke":
        raise UsageError(f"a `{effect.type}` effect has no result", code="effect.result")
    name: str = effect.payload["id"]
    return name


def timer_event(timer: Timer) -> Event:
    """The event by which a timer fires, at the time it is due."""
    if not isinstance(timer, Timer):
        hint = "take it from `snapshot.timers`"
        raise UsageError(f"only a timer fires, not `{type(timer).__name__}`", code="timer.type", hint=hint)
    return timer_fired(timer, time_ms=timer.due_ms)
