"""The charts a runtime has: which kernel runs an entity, by its kind and the revision it was last written by.

Rule 1: an entity runs on the revision that wrote it, else on a chart that says it is compatible with that; never on a
guess. A chart that says so and lacks the states in which an entity is does not run it: that is no damage, and other
processes may have the right one.
Rule 2: the package's own kinds (`own`) are known to all, and listed among none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from interlock.errors import NotFoundError, UnavailableError, UsageError
from interlock.kernel.step import Kernel
from interlock.model.diagnostics import suggestion
from interlock.model.snapshot import Snapshot
from interlock.runtime.builtin_charts import BUILTIN_KINDS, builtin_kernel
from interlock.runtime.children import inline_kernels

_BOUND = re.compile(r"(<=|>=|<|>|=)?\s*([0-9]+(?:\.[0-9]+)*)")


class ChartRegistry:
    """Kernels by kind and revision; the last one given of a kind creates new entities."""

    def __init__(self, kernels: Iterable[Kernel]) -> None:
        self._current: dict[str, Kernel] = {}
        self._all: dict[tuple[str, str], Kernel] = {}
        self._inline: dict[tuple[str, str], dict[str, Kernel]] = {}
        for kernel in kernels:
            self._current[kernel.chart.kind] = kernel
            self._add(kernel)

    def _add(self, kernel: Kernel) -> None:
        """Know a chart and those written in place in it: entities of these go on by kind and revision, too."""
        if kernel.chart.kind in BUILTIN_KINDS:
            message = f"a chart is called `{kernel.chart.kind}`, which is a kind of the package's own"
            raise UsageError(message, code="kind.reserved", hint="give it another name")
        place = (kernel.chart.kind, kernel.chart.revision)
        self._all[place] = kernel
        self._inline[place] = inline_kernels(kernel)
        for each in self._inline[place].values():
            self._add(each)

    def kinds(self) -> tuple[str, ...]:
        """The kinds of which new entities can be created here, sorted."""
        return tuple(sorted(self._current))

    def every_kind(self) -> tuple[str, ...]:
        """The kinds that there is a chart of here, those written in place among them, sorted."""
        return tuple(sorted({kind for kind, _ in self._all}))

    def revisions(self, kind: str) -> dict[str, Kernel]:
        """The charts of a kind by revision, in the order given; the last but for inline ones creates new entities."""
        own = builtin_kernel(kind)
        if own is not None:
            return {own.chart.revision: own}
        return {revision: kernel for (each, revision), kernel in self._all.items() if each == kind}

    def child(self, parent: Kernel, src: object) -> Kernel:
        """The chart of a child: one written in place, or the current one of a kind. Raises NotFoundError."""
        inline = self._inline[parent.chart.kind, parent.chart.revision]
        return inline[src] if isinstance(src, str) and src in inline else self.current(str(src))

    def current(self, kind: str) -> Kernel:
        """The chart for new entities of a kind. Raises NotFoundError when there is none."""
        found = self._current.get(kind) or builtin_kernel(kind)
        if found is None:
            known = ", ".join(self._current) or "none"
            hint = suggestion(kind, self._current) or f"the kinds here are {known}"
            raise NotFoundError(f"no chart of kind `{kind}`", code="kind.unknown", hint=hint)
        return found

    def revision(self, kind: str, revision: str) -> Kernel:
        """The chart for an entity last written by this revision. Raises UnavailableError when none here may run it."""
        found = self._all.get((kind, revision))
        if found is not None:
            return found
        current = self._current.get(kind) or builtin_kernel(kind)
        if current is None:  # the entity is there: another process may have its chart
            message = f"this process has no chart of kind `{kind}`, by which its entities could go on"
            raise UnavailableError(message, code="kind.unknown", hint="load that chart too")
        label = revision.partition("+")[0]
        if current.chart.compatible is not None and is_within(label, current.chart.compatible):
            return current
        message = f"this process has no chart for revision {revision} of `{kind}`"
        hint = f"load that revision too, or declare `compatible` in {current.chart.revision}"
        raise UnavailableError(message, code="revision.unknown", hint=hint)

    def of(self, snapshot: Snapshot) -> Kernel:
        """The chart for an entity as it stands. Raises UnavailableError when none here may run it, or has its states.

        A snapshot that its own revision does not have is left to the step: that is damage.
        """
        found = self.revision(snapshot.kind, snapshot.revision)
        if found.chart.revision != snapshot.revision and not found.has(snapshot):
            states = ", ".join(f"`{each}`" for each in snapshot.configuration)
            message = (
                f"`{snapshot.entity}` is in {states}: revision {found.chart.revision} does not have that, or what a "
                f"history remembers, though it calls itself compatible with {snapshot.revision}"
            )
            hint = "load the chart of that revision too, or keep its states until no entity is in them"
            raise UnavailableError(message, code="revision.unknown", hint=hint)
        return found


def is_within(label: str, bounds: str) -> bool:
    """Whether a revision's label lies in a range such as `>=3.0 <4`."""
    version = _numbers(label)
    if version is None:
        return False
    for sign, text in _BOUND.findall(bounds):
        limit = tuple(int(part) for part in text.split("."))
        width = max(len(version), len(limit))
        left, right = (each + (0,) * (width - len(each)) for each in (version, limit))
        holds = {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}.get(
            sign, left == right
        )
        if not holds:
            return False
    return True


def _numbers(label: str) -> tuple[int, ...] | None:
    if not re.fullmatch(r"[0-9]+(?:\.[0-9]+)*", label):
        return None
    return tuple(int(part) for part in label.split("."))
