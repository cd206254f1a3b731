"""A durable run as tables: printed by `make bench`, and a part of the page `docs/benchmarks.md`."""

from __future__ import annotations

from statistics import median

from bench.durable.goals import verdicts
from bench.durable.results import DurableRun, Figure
from bench.report import Table, aligned, goals_table, machine_facts, markdown, printed, rounds_told

TITLES = {
    "seq1": "seq1: one order, one caller, one event after the other",
    "fleet": "fleet: orders of six steps each, 64 callers",
}


def workload_table(run: DurableRun, workload: str) -> Table:
    """Every engine: rate with its spread, latencies, CPU time, and how much was done in a round."""
    counted = "events in a round" if workload == "seq1" else "orders in a round"
    rows: Table = [("", "steps/s", "spread", "p50 ms", "p99 ms", "CPU us, own + server", counted)]
    for key, figure in run.figures[workload].items():
        line = run.lines[key]
        rows.append((f"{line.name} {line.version}".strip(), *_cells(figure)))
    return rows


def _cells(figure: Figure) -> tuple[str, ...]:
    if not figure.samples:
        return f"FAILED: {figure.error}", "", "", "", "", ""
    low, high = figure.spread("rate")
    server = figure.median("server_cpu_us")
    cpu = f"{figure.median('cpu_us'):,.0f}" + (f" + {server:,.0f}" if server else "")
    return (
        f"{figure.median('rate'):,.0f}",
        f"{low:,.0f}..{high:,.0f}",
        f"{figure.median('p50_ms'):.2f}",
        f"{figure.median('p99_ms'):.2f}",
        cpu,
        f"{figure.count:,}",
    )


def recovery_table(run: DurableRun) -> Table:
    """How long it takes to load an entity with a long journal."""
    rows: Table = [("store", "entries", "from the journal, ms", "from the snapshot, ms")]
    for store, found in run.recovery.items():
        cells = (f"{median(found.journal_ms):,.0f}", f"{median(found.snapshot_ms):,.1f}")
        rows.append((store, f"{found.entries:,}", *cells))
    return rows


def scale_table(run: DurableRun) -> Table:
    """What a step costs in stores of several sizes."""
    rows: Table = [("entities", "file, MB", "the newest entities, CPU us a step", "entities anywhere, CPU us a step")]
    for each in run.scale:
        cells = (f"{median(each.recent_us):,.0f}", f"{median(each.anywhere_us):,.0f}")
        rows.append((f"{each.entities:,}", f"{each.megabytes:,.0f}", *cells))
    return rows


def facts(run: DurableRun) -> list[str]:
    """Where, when and with what: sentences."""
    found = machine_facts(run.date, run.commit, run.python, run.machine)
    found.append(f"Files on {run.file_system}. {rounds_told(run.rounds, run.figures)}.")
    found += [f"Server: {version}." for version in run.servers.values()]
    found += [f"Left out: {key} ({reason})." for key, reason in run.left_out.items()]
    return found


def _tables(run: DurableRun) -> list[tuple[str, Table]]:
    tables = [(TITLES[each], workload_table(run, each)) for each in TITLES if each in run.figures]
    if run.recovery:
        tables.append(("recovery: one entity with a long journal", recovery_table(run)))
    if run.scale:
        tables.append(("scale: SQLite, a step among many entities", scale_table(run)))
    return tables


def text(run: DurableRun) -> str:
    """The run as it is printed."""
    parts = ["\n".join(line.replace("**", "") for line in facts(run))]
    parts += [f"{title}\n{aligned(table)}" for title, table in _tables(run)]
    return printed(parts, verdicts(run))


def section(run: DurableRun) -> list[str]:
    """The run as parts of the page, below a heading of their own."""
    parts = ["## Durable steps", INTRODUCTION, "\n".join(f"- {fact}" for fact in facts(run))]
    judged = verdicts(run)
    if judged:
        parts += ["### Goals of durable steps", markdown(goals_table(judged))]
    for title, table in _tables(run):
        parts += [f"### {title}", markdown(table)]
    return [*parts, "### Method of durable steps", METHOD]


INTRODUCTION = """\
Each step is durable, by the engine's own definition of durable, before its caller is answered.
Interlock runs as users run it: `interlock.open`, the whole driver, a key for every event, effects in the entries."""

METHOD = """\
- Every engine is a process of its own; in each round every engine is asked once, in the order of the tables, and opens
  an empty store for it. Ratios are taken round by round.
- These are wall times: a flush is not CPU time. A disk that flushes more slowly favours group commit.
- "raw" lines write one small record per durable write and keep states in memory: no chart can be faster.
- A step that comes alone to a quick disk is flushed in place, on files and on SQLite; others are handed to a thread and
  back. "in the caller's thread" is the same file store without an event loop.
- "a commit per step" is Interlock's driver on the same SQLite tables, each step committed in the caller's thread.
  "a statement per step" is its PostgreSQL store with `?commit=one`, on sixteen connections.
- "raw: PostgreSQL step" is one statement that swaps a row and inserts entry, key and effects: no chart, no encoding, no
  hash chain, no lists.
- Engines that run in the caller's thread ("raw", "a commit per step", eventsourcing on SQLite) have latencies without
  a queue: the time of service, not of waiting.
- DBOS runs a workflow per event and keeps the states of orders in memory, which flatters it; its SQLite file is in the
  journal mode that it chooses. eventsourcing folds the whole journal of an order for each event: in seq1 a longer one
  each time.
- Temporal (its development server, on a SQLite file) and Restate are networked servers: not like for like, and no goal
  is judged on them. Their server's CPU time is beside the caller's, Restate's with its service.
- recovery opens the store anew for each sample. From the journal: every record read, verified by its hash, replayed
  through the chart, and compared with what the entry says.
- scale drives five events on each of 400 entities with 64 callers, in stores asked in turn. "The newest" are those
  created last, as in a shop where old orders rest; "anywhere" are drawn from all of them, so that nearly each of their
  pages is a new one.

Samples of a run are in `bench/results/<date>-durable.json`."""
