"""A life with personal data that takes every way in and out, and the search for what must not be in any file."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import interlock
from interlock.assemble.charts import BoundChart
from interlock.buses.memory import MemoryBus
from interlock.errors import RejectedError
from interlock.ports.trust.data_keys import DataKey
from interlock.runtime.runtime import Runtime
from tests.support.eventually import eventually

EMAIL = "ada.canary@example.org"
PHONE = "+49-30-5550-canary"
IBAN = "DE00-canary-0370-0440"
CITY = "Canaryville"
CANARIES = tuple(each.encode() for each in (EMAIL, PHONE, IBAN, CITY))

CUSTOMER = """
interlock: 1
kind: customer
context:
  email: {type: string, nullable: true, personal: true}
  phone: {type: string, nullable: true, personal: true}
  iban: {type: string, nullable: true, personal: true}
  home: {type: object, nullable: true, fields: {city: {type: string, personal: true}, land: string}}
  adult: {type: boolean, default: false}
  ok: {nullable: true}
  failed: {nullable: true}
  reminders: {type: integer, default: 0}
events:
  signup:
    payload:
      email: {type: string, personal: true}
      home: {type: object, fields: {city: {type: string, personal: true}, land: string}}
      adult: boolean
  change: {payload: {email: {type: string, length_max: 40, personal: true}}}
  same: {payload: {email: {type: string, personal: true}}}
  tell: {payload: {to: string}}
  leak: {payload: {to: string}}
  publish: {}
  remind: {}
  reminder: {direction: internal, payload: {email: {type: string, personal: true}}}
  check: {}
  fail: {}
  invite: {}
  close: {}
  customer.welcomed: {direction: out, payload: {email: {type: string, personal: true}, adult: boolean}}
initial: new
states:
  new:
    on:
      signup:
        target: looking
        actions: [{assign: {email: = event.data.email, home: = event.data.home, adult: = event.data.adult}}]
  looking:
    invoke:
      src: bank.lookup
      input: {email: = context.email, city: = context.home.city}
      personal: [iban]
      onDone: {target: active, actions: [{assign: {iban: = event.data.iban, ok: = event.data.ok}}]}
      onError: {target: active, actions: [{assign: {failed: = event.data.code}}]}
  failing:
    invoke:
      src: bank.fail
      input: {email: = context.email}
      onDone: active
      onError: {target: active, actions: [{assign: {failed: = event.data.message}}]}
  inviting:
    invoke:
      type: chart
      src: invitation
      input: {mail: = context.email}
      personal: true
      onDone: {target: active, actions: [{assign: {phone: = event.data}}]}
      onError: {target: active, actions: [{assign: {failed: = event.data.code}}]}
  active:
    on:
      change: {actions: [{assign: {email: = event.data.email}}]}
      same: {guard: "= event.data.email == context.email", actions: [{assign: {ok: same}}]}
      tell: {actions: [{send: {event: told, to: "= event.data.to", data: {email: = context.email}}}]}
      leak: {actions: [{send: {event: leaked, to: "= event.data.to", data: {email: = context.email}}}]}
      publish: {actions: [{emit: {type: customer.welcomed, data: {email: = context.email, adult: = context.adult}}}]}
      remind: {actions: [{send: {event: reminder, delay: 10ms, data: {email: = context.email}}}]}
      reminder:
        guard: = event.data.email == context.email
        actions: [{assign: {reminders: = context.reminders + 1}}]
      check: looking
      fail: failing
      invite: inviting
      close: closed
      error.communication: {actions: [{assign: {failed: = event.data.code}}]}
  closed: {type: final}
"""

PARTNER = """
interlock: 1
kind: partner
context:
  email: {type: string, nullable: true, personal: true}
  note: {nullable: true}
events:
  told: {payload: {email: {type: string, personal: true}}}
  leaked: {payload: {email: {type: any}}}
states:
  open:
    on:
      told: {actions: [{assign: {email: = event.data.email}}]}
      leaked: {actions: [{assign: {note: = event.data.email}}]}
"""

INVITATION = """
interlock: 1
kind: invitation
context: {mail: {type: string, nullable: true, personal: true}}
states:
  ready: {after: {1ms: sent}}
  sent: {type: final, output: = context.mail}
"""


class Services:
    """The handlers of a customer, and what they saw."""

    def __init__(self) -> None:
        self.inputs: list[Any] = []

    def chart(self) -> BoundChart[Any]:
        """A chart with these handlers."""
        chart = interlock.loads(CUSTOMER)

        @chart.handler("bank.lookup")
        async def lookup(attempt: Any) -> Any:
            self.inputs.append(attempt.input)
            return {"iban": IBAN, "ok": True}

        @chart.handler("bank.fail")
        async def fail(attempt: Any) -> Any:
            attempt.heartbeat({"seen": attempt.input})
            raise RejectedError(f"no account of {attempt.input['email']}", code="bank.none")

        return chart


def charts(services: Services) -> list[BoundChart[Any]]:
    """All charts."""
    return [services.chart(), interlock.loads(PARTNER), interlock.loads(INVITATION)]


async def live(runtime: Runtime, services: Services, bus: MemoryBus) -> None:
    """A customer who takes every way; each value comes out as it went in."""
    entity = "customer/c-1"

    async def until(state: str) -> Any:
        async def found() -> Any:
            snapshot = await runtime.state(entity)
            return snapshot if state in snapshot.configuration else None

        return await eventually(found, f"{state} of {entity}")

    await runtime.create(entity, {"phone": PHONE}, key="new")
    assert (await runtime.create(entity, {"phone": PHONE}, key="new")).outcome == "duplicate"
    payload = {"email": EMAIL, "home": {"city": CITY, "land": "DE"}, "adult": True}
    receipt = await runtime.send(entity, "signup", payload, key="signup")
    assert receipt.expect().snapshot.context["email"] == EMAIL
    assert (await runtime.send(entity, "signup", payload, key="signup")).outcome == "duplicate"
    active = await until("active")
    assert services.inputs[-1] == {"email": EMAIL, "city": CITY}
    assert (active.context["iban"], active.context["phone"], active.context["ok"]) == (IBAN, PHONE, True)
    assert active.context["home"] == {"city": CITY, "land": "DE"}
    assert (await runtime.send(entity, "same", {"email": EMAIL})).outcome == "applied"
    assert (await runtime.send(entity, "same", {"email": "other@example.org"})).outcome == "rejected"
    await runtime.send(entity, "fail")
    failed = await until("active")
    assert EMAIL not in str(failed.context["failed"])
    await runtime.send(entity, "remind")
    await eventually(lambda: _has(runtime, entity, reminders=1), "the reminder")
    await runtime.send(entity, "invite")
    await eventually(lambda: _has(runtime, entity, phone=EMAIL), "the answer of the child")
    await runtime.create("partner/p-1")
    await runtime.send(entity, "tell", {"to": "partner/p-1"})
    await eventually(lambda: _has(runtime, "partner/p-1", email=EMAIL), "what the partner was told")
    await runtime.send(entity, "leak", {"to": "partner/p-1"})
    await eventually(lambda: _has(runtime, entity, failed="personal.undeclared"), "the refusal of the relay")
    assert (await runtime.state("partner/p-1")).context["note"] is None
    await runtime.send(entity, "publish")
    await eventually(lambda: any(each.type == "customer.welcomed" for each in bus.messages), "the message")
    message = next(each for each in bus.messages if each.type == "customer.welcomed")
    assert message.data == {"email": EMAIL, "adult": True}
    entries = await runtime.journal(entity)
    assert any(each.event.data == payload for each in entries)
    assert (await runtime.verify(entity)).replayed


async def _has(runtime: Runtime, entity: str, **values: Any) -> bool:
    context = (await runtime.state(entity)).context
    return all(context.get(name) == value for name, value in values.items())


async def key_of(runtime: Runtime, entity: str) -> tuple[DataKey, bytes]:
    """The row of the data key of an entity, and the key itself."""
    assert runtime.vault is not None
    kid = (await runtime.preview_erasure(entity)).kid
    row = await runtime.vault.keys.find_key(kid)
    assert isinstance(row, DataKey)
    return row, runtime.vault.keyring.unwrap(row.epoch, row.wrapped, kid=kid, tenant=runtime.vault.keys.tenant)


def found_in(folder: Path, *secrets: bytes) -> list[str]:
    """The files below a folder that contain one of these, as it is, in hex or in base64."""
    forms = [
        form for each in secrets for form in (each, each.hex().encode(), each.hex().upper().encode(), b64encode(each))
    ]
    return sorted(
        {str(path.relative_to(folder)) for path, content in _files(folder) for form in forms if form in content}
    )


def _files(folder: Path) -> Iterator[tuple[Path, bytes]]:
    for path in folder.rglob("*"):
        if path.is_file():
            yield path, path.read_bytes()
