"""Write the head of a compiled function: everything that is checked before the step, and the values that it reads.

Rule 1: a head returns None for whatever the general step treats differently: an entity that has ended, deferred events,
        another kind, an event of the driver that does not belong to the timer or invoke it names.
Rule 2: the straight form checks that the snapshot has the timers and invokes that its source knows, else it calls the
        counted form.
Rule 3: the head is written after the body, because only then it is known what the body reads.
"""

from __future__ import annotations

from interlock.kernel.codegen import Source
from interlock.kernel.compiled.branch import has_defaults, invokeid_of
from interlock.kernel.compiled.calls import TIMERS_LISTED_MAX
from interlock.kernel.compiled.step_writer import StepWriter
from interlock.model.document.field import Field


class FunctionWriter:
    """Writes a whole function around the body of a step.

    `is_delayed`: the chart sends the event with a delay. `is_internal`: only the entity itself may send it.
    """

    def __init__(
        self, step: StepWriter, *, payload: tuple[Field, ...] | None, is_delayed: bool, is_internal: bool
    ) -> None:
        self.step = step
        self.out = step.out
        self.payload = payload
        self.is_delayed = is_delayed
        self.is_internal = is_internal

    @property
    def calls_counted(self) -> bool:
        """Whether the straight form calls the counted one, for other timers or invokes, or for a delayed event."""
        return self.out.reads_timers or self.out.reads_invokes or self.is_delayed

    def lines(self) -> list[str]:
        """Return the source of the function, with its head. The body must have been written."""
        head = Source()
        heads = {"step": self._step_head, "named": self._named_head, "plain": self._plain_head}
        heads.get(self.out.variant, self._counted_head)(head)
        parameters = {"named": "snapshot, data, time_ms", "plain": "context, event, id, version"}
        opening = f"def {self.out.variant}({parameters.get(self.out.variant, 'snapshot, event')}):"
        return [opening, *head.lines, *self.out.source.lines]

    def _step_head(self, head: Source) -> None:
        if self.step.cause == "sender":
            if self.is_delayed:
                head.add("if event.source is not None: return counted(snapshot, event)")
                head.add("if event.invokeid is not None: return None")
            else:
                head.add("if event.source is not None or event.invokeid is not None: return None")
        self._event_head(head)
        self._snapshot_head(head, "return counted(snapshot, event)")
        self._cause_head(head)
        self._payload_head(head, "event.data")
        self._values_head(head, "event.time_ms")

    def _event_head(self, head: Source) -> None:
        if self.is_internal:
            head.add("if event.source is None and event.origin != '#_scxml_' + snapshot.entity: return None")
        if self.out.sets_timers:
            head.add("if event.clock_ms is not None: return None")

    def _named_head(self, head: Source) -> None:
        head.add("if time_ms.__class__ is not x_integer or (data is not None and not is_plain(data)): return None")
        self._snapshot_head(head, f"return counted(snapshot, {self.out.made_event()})")
        self._payload_head(head, "data")
        self._values_head(head, "")

    def _plain_head(self, head: Source) -> None:
        self._payload_head(head, "event.data")
        self._values_head(head, "event.time_ms")

    def named_wrapper(self) -> list[str]:
        """Return the source of `named` for a step that has only the counted form."""
        head = Source()
        head.add("if time_ms.__class__ is not x_integer or (data is not None and not is_plain(data)): return None")
        head.add(f"return counted(snapshot, {self.out.made_event()})")
        return ["def named(snapshot, data, time_ms):", *head.lines]

    def _counted_head(self, head: Source) -> None:
        if self.step.cause == "sender":
            from_driver = "" if self.step.from_timer else "event.source is not None or "
            head.add(f"if {from_driver}event.invokeid is not None: return None")
        self._event_head(head)
        head.add("if snapshot.ended is not None or snapshot.deferred or snapshot.kind != kind: return None")
        head.add("timers, invokes = snapshot.timers, snapshot.invokes")
        head.add(f"if len(timers) > {TIMERS_LISTED_MAX}: return None")
        if self.out.reads_invokes:
            counts = {state.id: len(state.invokes) for state in self.step.first.invoking}
            head.add(f"check_invokes(invokes, {self.out.constant(counts)})")
        self._counted_cause_head(head)
        self._payload_head(head, "event.data")
        self._values_head(head, "event.time_ms")
        if self.out.makes_effects:
            head.add("effects = []")

    def _counted_cause_head(self, head: Source) -> None:
        if self.step.cause == "timer":
            head.add("timer = fired_timer(snapshot, event)")
            head.add("if timer.state is None: return None")
            head.add("timers = without(timers, timer)")
        elif self.step.cause == "invoke":
            invokeid = invokeid_of(self.step.name)
            head.add(f"if event.type != 'platform' or event.forwarded or event.invokeid != {invokeid!r}: return None")
            head.add("invocation = find_invocation(snapshot, event)")
            head.add("if invocation is None: return None")
            head.add("invokes = without(invokes, invocation)")
        elif self.step.from_timer:
            with head.inside("if event.source is not None:"):
                head.add("timer = fired_timer(snapshot, event)")
                head.add("if timer.state is not None: return None")
                head.add("timers = without(timers, timer)")

    def _snapshot_head(self, head: Source, otherwise: str) -> None:
        """Write the checks of the snapshot, and that it has the timers and invokes that the source knows."""
        head.add("if snapshot.ended is not None or snapshot.deferred or snapshot.kind != kind: return None")
        for name, is_read, known in (
            ("timers", self.out.reads_timers, self.step.timers),
            ("invokes", self.out.reads_invokes, self.step.invokes),
        ):
            if is_read:
                head.add(f"{name} = snapshot.{name}")
                checks = [f"len({name}) != {len(known)}"] if known else [name]
                for position, each in enumerate(known):
                    checks.append(f"({each.source} := {name}[{position}]).state != {each.state!r}")
                    if name == "invokes":
                        checks.append(f"{each.source}.position != {each.position}")
                head.add(f"if {' or '.join(checks)}: {otherwise}")

    def _cause_head(self, head: Source) -> None:
        """Write the checks that the event comes from its timer or invoke, the first one that it can come from."""
        if self.step.cause == "timer":
            mine = next(each for each in self.step.timers if each.name == self.step.name)
            timer = mine.source
            checks = ["event.forwarded", "event.invokeid is not None"]
            checks.append(f"event.source != f'timer/{{{timer}.name}}/{{{timer}.version}}'")
            checks += [f"{timer}.event != {self.step.name!r}", f"{timer}.to is not None"]
            earlier = self.step.timers[: self.step.timers.index(mine)]
            checks += [f"{each.source}.name == {timer}.name" for each in earlier]
            head.add(f"if {' or '.join(checks)}: return None")
        elif self.step.cause == "invoke":
            invokeid = invokeid_of(self.step.name)
            mine = next(each for each in self.step.invokes if each.name == invokeid)
            checks = ["event.type != 'platform'", "event.forwarded", f"event.invokeid != {invokeid!r}"]
            checks.append(f"{mine.source}.id != {invokeid!r}")
            checks.append(f"(event.source is not None and event.source != 'invoke/' + {mine.source}.key)")
            earlier = self.step.invokes[: self.step.invokes.index(mine)]
            checks += [f"{each.source}.id == {invokeid!r}" for each in earlier]
            head.add(f"if {' or '.join(checks)}: return None")

    def _payload_head(self, head: Source, data: str) -> None:
        if self.payload is None:
            return
        fields = self.out.constant(self.payload)
        if has_defaults(self.payload):
            event = self.out.made_event() if self.out.variant == "named" else "event"
            head.add(f"event = with_defaults({event}, {fields})")
        else:
            head.add(f"if does_not_fit({data}, {fields}): return None")

    def _values_head(self, head: Source, time: str) -> None:
        if self.out.variant != "plain":
            head.add("context, id, version = snapshot.context, snapshot.entity, snapshot.version + 1")
        if self.out.reads_time and time:
            head.add(f"time_ms = {time}")
        if self.out.makes_effects:
            head.add("base = f'{id}/{version}/'")
        if self.out.has_epoch:
            head.add("epoch = event.epoch")
            if self.out.makes_effects:
                head.add("if epoch: base = f'{id}/{version}.{epoch}/'")
