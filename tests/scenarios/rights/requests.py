"""One request for each endpoint, and one command line for each command, on a store with two tenants.

Rule 1: the tables have one row for each endpoint and each command; `test_rights` compares them with the route table
        and the parser. So a new one cannot be forgotten.
Rule 2: a request would succeed if the caller had the right: what it names exists, and it is complete.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

OWN = "order/A-1"
DEAD = "order/A-2"
"""An entity with a dead letter: its handler failed."""


WORK = "/work"


@dataclass(frozen=True, slots=True)
class Request:
    """The path with its query, without `/api/v1`, and the body."""

    path: str
    body: Any = None


REQUESTS: dict[str, Request] = {
    "POST /login": Request("/login", {"secret": "ilk_unknown"}),
    "POST /logout": Request("/logout", {}),
    "GET /me": Request("/me"),
    "GET /kinds": Request("/kinds"),
    "GET /kinds/{kind}": Request("/kinds/order"),
    "GET /kinds/{kind}/chart.svg": Request("/kinds/order/chart.svg"),
    "GET /kinds/{kind}/diff": Request("/kinds/order/diff?from=2.0.0&to=2.0.0"),
    "GET /kinds/{kind}/diff.svg": Request("/kinds/order/diff.svg?from=2.0.0&to=2.0.0"),
    "GET /kinds/{kind}/entities": Request("/kinds/order/entities"),
    "POST /kinds/{kind}/entities": Request("/kinds/order/entities", {"id": "N-1", "context": {"amount": 5}}),
    "POST /send/{entity:path}": Request(
        f"/send/{OWN}", {"event": "order.cancelled", "key": "k-1", "reason": "they asked"}
    ),
    "GET /entity/{entity:path}": Request(f"/entity/{OWN}"),
    "GET /accepted/{entity:path}": Request(f"/accepted/{OWN}"),
    "GET /journal/{entity:path}": Request(f"/journal/{OWN}"),
    "GET /work": Request("/work"),
    f"POST {WORK}/retry": Request(
        f"{WORK}/retry", {"entity": DEAD, "lane": "effect", "version": 2, "ordinal": 0, "reason": "again"}
    ),
    f"POST {WORK}/drop": Request(
        f"{WORK}/drop", {"entity": DEAD, "lane": "effect", "version": 2, "ordinal": 0, "reason": "enough"}
    ),
    "GET /sagas": Request("/sagas"),
    "GET /holds": Request("/holds"),
    "POST /hold": Request("/hold", {"entity": "order/unknown", "reason": "a hold waits for the clock"}),
    "POST /resume": Request("/resume", {"entity": OWN}),
    "GET /refusals": Request("/refusals"),
    "GET /refusals/proof": Request("/refusals/proof"),
    "POST /verify": Request("/verify", {}),
    "POST /bulk": Request("/bulk", {"kind": "order", "event": "order.cancelled", "reason": "all of them"}),
    "GET /jobs": Request("/jobs"),
    "GET /jobs/{job}": Request("/jobs/unknown"),
    "POST /jobs/{job}/{act}": Request("/jobs/unknown/cancel", {}),
    "GET /reports": Request("/reports"),
    "GET /reports/{report}": Request("/reports/unknown"),
    "POST /kinds/{kind}/simulate": Request("/kinds/order/simulate", {"context": {"amount": 1}}),
    "GET /streams/fleet": Request("/streams/fleet"),
    "GET /streams/entity/{entity:path}": Request(f"/streams/entity/{OWN}"),
}

OUTSIDE = {
    "GET /openapi.json": Request("/openapi.json"),
    "POST /inbox/{sender}": Request("/inbox/unknown", {}),
}
"""Routes below /api that are not in the table: they ask for no right. The document is public, an envelope is signed."""

STORE = "@store"
"""Replaced by the address of the store."""

CHART = ("--chart", "order.yaml")
WHO = ("--principal", "ada:support")

COMMANDS: dict[str, tuple[str, ...] | str] = {
    "archive": (STORE, "--kind", "order", "--state", "cancelled", "--older", "1ms", "--to", "file:archived", *CHART),
    "audit checkpoint": (STORE, "--key", "audit.key"),
    "audit export": (STORE,),
    "audit key": ("audit.key",),
    "audit verify": (STORE,),
    "bundle export": (STORE, OWN, *CHART, "-o", "own.bundle"),
    "bundle import": (STORE, "own.bundle", *CHART),
    "can": (STORE, OWN, *CHART),
    "check": ("order.yaml",),
    "compact": (STORE, "--kind", "order", "--older", "400d", *CHART),
    "completion": ("bash",),
    "convert": ("order.yaml", "--to", "scxml"),
    "create": (STORE, "order/N-2", "--context", '{"amount": 1}', *CHART, *WHO),
    "db": "a group",
    "db definitions": "a group",
    "db definitions add": (STORE, "newer.yaml"),
    "db definitions list": (STORE,),
    "db definitions show": (STORE, "order"),
    "db grants": "for PostgreSQL",
    "db index": "a group",
    "db index build": (STORE, *CHART),
    "db index drop": (STORE, "order", "customer"),
    "db index status": (STORE,),
    "db messages": (STORE, "--off"),
    "db restored": (STORE, "--force"),
    "db status": (STORE,),
    "db tenants": (STORE,),
    "db upgrade": (STORE,),
    "demo": "runs until it is stopped, on a separate store",
    "diff": ("order.yaml", "order.yaml", "--store", STORE),
    "doctor": (STORE, *CHART),
    "draw": ("order.yaml", "--format", "mermaid"),
    "effects": "a group",
    "effects drop": (STORE, "--all", "--yes", *WHO),
    "effects ls": (STORE, "--dead"),
    "effects retry": (STORE, "--all", "--yes", *WHO),
    "erase": (STORE, OWN, "--reason", "asked", "--live", *CHART, "--principal", "ada"),
    "export": "a group",
    "export grafana": ("order.yaml",),
    "export prometheus-rules": ("order.yaml",),
    "fmt": ("order.yaml",),
    "hold": (STORE, OWN, "--reason", "case 118", "--principal", "ada"),
    "holds": (STORE,),
    "journal": (STORE, OWN),
    "keyring": "a group",
    "keyring init": ("keyring",),
    "keyring rotate": (STORE, "--keyring", "keyring"),
    "keyring status": (STORE, "--keyring", "keyring"),
    "keys create": ("ada", "--key-file", "keys.toml"),
    "keys list": ("--key-file", "keys.toml"),
    "keys revoke": ("ada", "--key-file", "keys.toml"),
    "keys rotate": ("ada", "--key-file", "keys.toml"),
    "lifecycle": "a group",
    "lifecycle drain": "about shared memory, which has no store and no tenants",
    "lifecycle show": "about shared memory, which has no store and no tenants",
    "ls": (STORE,),
    "migrate apply": (STORE, "--to", "newer.yaml", "--once", "--reason", "new", *WHO),
    "migrate pause": (STORE, "order", "--reason", "wait", *WHO),
    "migrate plan": (STORE, "--to", "newer.yaml"),
    "migrate resume": (STORE, "order", "--reason", "go on", *WHO),
    "migrate status": (STORE, "order"),
    "migrate undo": (STORE, "order", "--reason", "back", *WHO),
    "new": ("shop",),
    "prune": (STORE, "--kind", "order", "--older", "30d", *CHART),
    "refold": (STORE, *CHART),
    "replay": (STORE, OWN, *CHART),
    "resume": (STORE, OWN),
    "rollout abort": (STORE, "order", "--why", "no"),
    "rollout advance": (STORE, "order", "--percent", "20", "--why", "more"),
    "rollout set": (STORE, "order", "--to", "3.0.0", "--base", "2.0.0", "--percent", "10", "--why", "try"),
    "rollout status": (STORE, "order"),
    "run": "runs until it is stopped",
    "schema": (),
    "send": (STORE, OWN, "order.cancelled", *CHART, *WHO),
    "serve": "runs until it is stopped; its endpoints are the other table",
    "shadow replay": (STORE, *CHART),
    "shadow run": (STORE, *CHART, "--for", "1ms"),
    "show": (STORE, OWN, *CHART),
    "simulate": ("order.yaml", "--script", "script.txt", "--context", '{"amount": 1}'),
    "stuck": (STORE, *CHART),
    "tail": (STORE, "--since", "start"),
    "top": (STORE, "--once", *CHART),
    "types": ("order.yaml",),
    "verify": (STORE, *CHART),
}
"""The arguments of each command; a text says why it is not run here."""
