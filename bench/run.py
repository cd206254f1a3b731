"""Run the benchmarks: in process, durable, shared memory, timers, HTTP; a verdict per goal, JSON and a page.

    python bench/run.py                      everything; many minutes on a quiet machine
    python bench/run.py --quick              a smoke run: tiny sizes, nothing is judged
    python bench/run.py --only inprocess     one part, whole
    python bench/run.py --only durable       another
    python bench/run.py --only shm           the third: shared memory
    python bench/run.py --only timers        the fourth: a million pending timers
    python bench/run.py --only http          the fifth: the HTTP interface under load
    python bench/run.py --only pages         the sixth: pages of the console among ten million entities
    python bench/run.py --only W2,interlock  these workloads, these implementations (and hand-written, the base)
    python bench/run.py --only durable,fleet,interlock,raw    the same of the durable part
    python bench/run.py --only shm,lanes     some workloads or lines of shared memory
    python bench/run.py --only timers,1000000   one size of timers
    python bench/run.py --only http,kill     one of the loads: hello, serve, minute, kill
    python bench/run.py --page-only          the page anew, from the newest results

Exit code 0 when it ran, whatever it found: a busy machine must not look like a broken build. With `--judge` it is 1
when a goal is missed or, in a whole run, could not be measured. A peer that cannot be started is left out, loudly.
A run of `--only` some is printed and kept, but never becomes the page.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime as dt
import os
import platform
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from bench import measure, report, results  # noqa: E402  # the paths above come first
from bench.goals import verdicts  # noqa: E402  # as above
from bench.parts import PARTS, Asked  # noqa: E402  # as above
from bench.workloads import WORKLOADS  # noqa: E402  # as above

IN_PROCESS = "inprocess"


def main(arguments: list[str] | None = None) -> int:
    """Measure, keep, print; 0 unless `--judge` finds a goal that is not met."""
    options = parsed(arguments)
    folder = Path(options.results)
    missed = False
    if not options.page_only:
        for part, names in parts(options.only).items():
            missed |= is_missed(_measured_and_kept(options, folder, part, names))
    newest = results.newest(folder)
    if newest is not None:
        Path(options.page).write_text(report.page(results.read(newest), sections(folder)), encoding="utf-8")
    elif options.page_only:
        measure.tell("bench: no results to write a page from")
        return 2
    return 1 if options.judge and missed else 0


def sections(folder: Path) -> list[str]:
    """What the page says below the in-process part: the newest whole run of each other part, if there is one."""
    return [text for part in PARTS.values() for text in part.newest_section(folder)]


def parts(only: str) -> dict[str, list[str]]:
    """The parts that `--only` asks for, and which names of each; none for all of it.

    A part is chosen by its name; without one, names are of the in-process part.
    """
    names = [name.strip() for name in only.split(",") if name.strip()]
    if not names:
        return {part: [] for part in (IN_PROCESS, *PARTS)}
    part = next((each for each in PARTS if each in names), IN_PROCESS)
    return {part: [name for name in names if name != part]}


def _measured_and_kept(options: argparse.Namespace, folder: Path, part: str, names: list[str]) -> results.Dated:
    if part == IN_PROCESS:
        return _in_process(options, folder, names)
    asked = Asked(names=names, quick=options.quick, repeats=options.repeats, commit=commit(), computer=computer)
    return PARTS[part].measured_and_kept(asked, folder)


def _in_process(options: argparse.Namespace, folder: Path, names: list[str]) -> results.Run:
    effort = measure.QUICK if options.quick else measure.FULL
    if options.repeats is not None:
        effort = dataclasses.replace(effort, repeats=options.repeats)
    workloads, keys = chosen(",".join(names))
    run = measured(workloads, keys, effort, quick=options.quick, partial=bool(names))
    print(report.text(run))
    measure.tell(f"bench: wrote {results.write(run, folder).name}")
    return run


def is_missed(run: results.Dated) -> bool:
    """Whether a goal is not met. In a whole run, one that could not be measured is not met either."""
    part = next((each for each in PARTS.values() if isinstance(run, each.run)), None)
    judged = part.goals.verdicts(run) if part is not None else verdicts(run) if isinstance(run, results.Run) else []
    return any(each.met is False or (each.met is None and not run.partial) for each in judged)


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, nothing is judged")
    parser.add_argument("--only", default="", metavar="NAMES", help="workloads and implementations, by commas")
    parser.add_argument("--repeats", type=_positive, metavar="N", help="samples per figure; 5 unless told")
    parser.add_argument("--judge", action="store_true", help="exit 1 when a goal is not met")
    parser.add_argument("--page-only", action="store_true", help="write the page from the newest results, run nothing")
    parser.add_argument("--results", default=ROOT / "bench" / "results", metavar="FOLDER")
    parser.add_argument("--page", default=ROOT / "docs" / "benchmarks.md", metavar="FILE")
    return parser.parse_args(arguments)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


def chosen(only: str) -> tuple[list[str], list[str]]:
    """The workloads and implementations that `--only` names; a name stands for all that begin with it.

    Raises SystemExit on a name that stands for none.
    """
    names = [name.strip() for name in only.split(",") if name.strip()]
    workloads = [each for each in WORKLOADS if each in names]
    keys = [key for key in measure.COMMANDS if any(key.startswith(name) for name in names)]
    for name in names:
        if name not in WORKLOADS and not any(key.startswith(name) for key in measure.COMMANDS):
            known = ", ".join((*WORKLOADS, *measure.COMMANDS))
            raise SystemExit(f"bench: no workload or implementation {name!r}; there are {known}")
    if keys and "hand-written" not in keys:
        keys.insert(0, "hand-written")
    return workloads or list(WORKLOADS), keys or list(measure.COMMANDS)


def measured(
    workloads: list[str], keys: list[str], effort: measure.Effort, *, quick: bool, partial: bool
) -> results.Run:
    """One whole run."""
    load_before = os.getloadavg()[0]
    running, left_out = measure.started(keys)
    figures: dict[str, dict[str, results.Figure]] = {}
    try:
        for workload in workloads:
            measure.tell(f"bench: {workload} ...")
            driven = workload != "W5"
            figures[workload] = (
                measure.driven(workload, running, effort) if driven else measure.created(running, effort)
            )
    finally:
        for process in running.values():
            process.close()
    memory = None
    if "W6" in workloads and "interlock-fold" in running:
        memory = results.Memory(**measure.folded_memory(effort))
    imports: dict[str, list[float]] = {}
    if "interlock-step" in running and workloads == list(WORKLOADS):
        measure.tell("bench: imports ...")
        imports = measure.imports(effort.repeats if quick else max(effort.repeats, measure.IMPORT_REPEATS_MIN))
    return results.Run(
        date=dt.datetime.now(dt.UTC).date().isoformat(),
        quick=quick,
        partial=partial,
        repeats=effort.repeats,
        python=platform.python_version(),
        commit=commit(),
        machine=computer(load_before),
        lines={key: process.line for key, process in running.items()},
        left_out=left_out,
        figures=figures,
        imports=imports,
        memory=memory,
    )


def computer(load_before: float) -> results.Machine:
    """What the suite ran on."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return results.Machine(
        system=platform.system(),
        architecture=platform.machine(),
        processors=os.cpu_count() or 1,
        memory_gib=round(memory / 2**30, 1),
        load_before=round(load_before, 2),
        load_after=round(os.getloadavg()[0], 2),
    )


def commit() -> str:
    """The commit that was measured, with a plus when the tree had changes; `unknown` outside a repository."""
    git = ["git", "-C", str(ROOT)]
    try:
        found = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
        changed = subprocess.run(
            [*git, "status", "--porcelain", "--untracked-files=no", "src"], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return "unknown"
    if found.returncode != 0:
        return "unknown"
    return found.stdout.strip() + ("+" if changed.stdout.strip() else "")


if __name__ == "__main__":
    sys.exit(main())
