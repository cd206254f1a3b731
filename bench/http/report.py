"""A run of the HTTP interface as tables: printed by `make bench`, and a part of the page `docs/benchmarks.md`."""

from __future__ import annotations

from bench.http.goals import verdicts
from bench.http.results import HttpRun, Line
from bench.report import Table, aligned, goals_table, machine_facts, markdown, printed

NAMES = {
    "hello": "bare Starlette, a small JSON",
    "serve": "interlock serve, a durable event on SQLite",
}
TITLE = "http: {} clients, each on a connection of its own"
KILLED = "http: the server is killed in the middle"


def rounds_table(run: HttpRun) -> Table:
    """Both servers, the medians of the rounds; and the whole minute."""
    heading = ("a second", "spread", "to bare", "p50 ms", "p99 ms", "most ms", "own p99 ms", "shared p99 ms")
    rows: Table = [("", *heading, "CPU us of the server", "of the load")]
    base = run.lines.get("hello")
    for key, line in run.lines.items():
        if line.error or not line.samples:
            rows.append((NAMES[key], f"FAILED: {line.error}", *("" for _ in range(9))))
            continue
        rates = [each.rate for each in line.samples]
        ratio = "" if base is None or not base.samples else f"{line.rate / base.rate:.2f}x"
        rows.append((NAMES[key], *_cells(line, f"{min(rates):,.0f}..{max(rates):,.0f}", ratio)))
    if run.minute is not None:
        name = f"the same, {run.minute.seconds:.0f} s without a pause"
        rows.append((name, *_cells(Line(samples=[run.minute]), "", "")))
    return rows


def _cells(line: Line, spread: str, ratio: str) -> tuple[str, ...]:
    late = [line.latency_ms(share) for share in ("0.5", "0.99", "1.0")]
    parts = (line.own_latency_ms("0.99"), line.hot_latency_ms("0.99"))
    told = tuple("" if each is None else f"{each:,.1f}" for each in (*late, *parts))
    return f"{line.rate:,.0f}", spread, ratio, *told, f"{line.cpu_us:,.0f}", f"{line.load_cpu_us:,.0f}"


def killed_table(run: HttpRun) -> Table:
    """What became of every event; without rows when it was not done."""
    killed = run.killed
    if killed is None:
        return []
    back = "" if killed.back_s is None else f"{killed.back_s:.1f}"
    numbers = (
        killed.acknowledged, killed.lost, killed.doubled, killed.unsent, killed.damaged, killed.in_doubt,
        killed.in_doubt_kept,
    )  # fmt: skip
    heading = ("acknowledged", "lost", "doubled", "never sent", "not proven", "in doubt", "of them kept")
    return [("seconds", *heading, "back after s"), (f"{killed.seconds:.0f}", *(f"{each:,}" for each in numbers), back)]


def facts(run: HttpRun) -> list[str]:
    """Where, when and with what: sentences."""
    found = machine_facts(run.date, run.commit, run.python, run.machine)
    found.append(f"Served by {', '.join(f'{name} {version}'.strip() for name, version in run.stack.items())}.")
    found.append(f"Median of {run.rounds} rounds. Files on {run.file_system}.")
    return [*found, *(f"Left out: {key} ({reason})." for key, reason in run.left_out.items())]


def _tables(run: HttpRun) -> list[tuple[str, Table]]:
    killed = killed_table(run)
    measured = [(TITLE.format(run.clients), rounds_table(run))] if run.lines or run.minute else []
    return [*measured, *([(KILLED, killed)] if killed else [])]


def text(run: HttpRun) -> str:
    """The run as it is printed."""
    parts = ["\n".join(line.replace("**", "") for line in facts(run))]
    parts += [f"{title}\n{aligned(table)}" for title, table in _tables(run)]
    return printed(parts, verdicts(run))


def section(run: HttpRun) -> list[str]:
    """The run as parts of the page, below a heading of their own."""
    parts = ["## HTTP", INTRODUCTION, "\n".join(f"- {fact}" for fact in facts(run))]
    judged = verdicts(run)
    if judged:
        parts += ["### Goals of HTTP", markdown(goals_table(judged))]
    for title, table in _tables(run):
        parts += [f"### {title}", markdown(table)]
    return [*parts, "### Method of HTTP", METHOD]


INTRODUCTION = """\
Events sent to `interlock serve` by many clients at once, each acknowledged once its entry is durable.
Beside them a bare application of the same server, which keeps nothing: the limit."""

METHOD = """\
- `interlock serve` is started as users start it, on a fresh SQLite file with a key file. The bare application takes the
  same requests and answers a small JSON. Each is one process, served by uvicorn with the same settings.
- The clients are a process of their own, on the same machine. Each keeps one connection, sends an event under a key of
  its own, and sends the next when the receipt has come. Every eighth event goes to one of four entities that all of
  them send to ("shared"); the others go to the client's own. One entity takes one step at a time, and the next when
  that is durable: a shared one is a queue of its own behind that of the server.
- With 64 clients that wait for their answers, the mean latency is 64 divided by the rate: it says how long the queue
  is, not how long one event takes alone.
- Rounds of both lines alternate. A latency is from the first byte sent to the last byte read.
- CPU time of the server is that of its process per request, of the load that of the clients' process.
- Killed in the middle: SIGKILL when half of the time is over, then the same server on the same file again. A client
  whose connection breaks sends its event again under the same key. In the end each receipt is looked up in the
  journals: an entry of that key at that version; and every journal is verified, link by link and step by step.

Samples of a run are in `bench/results/<date>-http.json`."""
