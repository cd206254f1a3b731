"""The goals of the HTTP interface under load, judged on one run.

Rule 1: what is kept is judged by counting: nothing that was acknowledged may be lost or doubled, whatever the machine.
Rule 2: speed is judged beside the bare application of the same run, and by the time that a client waits.
Rule 3: what was not measured is not a pass.
"""

from __future__ import annotations

from bench.goals import Verdict
from bench.http.results import HttpRun
from bench.results import median

CLIENTS = 64
MINUTE_S_MIN = 60.0
OWN_P99_MS_MAX = 50.0
"""With 64 clients that each wait for their answer, the mean is 64 divided by the rate: this asks for more than 1,280
durable events a second, and for an order among them in which nobody waits much longer than others."""

SHARED_P99_MS_MAX = 200.0
"""One entity takes one step at a time, so whoever sends to a shared one waits for the flushes of those before: a tenth
of the clients, some ten milliseconds each."""

RATIO_MIN = 0.2
"""Durable sends to answers of the bare application: what a flush, a journal and a chart may cost beside HTTP,
which httptools reads for both: the bare application needs some 60 us of processor time for an answer."""

LOAD_SHARE_MAX = 0.8
"""Of one processor, for the load: above that it would measure itself."""


def verdicts(run: HttpRun) -> list[Verdict]:
    """Every goal, judged. A quick run has none: its sizes say nothing."""
    if run.quick:
        return []
    return [*_slowest(run), _ratio(run), _load(run), *_kept(run)]


def _slowest(run: HttpRun) -> list[Verdict]:
    minute = run.minute
    judged = []
    for whose, bar in (("own", OWN_P99_MS_MAX), ("shared", SHARED_P99_MS_MAX)):
        goal, wanted = f"{CLIENTS} clients for a minute: p99 of durable sends to {whose} entities", f"<= {bar:g} ms"
        if minute is None or minute.seconds < MINUTE_S_MIN or run.clients < CLIENTS:
            judged.append(_unmeasured(goal, wanted, run.left_out.get("minute", "")))
            continue
        found = (minute.own_latencies_ms if whose == "own" else minute.hot_latencies_ms)["0.99"]
        figure = f"{found:,.1f} ms (of all {minute.latencies_ms['0.99']:,.1f} ms)"
        judged.append(Verdict(goal=goal, bar=wanted, figure=figure, met=found <= bar))
    return judged


def _ratio(run: HttpRun) -> Verdict:
    """Taken round by round: the two are asked one after the other."""
    goal, bar = "durable sends to answers of a bare application, a second", f">= {RATIO_MIN:g}x"
    hello, serve = run.lines.get("hello"), run.lines.get("serve")
    if hello is None or serve is None or hello.error or serve.error or not hello.samples or not serve.samples:
        return _unmeasured(goal, bar, "; ".join(run.left_out.values()))
    found = median(ours.rate / bare.rate for ours, bare in zip(serve.samples, hello.samples, strict=True))
    return Verdict(goal=goal, bar=bar, figure=f"{found:.2f}x", met=found >= RATIO_MIN)


def _load(run: HttpRun) -> Verdict:
    """Judged where it is asked most: before the bare application."""
    goal, bar = "the load's own share of a processor, before the bare application", f"<= {LOAD_SHARE_MAX:g}"
    hello = run.lines.get("hello")
    if hello is None or not hello.samples:
        return _unmeasured(goal, bar, run.left_out.get("hello", ""))
    found = max(each.load_share for each in hello.samples)
    return Verdict(goal=goal, bar=bar, figure=f"{found:.2f}", met=found <= LOAD_SHARE_MAX)


def _kept(run: HttpRun) -> list[Verdict]:
    goals = (
        "server killed in the middle of a minute: acknowledged events lost",
        "the same: entries doubled, never sent, or not proven",
    )
    killed = run.killed
    if killed is None or killed.seconds < MINUTE_S_MIN or not killed.acknowledged or not killed.in_doubt:
        return [_unmeasured(goal, "0", run.left_out.get("kill", "")) for goal in goals]
    wrong = killed.doubled + killed.unsent + killed.damaged
    told = f"{killed.lost} of {killed.acknowledged:,} ({killed.in_doubt} in doubt, {killed.in_doubt_kept} of them kept)"
    return [
        Verdict(goal=goals[0], bar="0", figure=told, met=killed.lost == 0),
        Verdict(goal=goals[1], bar="0", figure=str(wrong), met=wrong == 0),
    ]


def _unmeasured(goal: str, bar: str, reason: str) -> Verdict:
    return Verdict(goal=goal, bar=bar, figure=reason, met=None)
