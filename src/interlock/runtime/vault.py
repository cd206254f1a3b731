"""The vault of a runtime: seals personal values where they enter, and opens them where they leave.

Rule 1: a value is sealed once per try, before the step. Sealing is deterministic, so a retry writes the same bytes.
Rule 2: a key is durable before the entry that uses it. Keys are written in pools, before entities need them; a crash
wastes keys and never leaves an entity without one.
Rule 3: an opened key is used for `CIPHER_AGE_MS_MAX` at most. So an erasure in one process is complete in the others
within that time.
Rule 4: results and timers of an erased entity are never refused: their personal values become the empty token, because
the fact that they came cannot be undone. A sender's personal value is refused.
Rule 5: an event from another entity may contain tokens of that entity. They are opened, and sealed again with the key
of the receiver; where the receiver declares no personal field for one, the event is not delivered.
"""

from __future__ import annotations

import asyncio
import secrets  # noqa: TID251 - keys are not an input: no program may choose them
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from msgspec.structs import replace

from interlock.errors import NotFoundError, RejectedError, UnavailableError
from interlock.kernel.step import Kernel
from interlock.model.charts.personal_plan import PersonalPlan, ResultFields, seal_fields, seal_result, unsealed_fields
from interlock.model.document.field import Field
from interlock.model.driver_events import invoke_failed
from interlock.model.event import Event
from interlock.model.journal.entry import Entry, Receipt
from interlock.model.limits import CIPHER_AGE_MS_MAX, CIPHERS_CACHED_MAX, DATA_KEYS_POOL
from interlock.model.personal_token import ERASED, KEY_FIELD, TOKEN_KEY, contains_token, is_token, tokens_in
from interlock.model.snapshot import Snapshot
from interlock.model.step import Fault, Step
from interlock.ports.clock import Clock
from interlock.ports.threads import in_thread
from interlock.ports.trust.data_keys import DataKey, DataKeys, Destroyed, DestroyedKey
from interlock.ports.trust.keyring import Keyring
from interlock.trust.sealing import DATA_KEY_BYTES, KID_BYTES, DataCipher, kid_of, replace_tokens

T = TypeVar("T")

ERASED_CODE = "personal.erased"
"""The code of what cannot be done any more because personal data was erased."""

UNDECLARED = "personal.undeclared"
"""The code of an event whose receiver has no personal field for a personal value."""

DONE = "done.invoke."


def missing_keyring(kind: str | None = None) -> UnavailableError:
    """Return the error for a process that has no keyring, where there is personal data; `kind` names the chart."""
    hint = "open the runtime with `keyring=`, or set INTERLOCK_KEYRING, such as file:keyring.json"
    what = "there is" if kind is None else f"chart `{kind}` has"
    return UnavailableError(f"{what} personal data, and this process has no keyring", code="keyring.missing", hint=hint)


def undeclared_error() -> RejectedError:
    """Return the error for a personal value of another entity that the receiver has no personal field for."""
    hint = "write `personal: true` on the field of the receiver that takes it"
    return RejectedError("the receiver has no personal field for a personal value", code=UNDECLARED, hint=hint)


class PersonalVault:
    """The data keys of a store, as one process uses them."""

    def __init__(self, keys: DataKeys, keyring: Keyring, clock: Clock) -> None:
        self.keys = keys
        self.keyring = keyring
        self._clock = clock
        self._pool: deque[DataCipher] = deque()
        self._filling = asyncio.Lock()
        self._opened: OrderedDict[str, tuple[DataCipher | None, int]] = OrderedDict()

    # Keys

    async def new_cipher(self) -> DataCipher:
        """Return a data key that no entity uses. It is durable."""
        while not self._pool:
            async with self._filling:  # one caller fills the pool, and the others wait for it
                await self.fill_pool()
        cipher = self._pool.popleft()  # nothing was awaited since the pool had one
        self._keep(cipher.kid, cipher)
        return cipher

    def give_back(self, kid: str) -> None:
        """Put the key of an entity that was not created back."""
        found = self._opened.get(kid)
        if found is not None and found[0] is not None:
            self._pool.append(found[0])

    async def fill_pool(self) -> None:
        """Write keys to the store, if none is left. The store refuses keys of an epoch that has just ended."""
        for _ in range(4):  # an epoch ends about once a month
            if self._pool:
                return
            made = await in_thread(self._make_keys)
            if await self.keys.add_keys(tuple(row for row, _ in made)):
                self._pool.extend(cipher for _, cipher in made)
                return
        raise UnavailableError("no data key can be added: epochs keep ending", code="keys.epoch")

    def _make_keys(self) -> list[tuple[DataKey, DataCipher]]:
        epochs = self.keyring.epochs()
        tenant, now_ms, epoch, made = self.keys.tenant, self._clock.now_ms(), epochs[-1], []
        for _ in range(DATA_KEYS_POOL):
            kid, key = secrets.token_hex(KID_BYTES), secrets.token_bytes(DATA_KEY_BYTES)
            wrapped = self.keyring.wrap(epoch, key, kid=kid, tenant=tenant)
            made.append((DataKey(kid, epoch, wrapped, now_ms), DataCipher(key, kid=kid, tenant=tenant)))
        return made

    async def cipher(self, kid: str) -> DataCipher | None:
        """Return an opened data key; None if it was destroyed. Raises UnavailableError (`keys.unknown`)."""
        known = self._opened.get(kid)
        if known is not None and 0 <= self._clock.now_ms() - known[1] < CIPHER_AGE_MS_MAX:
            return known[0]
        row = await self.keys.find_key(kid)
        if row is None:
            hint = "restore the keys of this store from their own backup"
            raise UnavailableError(f"the store has no data key `{kid}`", code="keys.unknown", hint=hint)
        if isinstance(row, DestroyedKey):
            self._keep(kid, None)
            return None
        cipher = known[0] if known is not None and known[0] is not None else await self._unwrap(row)
        self._keep(kid, cipher)
        return cipher

    async def _unwrap(self, row: DataKey) -> DataCipher:
        tenant = self.keys.tenant
        try:
            key = await in_thread(lambda: self.keyring.unwrap(row.epoch, row.wrapped, kid=row.kid, tenant=tenant))
        except NotFoundError as error:
            raise UnavailableError(error.message, code=error.code, hint=error.hint) from error
        return DataCipher(key, kid=row.kid, tenant=tenant)

    def _keep(self, kid: str, cipher: DataCipher | None) -> None:
        self._opened[kid] = (cipher, self._clock.now_ms())
        self._opened.move_to_end(kid)
        if len(self._opened) > CIPHERS_CACHED_MAX:
            self._opened.popitem(last=False)

    async def destroy(self, kid: str) -> Destroyed:
        """Destroy a data key, in the store and in this process."""
        destroyed = await self.keys.destroy_key(kid, now_ms=self._clock.now_ms())
        self._keep(kid, None)
        return destroyed

    # Sealing

    async def seal_context(self, kernel: Kernel, context: dict[str, Any], owner: Any) -> dict[str, Any]:
        """Return the first context of an entity sealed, with its data key: a new one, or `owner`, that of its parent.

        Raises RejectedError when a value does not fit its field.
        """
        plan = kernel.personal
        assert plan is not None
        cipher = await self._cipher_of(owner) if owner is not None else await self.new_cipher()
        seal = _erase_value if cipher is None else cipher.seal
        _check_places(context, plan.context)
        try:
            sealed = seal_fields(await self._reopened(context, plan.context, owner), plan.context, seal)
        except RejectedError as error:
            raise RejectedError(f"invalid context: {error.message}", code="context.refused") from error
        return {**sealed, KEY_FIELD: owner if cipher is None or owner is not None else cipher.kid}

    async def seal_event(self, kernel: Kernel, snapshot: Snapshot, event: Event) -> Event | Fault:
        """Return an event as the step gets it, or why it is refused.

        Raises RejectedError (`personal.undeclared`, `personal.erased`) for an event of another entity that cannot be
        delivered.
        """
        plan, is_result = kernel.personal, event.name.startswith(DONE) and event.type == "platform"
        fields = _fields_of(plan, event, is_result=is_result)
        is_internal = event.origin is not None or event.source is not None
        if not fields and not (is_internal and contains_token(event.data)):
            return event
        owner = snapshot.context.get(KEY_FIELD)
        data = event.data
        if is_internal and contains_token(data):
            try:
                if event.origin is not None:
                    _check_places(data, fields)
                data = await self._reopened(data, fields, owner)
            except RejectedError as error:
                if not is_result:
                    raise
                return _failed_result(event, error)  # its invoke must end
        if not fields:
            return event if data is event.data else replace(event, data=data)
        cipher = await self._cipher_of(owner)
        if cipher is None and not (is_internal or event.type == "platform"):
            if any(True for _ in unsealed_fields(data, fields if isinstance(fields, Mapping) else {})):
                return Fault(ERASED_CODE, "the personal data of this entity was erased", event.name)
            return event
        seal = _erase_value if cipher is None else cipher.seal
        try:
            sealed = seal_fields(data, fields, seal) if isinstance(fields, Mapping) else seal_result(data, fields, seal)
        except RejectedError as error:
            return Fault("event.payload", error.message, event.name)
        return event if sealed is event.data else replace(event, data=sealed)

    async def _cipher_of(self, owner: Any) -> DataCipher | None:
        """Return the cipher of an entity by its value of `KEY_FIELD`; None if it was erased."""
        if isinstance(owner, dict):
            return None
        if not isinstance(owner, str):
            hint = "only `create` gives an entity a data key: create it again under another id"
            raise RejectedError("this entity has no data key", code="personal.no_key", hint=hint)
        return await self.cipher(owner)

    async def _reopened(self, data: Any, fields: Mapping[str, Field] | ResultFields, owner: Any) -> Any:
        """Return data with the tokens opened that are sealed again: those of other entities, and parts of a value.

        A token of this entity that is a whole value stays: sealing is deterministic, so it would be the same.
        """
        kid = owner["kid"] if isinstance(owner, dict) else owner
        found: list[dict[str, Any]] = []
        for value in _values_to_seal(data, fields):
            if not (is_token(value) and kid_of(value) in (None, kid)):
                found += tokens_in(value)
        foreign = [each for each in found if kid_of(each) not in (None, kid)]
        data = await self._open(data, foreign, fails=True) if foreign else data
        parts = [each for each in found if kid_of(each) in (None, kid)]
        return await self._open(data, parts, fails=False) if parts else data

    def check_step(self, kernel: Kernel, before: Snapshot, step: Step) -> Step:
        """Return the step, or a refusal if it would store a personal value that is not sealed.

        The compiler proves that for everything but registered functions, whose results are not known before.
        """
        plan, after = kernel.personal, step.snapshot.context
        assert plan is not None
        found = next(unsealed_fields(after, plan.context), None)
        if found is None and (after is before.context or after.get(KEY_FIELD) == before.context.get(KEY_FIELD)):
            return step
        place = found or KEY_FIELD
        message = f"a registered function wrote a plain value to `{place}`, which is personal"
        return Step(before, (), "rejected", "personal.unsealed", (), (Fault("personal.unsealed", message, place),))

    # Opening

    async def open(self, value: T, *, fails: bool = False) -> T:
        """Return a JSON value with its tokens opened. An erased one becomes the empty token.

        A token whose key the store does not know stays as it is. With `fails` both raise: RejectedError
        (`personal.erased`), and UnavailableError (`keys.unknown`).
        """
        found = list(tokens_in(value))
        return await self._open(value, found, fails=fails) if found else value

    async def _open(self, value: T, found: Iterable[dict[str, Any]], *, fails: bool) -> T:
        opened: dict[str, Any] = {}
        for token in found:
            text = token[TOKEN_KEY]
            if text in opened:
                continue
            kid = kid_of(token)
            try:
                cipher = None if kid is None else await self.cipher(kid)
            except UnavailableError as error:
                if fails or error.code != "keys.unknown":
                    raise
                continue
            if cipher is None and fails:
                raise RejectedError("the personal data was erased", code=ERASED_CODE)
            opened[text] = dict(ERASED) if cipher is None else cipher.open(token)
        result: T = replace_tokens(value, opened)
        return result

    async def open_snapshot(self, snapshot: Snapshot) -> Snapshot:
        """Return a snapshot for a reader: with its tokens opened, and without `KEY_FIELD`. It must not be stored."""
        if KEY_FIELD not in snapshot.context:
            return snapshot
        timers = [each.data for each in snapshot.timers]
        deferred = [each.data for each in snapshot.deferred]
        own = {name: value for name, value in snapshot.context.items() if name != KEY_FIELD}
        parts = [own, timers, deferred, snapshot.output]
        context, timers, deferred, output = await self.open(parts)
        return replace(
            snapshot,
            context=context,
            timers=tuple(replace(each, data=data) for each, data in zip(snapshot.timers, timers, strict=True)),
            deferred=tuple(replace(each, data=data) for each, data in zip(snapshot.deferred, deferred, strict=True)),
            output=output,
        )

    async def open_entry(self, entry: Entry) -> Entry:
        """Return an entry for a reader: with its tokens opened."""
        payloads = [each.payload for each in entry.effects]
        parts = [entry.event.data, payloads]
        if not contains_token(parts):
            return entry
        data, payloads = await self.open(parts)
        effects = tuple(replace(each, payload=payload) for each, payload in zip(entry.effects, payloads, strict=True))
        return replace(entry, event=replace(entry.event, data=data), effects=effects)

    async def open_receipt(self, receipt: Receipt) -> Receipt:
        """Return a receipt for a caller: with its tokens opened."""
        snapshot = None if receipt.snapshot is None else await self.open_snapshot(receipt.snapshot)
        payloads = [each.payload for each in receipt.effects]
        if contains_token(payloads):
            payloads = await self.open(payloads)
        effects = tuple(replace(each, payload=new) for each, new in zip(receipt.effects, payloads, strict=True))
        return replace(receipt, snapshot=snapshot, effects=effects)


def _fields_of(plan: PersonalPlan | None, event: Event, *, is_result: bool) -> Mapping[str, Field] | ResultFields:
    """Return the personal fields of an event's data for this receiver."""
    if plan is None:
        return {}
    if is_result:
        return plan.results.get(event.invokeid or event.name.removeprefix(DONE), {})
    return plan.payloads.get(event.name, {})


def _check_places(data: Any, fields: Mapping[str, Field] | ResultFields) -> None:
    """Raise RejectedError (`personal.undeclared`) for a token where the receiver declares no personal field."""
    if fields is True:
        return
    if isinstance(fields, tuple):
        rest = {name: each for name, each in data.items() if name not in fields} if type(data) is dict else None
    else:
        rest = _outside(data, fields)
    if contains_token(rest):
        raise undeclared_error()


def _values_to_seal(data: Any, fields: Mapping[str, Field] | ResultFields) -> Iterator[Any]:
    """Yield the values of data that are sealed, each as a whole."""
    if fields is True:
        yield data
    elif type(data) is not dict:
        return
    elif isinstance(fields, tuple):
        yield from (data[name] for name in fields if name in data)
    else:
        for name, field in fields.items():
            if field.personal:
                yield data.get(name)
            else:
                yield from _values_to_seal(data.get(name), field.fields_by_name)


def _outside(data: Any, fields: Mapping[str, Field]) -> Any:
    """Return the parts of data that are not in personal fields."""
    if type(data) is not dict:
        return data
    rest = []
    for name, value in data.items():
        field = fields.get(name)
        if field is None:
            rest.append(value)
        elif not field.personal:
            rest.append(_outside(value, field.fields_by_name))
    return rest


def _failed_result(event: Event, error: RejectedError) -> Event:
    """Return the failure of an invoke in place of a result that cannot be delivered."""
    invokeid = event.invokeid or event.name.removeprefix(DONE)
    failed = invoke_failed(invokeid, "", error.code, error.message, done="unknown")
    return replace(event, name=failed.name, data=failed.data)


def _erase_value(value: Any) -> dict[str, Any]:  # noqa: ARG001 - it takes the place of a cipher
    return dict(ERASED)
