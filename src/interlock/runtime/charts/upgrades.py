"""Which entities move to the newest chart of their kind before their next step, and why others stay.

Rule 1: an entity moves if the newest chart of this process says `upgrade: safe`, or declares itself `compatible` with
the entity's revision, or the runtime was opened with `upgrade="safe"` and the chart has no `upgrade`. Otherwise it is
pinned: it continues on its own revision.
Rule 2: moves go forward only: the new revision must have been saved later in this store, or promoted later
(`rollouts`), and not as an outdated one. So workers with different newest charts never move an entity back and forth.
None goes to a revision that is being rolled out, or was aborted.
Rule 3: an entity that cannot be carried stays (`evolve.carry`), and is asked again after its next step.
Rule 4: entities that ended, and children of inline charts, stay.
Rule 5: `compatible` is not believed: what it breaks is logged when the pair is first compared, and such entities stay.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from interlock.errors import UnavailableError, UsageError
from interlock.evolve.labels import is_lower, is_within
from interlock.kernel.step import Kernel
from interlock.model.charts.chart import Chart
from interlock.model.document.document import Document
from interlock.model.limits import SNAPSHOTS_CACHED_MAX, UPGRADE_PAIRS_MAX
from interlock.model.snapshot import Snapshot
from interlock.ports.definitions import Edition, newest_edition, outdated_editions
from interlock.runtime.charts.registry import BUILTIN_KINDS, ChartRegistry
from interlock.runtime.charts.revisions import Revisions
from interlock.runtime.charts.rollouts import Promotion, Rollouts, order_of

if TYPE_CHECKING:
    from interlock.evolve.carry import Carrier

UpgradePolicy = Literal["pinned", "safe"]

POLICIES: tuple[UpgradePolicy, ...] = ("pinned", "safe")

_log = logging.getLogger("interlock.runtime")


class UpgradePreview(Struct, frozen=True):
    """What would happen to an entity at its next step: the revision it would move to, or why it stays."""

    revision: str
    reasons: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()

    @property
    def would_move(self) -> bool:
        """Whether it would move."""
        return not self.reasons


class UpgradeRules:
    """Which kinds may move at all. `policy` is for charts that do not say."""

    def __init__(self, charts: ChartRegistry, policy: UpgradePolicy) -> None:
        if policy not in POLICIES:
            message = f"unknown upgrade policy {policy!r:.40}"
            raise UsageError(message, code="upgrade.policy", hint="use 'pinned' or 'safe'")
        self._policy = policy
        self.kinds = frozenset(kind for kind in charts.kinds() if self._is_moving(charts.for_new_entity(kind).chart))

    def may_move(self, new: Chart, label: str) -> bool:
        """Whether entities of a revision with this label may move to a chart without being asked to."""
        return self._policy_of(new) == "safe" or (new.compatible is not None and is_within(label, new.compatible))

    def _is_moving(self, chart: Chart) -> bool:
        return chart.kind not in BUILTIN_KINDS and (self._policy_of(chart) == "safe" or chart.compatible is not None)

    def _policy_of(self, chart: Chart) -> UpgradePolicy:
        return chart.upgrade or self._policy


_Pair = tuple[str, str, bool, bool]
"""A kind and a revision, whether it is a preview, and whether the policy decides."""


class Upgrades:
    """The upgrades of the entities of one connection. `carriers` and `kept` are what was found out before."""

    def __init__(
        self,
        charts: ChartRegistry,
        revisions: Revisions,
        rules: UpgradeRules,
        rollouts: Rollouts,
        *,
        carriers: Mapping[_Pair, Carrier | None] = MappingProxyType({}),
        kept: Mapping[str, tuple[int, str]] = MappingProxyType({}),
    ) -> None:
        self._charts = charts
        self._revisions = revisions
        self._rules = rules
        self._rollouts = rollouts
        self._promoted: dict[str, tuple[Promotion, ...]] = {}
        self._kinds = rules.kinds
        self._carriers = OrderedDict(carriers)
        self._kept = OrderedDict(kept)

    def on_transaction(self, revisions: Revisions, rollouts: Rollouts) -> Upgrades:
        """Return the upgrades for one call on a transaction of the caller, which may be rolled back."""
        return Upgrades(self._charts, revisions, self._rules, rollouts, carriers=self._carriers, kept=self._kept)

    def covers(self, kind: str) -> bool:
        """Whether entities of a kind may move at all: the only question of a send under `pinned`."""
        return kind in self._kinds

    async def carrier(self, snapshot: Snapshot, *, is_preview: bool = False) -> Carrier | None:
        """Return what carries an entity to the newest chart; None if it stays without being asked.

        The newest chart is saved in the store first; not for a preview, which writes nothing. Raises UnavailableError
        when the store cannot say.
        """
        if snapshot.kind not in self._kinds or snapshot.ended is not None:
            return None
        if self._rollouts.is_stale:
            await self._rollouts.refresh()
        if self._rollouts.holds_back(self._charts.for_new_entity(snapshot.kind).chart):
            return None
        return await self._find(snapshot.kind, snapshot.revision, is_preview=is_preview, by_policy=True)

    async def forward_carrier(self, kind: str, revision: str, *, is_preview: bool = False) -> Carrier | None:
        """Return what carries entities of a revision to the newest chart, whatever its policy; None if it is not later.

        Raises NotFoundError if this process has no chart of the kind, UnavailableError if the old definition is unknown
        or the store cannot say.
        """
        newest = self._charts.for_new_entity(kind)
        if not newest.chart.is_revision(revision):
            await self._revisions.for_reading(kind, revision)
        return await self._find(kind, revision, is_preview=is_preview, by_policy=False)

    async def _find(self, kind: str, revision: str, *, is_preview: bool, by_policy: bool) -> Carrier | None:
        name = (kind, revision, is_preview, by_policy)
        if self._rollouts.is_stale:
            await self._rollouts.refresh()
        promoted = self._rollouts.promoted(kind)
        if self._promoted.get(kind, ()) != promoted:  # the order of its revisions is another one now
            self._promoted[kind] = promoted
            for each in [pair for pair in self._carriers if pair[0] == kind]:
                del self._carriers[each]
        if name not in self._carriers:
            newest = self._charts.for_new_entity(kind)
            if not is_preview:
                newest = await self._revisions.for_new_entity(newest)
            is_newest = newest.chart.is_revision(revision)
            old = None if is_newest else await self._old_chart(kind, revision)
            if old is None and not is_newest:
                return None  # not remembered: its definition may be saved at any time
            label = "" if old is None else old.label or await self._revisions.label(kind, revision) or ""
            may_move = old is not None and (not by_policy or self._rules.may_move(newest.chart, label))
            self._carriers[name] = (
                await self._make(old, newest, label, is_preview=is_preview) if old is not None and may_move else None
            )
            if len(self._carriers) > UPGRADE_PAIRS_MAX:
                self._carriers.popitem(last=False)
        return self._carriers[name]

    def is_kept(self, snapshot: Snapshot, carrier: Carrier) -> bool:
        """Whether this very snapshot could not be carried before."""
        return self._kept.get(snapshot.entity) == (snapshot.version, carrier.written)

    def keep(self, snapshot: Snapshot, carrier: Carrier) -> None:
        """Remember that a snapshot cannot be carried."""
        self._kept[snapshot.entity] = (snapshot.version, carrier.written)
        if len(self._kept) > SNAPSHOTS_CACHED_MAX:
            self._kept.popitem(last=False)

    async def _make(self, old: Chart, newest: Kernel, label: str, *, is_preview: bool) -> Carrier | None:
        editions = await self._revisions.editions(old.kind)
        head = newest_edition(editions)
        is_outdated = head is not None and is_lower(newest.chart.label, head.label)
        promoted = self._rollouts.promoted(old.kind)
        will_be_saved = is_preview and not is_outdated and sequence_of(editions, newest.chart) is None
        if not (will_be_saved or is_later(editions, newest.chart, than=old, promoted=promoted)):
            return None
        return self._compare(old, newest, label, await self._between(editions, old, newest.chart))

    async def _between(self, editions: tuple[Edition, ...], old: Chart, new: Chart) -> list[Document]:
        """Return the definitions between two that rename states, as the store orders them, without unreadable ones."""
        first, last = sequence_of(editions, old) or 0, sequence_of(editions, new)
        order = {each.revision: each.sequence for each in reversed(editions)}  # the first edition of each
        inside = sorted(
            (sequence, name) for name, sequence in order.items() if first < sequence < (last or sequence + 1)
        )
        found = [await self._revisions.document(old.kind, name) for _, name in inside]
        return [each for each in found if each is not None and each.renamed]

    async def _old_chart(self, kind: str, revision: str) -> Chart | None:
        """Return the chart of a revision, if it is known exactly: a compatible one cannot say what changed."""
        try:
            found = await self._revisions.for_reading(kind, revision)
        except UnavailableError:
            return None
        return found.chart if found.chart.is_revision(revision) and found.chart.document is not None else None

    def _compare(self, old: Chart, newest: Kernel, label: str, between: list[Document]) -> Carrier:
        # Imported when needed: a runtime with pinned charts compares none.
        from interlock.evolve.carry import Carrier

        new = newest.chart
        assert old.document is not None
        assert new.document is not None
        carrier = Carrier(
            old.document,
            new.document,
            newest,
            old_names=(old.revision, *old.other_names),
            written=behaviour_of(new),
            between=between,
        )
        breaking = [each for each in carrier.diff.changes if each.review == "breaking"]
        if breaking and new.compatible is not None and is_within(label, new.compatible):
            changes = ", ".join(f"{each.code} {each.subject}" for each in breaking)
            _log.warning(
                "a chart declares itself compatible with a revision, but some of its entities cannot be carried",
                extra={"kind": new.kind, "revision": new.revision, "earlier": old.revision, "changes": changes},
            )
        return carrier


def behaviour_of(chart: Chart) -> str:
    """Return the name of a chart's behaviour: the name that a move writes, which no earlier release understands."""
    from interlock.evolve.identity import SCHEME, behaviour_name

    names = (each for each in (chart.revision, *chart.other_names) if each.startswith(f"{SCHEME}."))
    found = next(names, None)
    if found is None:
        assert chart.document is not None
        found = behaviour_name(chart.document)
    return found


def is_later(editions: tuple[Edition, ...], chart: Chart, *, than: Chart, promoted: tuple[Promotion, ...] = ()) -> bool:
    """Whether a chart was first saved later in the store than another, or was chosen again later. One that is not saved
    is not later.

    An earlier chart that was never saved, because a release before definitions wrote its entities, comes first, and so
    does one that was outdated when it was saved.
    """
    chosen = {each.revision for each in promoted}
    outdated = tuple(each for each in outdated_editions(editions) if each.revision not in chosen)
    editions = tuple(each for each in editions if each not in outdated)
    own, other = (order_of(editions, names_of(each), promoted) for each in (chart, than))
    return own is not None and (other is None or own > other)


def sequence_of(editions: tuple[Edition, ...], chart: Chart) -> int | None:
    """Return the number of the first edition of a chart in the store; None if it is not saved."""
    place = order_of(editions, names_of(chart))
    return None if place is None else place[0]


def names_of(chart: Chart) -> tuple[str, ...]:
    """Return all names of a chart's revision."""
    return (chart.revision, *chart.other_names)
