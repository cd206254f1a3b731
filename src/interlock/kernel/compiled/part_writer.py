"""Write the statements of parts and actions for one function of a compiled step.

Rule 1: a statement does what the operation of the same part does in a run (`kernel.parts`, `kernel.run`), or falls
        back.
Rule 2: in the straight form every effect, timer and invocation is a local name, and ordinals are constants. In the
        counted form they are in the lists `effects`, `timers` and `invokes`.
Rule 3: a value is evaluated where its action stands. What comes later must not change it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from interlock.expression.language import SAFE
from interlock.kernel.codegen import ACTION_WORK, ActionCompiler, CodeWriter, references
from interlock.kernel.compiled.assignment_writer import AssignmentWriter
from interlock.kernel.compiled.branch import Branch, Known, NotCompiled, NotStraight, Queued, Variant
from interlock.kernel.compiled.calls import ITEMS_MAX, short_tree
from interlock.kernel.errors import ActionError
from interlock.kernel.parts import (
    CancelAfter,
    CancelInvokes,
    Part,
    QueueDone,
    RunBlock,
    SetActive,
    SetAfter,
    StartInvoke,
    WaitToInvoke,
)
from interlock.kernel.run import ADDRESS_LENGTH_MAX, delay_of
from interlock.model.charts.chart import After, Invoke, State
from interlock.model.document.actions import (
    Action,
    Assign,
    AssignCall,
    Block,
    Cancel,
    Do,
    Emit,
    Expression,
    Foreach,
    Guard,
    GuardAll,
    GuardAny,
    GuardExpression,
    GuardIn,
    GuardNot,
    If,
    Log,
    Raise,
    Send,
    Value,
)
from interlock.model.document.field import Field
from interlock.model.effect import CHART_TYPES
from interlock.model.event import SCXML_PROCESSOR, is_reserved
from interlock.model.limits import EVALUATION_WORK, NAME_BYTES_MAX, UNMEASURED_MAX

WORK_MAX = 10_000
"""Units of work of one compiled step: beyond 100 evaluations, the general step charges it."""

DEPTH_MAX = 40
"""Levels of indentation: Python allows 100."""


class PartWriter(CodeWriter):
    """Writes parts and actions. Raises NotCompiled, or NotStraight, for what it cannot write."""

    measure = "need_short"

    def __init__(
        self, actions: ActionCompiler, variant: Variant, name: str, branch: Branch, namespace: dict[str, Any]
    ) -> None:
        super().__init__(actions)
        namespace |= {**self.namespace, "x_tree": short_tree}
        self.namespace = namespace
        self.variant = variant
        self.name = name
        self.branch = branch
        self.straight = variant != "counted"
        self.assignments = AssignmentWriter(self)
        self.nested = 0
        """How many `if` and `foreach` are around the current statement."""
        self.locals = 0
        self.reads_timers = False
        self.reads_invokes = False
        self.reads_snapshot = False
        """Whether the step needs more of the snapshot than its context."""
        self.reads_time = False
        self.sets_timers = False
        self.makes_effects = False
        self.reads_epoch = False

    @property
    def has_epoch(self) -> bool:
        """Whether the function needs the epoch of its event; a step that is given by name or values has none."""
        return self.variant not in ("named", "plain") and (self.makes_effects or self.reads_epoch)

    # Branches and prerequisites

    def made_event(self) -> str:
        """Return the source of the event of a step that is given by name."""
        return f"Event({self.name!r}, data, None, None, None, time_ms)"

    @contextmanager
    def branching(self, head: str) -> Iterator[None]:
        """Write statements that run only sometimes. What they know is not known afterwards."""
        branch = self.branch
        self.branch = branch.copy()
        if self.source.depth > DEPTH_MAX:
            raise NotCompiled("guards are nested too deeply")
        with self.source.inside(head):
            yield
        self.branch = branch

    @contextmanager
    def _conditional(self, head: str) -> Iterator[None]:
        """Write statements after which the step continues, whether they run or not."""
        branch = self.branch
        with self.branching(head):
            yield
            inner = self.branch
        branch.references, branch.measured, branch.writes = inner.references, inner.measured, inner.writes
        branch.changes_timers, branch.changes_invokes = inner.changes_timers, inner.changes_invokes
        branch.owned.clear()

    def charge(self, work: int) -> None:
        """Add work. This also limits effects and internal events: each takes at least `ACTION_WORK`."""
        self.work += work
        if self.work > WORK_MAX:
            raise NotCompiled("its work must be charged")

    def local(self, word: str) -> str:
        """Return a new local name."""
        self.locals += 1
        return f"{word}_{self.locals}"

    def need(self, uses: set[str] | frozenset[str]) -> None:
        """Write the statements for the names that the next statement reads."""
        branch = self.branch
        if "event" in uses and not branch.event_is_made:
            branch.event_is_made = True
            if branch.event is not None:
                self.reads_time = True
                queued = branch.event
                sendid = "" if queued.sendid is None else f", {queued.sendid!r}"
                fields = f"{queued.name!r}, {queued.data}, None, None, None, time_ms, {queued.type!r}{sendid}"
                self.add(f"event = Event({fields})")
            elif self.variant == "named":
                self.add(f"event = {self.made_event()}")
        if "active" in uses and branch.active_in_source != branch.active:
            branch.active_in_source = branch.active
            self.add(f"active = {self.constant(branch.active)}")
        if "entity" in uses and not branch.entity_is_made:
            branch.entity_is_made = True
            self.reads_epoch = True
            epoch = "" if self.variant in ("named", "plain") else ", epoch"
            self.add(f"entity = Entity(id, kind, version{epoch})")

    def own_context(self) -> None:
        """Write the copy of the context, before the first write of a branch."""
        self.branch.writes += 1
        if not self.branch.owns_context:
            self.branch.owns_context = True
            self.add("context = context.copy()")

    # Parts

    def part(self, part: Part) -> None:
        """Write the statements of a part."""
        match part:
            case RunBlock():
                self.write_block(part.block)
            case SetActive():
                self.branch.active = part.ids
            case CancelAfter():
                self._cancel_after(part.state)
            case SetAfter():
                self._set_after(part.state, part.after)
            case CancelInvokes():
                self._cancel_invokes(part.state)
            case WaitToInvoke():
                self.branch.to_invoke[part.state.index] = part.state
            case StartInvoke():
                self.start_invoke(part.state, part.position)
            case QueueDone():
                self.charge(ACTION_WORK)
                data = "None" if part.final is None or part.final.output is None else self.output(part.final)
                self.branch.queue.append(Queued(part.name, data, "platform"))
            case _:
                raise NotCompiled("fields are bound at the first entry of their state")

    def output(self, state: State) -> str:
        """Write the evaluation of a final state's output, and return its name."""
        if state.output is None:
            return "None"
        output = self.local("output")
        self.add(f"{output} = {self.value(state.output)}")
        self._measure(output, references(state.output))
        return output

    # Effects

    def effect(self, type: str, payload: str, count: int = 0) -> str:
        """Write an effect and return the source of its key. `count`: how many expression results the payload has."""
        self.makes_effects = True
        self.branch.references += count
        if not self.straight:
            self.add(f"add_effect(effects, base, {type!r}, {payload})")
            return "effects[-1].key"
        if self.nested:
            raise NotStraight
        ordinal = len(self.branch.effects)
        effect = f"effect_{ordinal}"
        self.add(f"{effect} = Effect({type!r}, {ordinal}, base + '{ordinal}', {payload})")
        self.branch.effects.append(effect)
        if count:
            self.branch.measured.append(f"{effect}.payload")
        return f"{effect}.key"

    def notify_parent(self, output: str) -> str:
        """Write the effect that gives the output of an ended entity to its parent, and return all effects."""
        self._measure(output, 1)
        if not self.straight:
            self.makes_effects = True
            self.add(f"if snapshot.parent is not None: add_effect(effects, base, 'done', {{'data': {output}}})")
            return "tuple(effects)"
        ordinal = len(self.branch.effects)
        self.add(f"effects = {self.effects()}")
        with self.source.inside("if snapshot.parent is not None:"):
            done = f"Effect('done', {ordinal}, f'{{id}}/{{version}}/{ordinal}', {{'data': {output}}})"
            self.add(f"effects = (*effects, {done})")
        return "effects"

    def _measure(self, value: str, count: int) -> None:
        """Write a check of a value that the general step measures: here in a loop or a branch, otherwise at the end."""
        self.branch.references += count
        if count and self.nested:
            self.add(f"need_short({value})")
        elif count:
            self.branch.measured.append(value)

    def effects(self) -> str:
        """Return the source of the effects so far."""
        if self.straight:
            return f"({', '.join(self.branch.effects)},)" if self.branch.effects else "()"
        return "tuple(effects)" if self.makes_effects else "()"

    def check_payloads(self) -> None:
        """Write the checks for payloads that the general step would measure."""
        branch = self.branch
        if branch.references > UNMEASURED_MAX:
            for value in branch.measured:
                self.add(f"need_short({value})")
            if not self.straight and self.makes_effects:
                self.add("need_short_payloads(effects)")

    # Timers

    def _touch_timers(self) -> None:
        self.reads_timers = self.reads_snapshot = self.branch.changes_timers = True

    def timers(self) -> str:
        """Return the source of the timers at this point."""
        return self._items("timers", self.branch.timers, changed=self.branch.changes_timers)

    def _cancel_after(self, state: State) -> None:
        self._touch_timers()
        if not self.straight:
            self.makes_effects = True
            self.add(f"timers = cancel_after(timers, effects, base, {state.id!r})")
            return
        for each in [each for each in self.branch.timers if each.state == state.id]:
            self._drop_timer(each)

    def _drop_timer(self, timer: Known) -> None:
        self.effect("timer_cancel", f"{{'name': {timer.source}.name, 'version': {timer.source}.version}}")
        self.branch.timers.remove(timer)

    def drop_timers(self) -> None:
        """Drop all timers. In the straight form none is left: all of them belong to states that were exited."""
        self._touch_timers()
        if not self.straight:
            self.makes_effects = True
            self.add("drop_timers(timers, effects, base, timers)")

    def _set_after(self, state: State, after: After) -> None:
        self._touch_timers()
        self.charge(EVALUATION_WORK)
        self.reads_time = self.sets_timers = True
        delay = str(after.delay) if isinstance(after.delay, int) else f"delay_of({self.value(after.delay)}, None)"
        name = repr(after.event)
        due = self.local("due_ms")
        self.add(f"{due} = time_ms + {delay}")
        if not self.straight:
            self.makes_effects = True
            given = f"{name}, {name}, None, {due}, None, None, {after.restore!r}, {state.id!r}"
            self.add(f"timers = set_timer(timers, effects, base, version, {given})")
            return
        for each in self.branch.timers:
            if each.new and each.name == after.event:
                raise NotCompiled(f"two timers have the name `{after.event}`")
            if not each.new:
                self.add(f"if {each.source}.name == {name}: return None")
        timer = self.local("timer")
        ordinal = len(self.branch.effects)
        fields = f"{name}, {name}, {due}, version, {ordinal}, {name}, None, None, None, {after.restore!r}, {state.id!r}"
        self.add(f"{timer} = Timer({fields})")
        self.branch.timers.append(Known(timer, state.id, after.event, new=True))
        self.effect("timer", f"{{'name': {name}, 'event': {name}, 'due_ms': {due}, 'version': version}}")

    # Invokes

    def _touch_invokes(self) -> None:
        self.reads_invokes = self.reads_snapshot = self.branch.changes_invokes = True

    def invokes(self) -> str:
        """Return the source of the invocations at this point."""
        return self._items("invokes", self.branch.invokes, changed=self.branch.changes_invokes)

    def _items(self, name: str, known: list[Known], *, changed: bool) -> str:
        if not self.straight:
            return name
        if not changed:
            return f"snapshot.{name}"
        self.reads_snapshot = True
        return f"({', '.join(each.source for each in known)},)" if known else "()"

    def _cancel_invokes(self, state: State) -> None:
        self._touch_invokes()
        self.branch.to_invoke.pop(state.index, None)
        if not self.straight:
            self.makes_effects = True
            self.add(f"invokes = cancel_invokes(invokes, effects, base, {state.id!r})")
            return
        for each in [each for each in self.branch.invokes if each.state == state.id]:
            if each.new:
                raise NotCompiled("an invoke is started and cancelled in one step")
            self.effect("invoke_cancel", f"{{'id': {each.source}.id, 'key': {each.source}.key}}")
            self.branch.invokes.remove(each)

    def start_invoke(self, state: State, position: int) -> None:
        """Write the start of an invoke: its effect and its invocation."""
        self._touch_invokes()
        self.charge(EVALUATION_WORK)
        invoke = state.invokes[position]
        if invoke.id_location is not None:
            raise NotCompiled("an invoke stores its id")
        if isinstance(invoke.src, Expression) or not isinstance(invoke.type, str):
            raise NotCompiled("the source or type of an invoke is computed")
        ordinal = len(self.branch.effects) if self.straight else "{len(effects)}"
        name = repr(invoke.id) if invoke.id is not None else f"{state.id + '.'!r} + f'{{version}}.{ordinal}'"
        invokeid = self.local("invokeid")
        self.add(f"{invokeid} = {name}")
        count = sum(references(each) for each in (invoke.src, invoke.type, invoke.input, invoke.key))
        key = self.effect("invoke", self._invoke_payload(invoke, invokeid, state.id), count)
        invocation = f"Invocation({invokeid}, {state.id!r}, {position}, {key}, {invoke.type in CHART_TYPES})"
        if self.straight:
            started = self.local("invocation")
            self.add(f"{started} = {invocation}")
            self.branch.invokes.append(Known(started, state.id, invoke.id or "", new=True))
        else:
            self.add(f"invokes = (*invokes, {invocation})")

    def _invoke_payload(self, invoke: Invoke, invokeid: str, state: str) -> str:
        """Return the source of the payload of an invoke, in the order of `StepRun.start_invoke`."""
        items = {"id": invokeid, "state": repr(state)}
        if invoke.src is not None:
            items["src"] = repr(invoke.src)
        items["type"] = repr(invoke.type)
        if invoke.input is not None:
            items["input"] = self.value(invoke.input)
        if invoke.key is not None:
            items["key"] = self._key(invoke.key)
        if invoke.autoforward:
            items["autoforward"] = "True"
        if invoke.retry is not None:
            retry = invoke.retry
            given = {"max": repr(retry.max), "backoff": self.constant(retry.backoff), "jitter": repr(retry.jitter)}
            items["retry"] = _mapping({**given, "on": repr(retry.on and list(retry.on))})
        if invoke.timeout_ms is not None:
            items["timeout_ms"] = repr(invoke.timeout_ms)
        if invoke.restore != "keep":
            items["restore"] = repr(invoke.restore)
        if invoke.late is not None:
            items["late"] = "True"
        return _mapping(items)

    def _key(self, key: Value) -> str:
        """Write the check of the computed key of an invoke, and return its source."""
        name = self.local("key")
        self.add(f"{name} = {self.value(key)}")
        self.add(f"if {name}.__class__ is not str: checked_key({name})")
        return name

    # Actions

    def action(self, action: Action) -> None:
        """Write the source of an action."""
        self.charge(ACTION_WORK)
        match action:
            case Do():
                given = "" if action.arguments is None else f", 'input': {self.value(action.arguments)}"
                self.effect("call", f"{{'name': {action.name!r}{given}}}", references(action.arguments))
            case Assign():
                for path, value in action.values:
                    self.assign(path, value)
            case AssignCall():
                self.own_context()  # a function that changes its argument must not change the snapshot
                result = self.call(action.name, self.actions.assigns, action.arguments)
                self.add(f"assign_all(context, {result}, {self.constant(self.actions.fields)})")
            case Raise():
                self._raise(action.event, self.value(action.data), references(action.data), None)
            case Send():
                self.send(action)
            case Cancel():
                self._cancel(action)
            case Emit():
                name = self._checked(action.type, "checked_type")
                payload = f"{{'type': {name}, 'data': {self.value(action.data)}}}"
                self.effect("message", payload, references(action.type) + references(action.data))
            case Log():
                payload = f"{{'label': {action.label!r}, 'value': {self.value(action.value)}}}"
                self.effect("log", payload, references(action.label) + references(action.value))
            case If():
                self.branches(action)
            case Foreach():
                self.foreach(action)
            case _:
                raise NotCompiled("a script")

    def _checked(self, value: Value, check: str, *, names: bool = False) -> str:
        """Return the source of a name. A literal is checked now, a computed one by this function."""
        if isinstance(value, Expression):
            return f"{check}({self.value(value)})"
        fits = isinstance(value, str) and value and (not names or len(value) <= NAME_BYTES_MAX)
        if not fits or (names and is_reserved(value)):
            raise NotCompiled("a name that the chart may not use")
        return repr(value)

    def _raise(self, event: Value, data: str, count: int, sendid: str | None) -> None:
        if not isinstance(event, str):
            raise NotCompiled("the name of an internal event is computed")
        if self.nested:
            raise NotCompiled("an internal event inside `if` or `foreach`")
        self._checked(event, "", names=True)
        value = "None"
        if data != "None":
            value = self.local("data")
            self.add(f"{value} = {data}")
        self._measure(value, count)
        self.branch.queue.append(Queued(event, value, "internal", sendid))

    def send(self, action: Send) -> None:
        """Write the source of a `send`: an internal event, an effect, or a timer."""
        if action.id_location is not None or action.type not in (None, "", "scxml", SCXML_PROCESSOR):
            raise NotCompiled("a `send` with a type, or one that stores its id")
        sendid = action.id
        if sendid is not None and not (isinstance(sendid, str) and len(sendid) <= NAME_BYTES_MAX):
            raise NotCompiled("the id of a `send` is computed")
        count = references(action.data)
        if action.to in ("internal", "#_internal"):
            if action.delay is not None:
                raise NotCompiled("an internal event with a delay")
            self._raise(action.event, self.value(action.data), count, sendid)
            return
        event = self._checked(action.event, "checked_name", names=True)
        address = self._address(action.to)
        if action.delay is None or _literal_delay(action.delay) == 0:
            self._send_now(event, address, action.data, sendid, count)
        else:
            self._send_later(event, address, action, count)

    def _address(self, to: Value) -> str:
        """Write the check of a target, and return the source of its address."""
        if to is None or to == "self":
            return "id"
        if to in ("parent", "#_parent"):
            self.reads_snapshot = True
            self.add("if snapshot.parent is None: return None")
            return "'#_parent'"
        if isinstance(to, str) and "/" in to and to[0] not in "#!" and len(to) <= ADDRESS_LENGTH_MAX:
            return repr(to)
        self.reads_invokes = self.reads_snapshot = True
        invokes = "invokes"
        if self.straight:
            known = self.branch.invokes
            invokes = f"({', '.join(each.source for each in known)},)" if known else "()"
        address = self.local("address")
        self.add(f"{address} = send_address({self.value(to)}, id, snapshot.parent, {invokes}, None)")
        self.add(f"if {address} == '#_internal': return None")
        return address

    def _send_now(self, event: str, address: str, data: Value, id: str | None, count: int) -> None:
        items = {"event": event, "to": address}
        sendid = {} if id is None else {"sendid": repr(id)}
        if data is None:
            payload = _mapping({**items, **sendid})
        elif isinstance(data, Expression):
            value = self.local("data")
            self.add(f"{value} = {self.value(data)}")
            full = _mapping({**items, "data": value, **sendid})
            payload = f"{_mapping({**items, **sendid})} if {value} is None else {full}"
        else:
            payload = _mapping({**items, "data": self.value(data), **sendid})
        self.effect("send", payload, count)

    def _send_later(self, event: str, address: str, action: Send, count: int) -> None:
        if self.straight:
            raise NotStraight
        self._touch_timers()
        self.reads_time = self.sets_timers = self.makes_effects = True
        delay = _literal_delay(action.delay)
        if delay is None:
            delayed = self.local("delay_ms")
            self.add(f"{delayed} = delay_of({self.value(action.delay)}, None)")
            self.add(f"if not {delayed}: return None")
        else:
            delayed = str(delay)
        data = self.local("data")
        self.add(f"{data} = {self.value(action.data)}")
        self._measure(data, count)
        to = "None" if address == "id" else f"None if {address} == id else {address}"
        restore = action.restore or "deadline"
        given = f"{action.id!r}, {event}, {data}, time_ms + {delayed}, {to}, {action.type!r}, {restore!r}, None"
        self.add(f"timers = set_timer(timers, effects, base, version, {given})")

    def _cancel(self, action: Cancel) -> None:
        if self.straight:
            raise NotStraight
        self._touch_timers()
        self.makes_effects = True
        self.add(f"timers = cancel_id(timers, effects, base, {self.value(action.id)})")

    def branches(self, action: If) -> None:
        """Write the source of an `if`. A guard that fails raises, and so falls back."""
        if any(_writes(block) for _, block in action.branches) or _writes(action.otherwise):
            self.own_context()
        self.nested += 1
        self._alternatives(action.branches, action.otherwise)
        self.nested -= 1

    def _alternatives(self, branches: tuple[tuple[Any, Block], ...], otherwise: Block) -> None:
        if not branches:
            self.write_block(otherwise)
            return
        (guard, block), *others = branches
        with self._conditional(f"if {self.guard(guard)}:"):
            self.add("pass")
            self.write_block(block)
        if others or otherwise:
            with self._conditional("else:"):
                self.add("pass")
                self._alternatives(tuple(others), otherwise)

    def foreach(self, action: Foreach) -> None:
        """Write the source of a `foreach` over a short list. Its work is that of as many items as there may be."""
        if not all(name is None or name.isidentifier() for name in (action.item, action.index)):
            raise NotCompiled("a `foreach` with an invalid name")
        items = self.value(action.items)
        self.own_context()
        self.branch.owned.clear()  # a round of the loop may give them away
        index, item = self.local("index"), self.local("item")
        self.nested += 1
        work, count = self.work, self.branch.references
        with self._conditional(f"for {index}, {item} in enumerate(short_list({items})):"):
            self.bind_loop_variable(action.item, item)
            if action.index is not None:
                self.bind_loop_variable(action.index, index)
            self.write_block(action.block)
        self.charge((ITEMS_MAX - 1) * (self.work - work) + ITEMS_MAX * EVALUATION_WORK)
        self.branch.references += (ITEMS_MAX - 1) * (self.branch.references - count)
        self.nested -= 1

    # Values

    def expression(self, expression: Expression) -> str:
        """Return the source of an expression, after the statements that it needs."""
        if expression.malformed is not None:
            raise NotCompiled("a malformed expression")
        if self.actions.language is not SAFE:
            raise NotCompiled("an expression of another language")
        outside, self.uses = self.uses, set()
        source = super().expression(expression)
        typed = self.actions.typed(expression)
        if typed is not None and not typed.operands:  # a sum is not checked there
            source, self.uses = f"({typed.source})", set(typed.uses)
        self.need(self.uses)
        if "context" in self.uses:
            self.branch.owned.clear()  # its value may be one of them
        self.uses |= outside
        return source

    def guard(self, guard: Guard) -> str:
        """Return the source of a guard, after the statements that it needs. What is certain is not written."""
        match guard:
            case GuardExpression():
                return self.expression(guard.expression)
            case GuardIn():
                return repr(guard.state in self.branch.active)
            case GuardNot():
                inner = self.guard(guard.guard)
                return {"True": "False", "False": "True"}.get(inner, f"(not {inner})")
            case GuardAll():
                return self._joined(guard.guards, " and ", until="False")
            case GuardAny():
                return self._joined(guard.guards, " or ", until="True")
            case _:
                return self.call(guard.name, self.actions.guards, guard.arguments)

    def _joined(self, guards: tuple[Guard, ...], word: str, *, until: str) -> str:
        """Return the source of guards joined by a word.

        What comes after a guard that is certainly `until` is not evaluated, and one that is certainly the opposite
        changes nothing.
        """
        sources = []
        for each in guards:
            source = self.guard(each)
            if source not in ("True", "False"):
                sources.append(source)
            elif source == until:
                sources.append(source)
                break
        if not sources:
            return "True" if until == "False" else "False"
        return f"({word.join(sources)})" if len(sources) > 1 else sources[0]

    def call_source(self, function: str, name: str, arguments: str, *, by: str) -> str:  # noqa: ARG002  # errors need no name here
        """Return the source of a plain call."""
        self.need({"event"})
        self.branch.owned.clear()  # the function may keep or return one of them
        return f"{function}({arguments})"

    def check_source(self, value: str, field: Field) -> str:
        """Return the source of a check that is not charged: the value is short."""
        return f"refuse({value}, {self.constant(field)})"

    def assign(self, path: str, value: Value) -> None:
        """Write one assignment, with the checks whose result is not known now."""
        if not self.assignments.assign(path, value):
            self.own_context()
            super().assign(path, value)
            self.assignments.forget((path,))


def _mapping(items: Mapping[str, str]) -> str:
    """Return the source of a mapping."""
    return "{" + ", ".join(f"{key!r}: {value}" for key, value in items.items()) + "}"


def _literal_delay(delay: Value) -> int | None:
    """Return the milliseconds of a delay that is not computed; None for one that is. Raises NotCompiled for others."""
    if isinstance(delay, Expression):
        return None
    try:
        return delay_of(delay, None)
    except ActionError as error:
        raise NotCompiled("a delay that is not a duration") from error


def _writes(block: Block) -> bool:
    """Return whether a block writes to the context."""
    return any(
        isinstance(each, Assign | AssignCall | Foreach)
        or (isinstance(each, If) and (any(_writes(block) for _, block in each.branches) or _writes(each.otherwise)))
        for each in block
    )
