"""An account that fraud can freeze without its owner learning it, and the people around it."""

from __future__ import annotations

import interlock

ACCOUNT = """\
interlock: 1
kind: account
unhandled: defer
create: {roles: [customer]}
context:
  balance: {type: integer, default: 0, index: true}
  iban: {type: string, default: DE00}
  note: {type: string, nullable: true}
sensitive: [iban]
events:
  deposited: {roles: [customer], payload: {amount: integer}}
  closed: {roles: [customer]}
  frozen: {roles: [fraud]}
  noted: {roles: [fraud], payload: {text: string}}
  unfrozen: {roles: [fraud]}
  dormant: {direction: internal}
initial: active
states:
  active:
    tags: [usable]
    on:
      deposited:
        actions:
          - assign: {balance: "= context.balance + event.data.amount"}
          - emit: {type: account.deposited, data: {balance: "= context.balance"}}
      frozen: frozen
      closed: closed
  frozen:
    sensitive: {as: active, roles: [fraud]}
    tags: [watched]
    entry: [{emit: {type: account.frozen}}]
    on:
      noted: {actions: [{assign: {note: "= event.data.text"}}]}
      unfrozen: active
  closed: {type: final}
"""

ADA = {"id": "ada", "roles": ["customer"]}
EVE = {"id": "eve", "roles": ["fraud"]}
CHIEF = {"id": "chief", "roles": [], "rights": ["read:sensitive"]}
"""A customer, who may not see hidden states; fraud, who may by role; and the chief, who may by right."""


def account(text: str = ACCOUNT) -> interlock.BoundChart:
    """Return the chart of accounts."""
    return interlock.loads(text)
