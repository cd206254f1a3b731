"""The command as its users start it: a process with pipes, signals and an environment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.cli import LAMP
from tests.support.eventually import PATIENCE_SECONDS
from tests.support.missing import run_without

COMMAND = [sys.executable, "-m", "interlock"]


def environment(**changes: str) -> Mapping[str, str]:
    """This process's environment, without wishes about colour."""
    kept = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR"}}
    return kept | changes


def test_an_interrupted_simulation_has_exit_code_130(folder: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "simulate", "lamp.yaml", "--script", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(PYTHONUNBUFFERED="1"),
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("press\n")
        process.stdin.flush()
        while "bright" not in process.stdout.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE_SECONDS)

    assert (130, "interrupted") == (process.returncode, err.strip())


def test_a_reader_that_has_enough_is_no_error(folder: Path) -> None:
    states = "".join(f"  s{number}: {{on: {{go: s{number + 1}}}}}\n" for number in range(1500))
    (folder / "long.yaml").write_text(
        f"interlock: 1\nkind: long\nstates:\n{states}  s1500: {{type: final}}\n", encoding="utf-8"
    )
    with subprocess.Popen(
        [*COMMAND, "-q", "draw", "long.yaml"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert b"---\n" == process.stdout.readline()
        process.stdout.close()
        err = process.stderr.read()
        process.wait(timeout=PATIENCE_SECONDS)

    assert (0, b"") == (process.returncode, err)


def test_a_reader_that_closes_the_pipe_at_once_is_not_an_error(folder: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        run = subprocess.run(
            [*COMMAND, "draw", "lamp.yaml"], stdout=writer, stderr=subprocess.PIPE, env=environment(), check=False
        )
    finally:
        os.close(writer)

    assert (0, b"") == (run.returncode, run.stderr)


def test_a_full_disk_behind_stdout_is_an_error(folder: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        run = subprocess.run(
            [*COMMAND, "draw", "lamp.yaml"], stdout=full, stderr=subprocess.PIPE, env=environment(), check=False
        )

    assert 7 == run.returncode
    assert run.stderr.startswith(b"error: ")
    assert b"Traceback" not in run.stderr


def test_a_definition_from_a_pipe_is_read_once(folder: Path) -> None:
    reader, writer = os.pipe()
    os.write(writer, LAMP.encode())
    os.close(writer)
    try:
        run = subprocess.run(
            [*COMMAND, "check", "--from", "yaml", f"/dev/fd/{reader}"],
            pass_fds=(reader,),
            capture_output=True,
            env=environment(),
            check=False,
        )
    finally:
        os.close(reader)

    assert (0, b"") == (run.returncode, run.stderr)


def test_the_bare_command_shows_its_help(folder: Path) -> None:
    run = subprocess.run(COMMAND, capture_output=True, text=True, env=environment(), check=False)

    assert (2, "") == (run.returncode, run.stdout)
    assert "Charts:\n" in run.stderr


def test_no_color_and_force_color_are_respected(folder: Path) -> None:
    def painted(**changes: str) -> bool:
        command = [*COMMAND, "check", "bad.yaml"]
        run = subprocess.run(command, capture_output=True, env=environment(**changes), check=False)
        return b"\x1b[" in run.stdout

    assert [False, True, False] == [painted(), painted(FORCE_COLOR="1"), painted(FORCE_COLOR="1", NO_COLOR="1")]


def test_output_is_utf8_in_any_locale(folder: Path) -> None:
    (folder / "cafe.yaml").write_text(LAMP + "description: café →\n", encoding="utf-8")
    run = subprocess.run(
        [*COMMAND, "convert", "cafe.yaml", "--to", "yaml"],
        capture_output=True,
        env=environment(PYTHONIOENCODING="ascii", PYTHONUTF8="0"),
        check=False,
    )

    assert 0 == run.returncode
    assert "café →" in run.stdout.decode("utf-8")


def test_version_and_help_import_neither_rich_nor_a_reader() -> None:
    code = """
import sys
from interlock.cli.main import main
main(["--version"]); main(["--help"])
loaded = {"rich", "yaml", "interlock.assemble.charts", "interlock.kernel.step"} & set(sys.modules)
print(sorted(loaded), file=sys.stderr)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=True)

    assert "[]" == run.stderr.strip()


def test_completion_prints_a_shell_script(folder: Path) -> None:
    asked = environment(_INTERLOCK_COMPLETE="bash_complete", COMP_WORDS="interlock ch", COMP_CWORD="1")
    run = subprocess.run(COMMAND, capture_output=True, text=True, env=asked, check=False)

    assert "plain,check" in run.stdout


_INTERRUPTED = """
class Interrupting:
    def find_spec(self, name, path, target=None):
        if name == "interlock.cli.main":
            raise KeyboardInterrupt

from interlock.cli.entry_point import start
sys.meta_path.insert(0, Interrupting())
sys.exit(start())
"""


def test_an_interrupt_while_the_command_is_imported_is_a_quiet_end() -> None:
    ended = run_without(code=_INTERRUPTED)

    assert (130, "", "interrupted\n") == (ended.returncode, ended.stdout, ended.stderr)


INTERRUPTED = """
import asyncio
from interlock.effects.user_functions import call_in_loop

async def handler(given):
    raise KeyboardInterrupt

async def main():
    asyncio.ensure_future(call_in_loop(handler, None))
    await asyncio.sleep(60)

try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted")
"""


def test_a_keyboard_interrupt_ends_the_loop() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True
    )

    assert "interrupted\n" == done.stdout
