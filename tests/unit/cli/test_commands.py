"""The commands: what goes to stdout, what to stderr, and what is left alone."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from interlock.definition.format import WriteResult
from tests.support.cli import BAD, LAMP, Caller


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Gives a function that puts text on stdin."""

    def put(text: str) -> None:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8"))

    return put


# check


def test_a_good_chart_is_0_and_a_bad_one_is_1(call: Caller, folder: Path) -> None:
    assert (0, 1) == (call("check", "lamp.yaml").code, call("check", "bad.yaml").code)


def test_findings_go_to_stdout(call: Caller, folder: Path) -> None:
    ended = call("check", "bad.yaml")

    assert "bad.yaml:4:22 error target.unknown" in ended.out
    assert "" == ended.err


def test_a_missing_file_does_not_hide_findings_of_others(call: Caller, folder: Path) -> None:
    ended = call("check", "bad.yaml", "gone.yaml", "lamp.yaml")

    assert "bad.yaml:4:22 error target.unknown" in ended.out
    assert (6, 'error: file not found: "gone.yaml"\n') == (ended.code, ended.err)
    assert (6, "") == (call("check", "gone.yaml").code, call("check", "gone.yaml").out)


INCLUDING = (
    '<scxml xmlns="http://www.w3.org/2005/07/scxml" version="1.0" name="lamp">'
    '<datamodel><data id="watts" src="watts.json"/></datamodel><final id="dark"/></scxml>'
)


@pytest.mark.parametrize(
    "words", [("check",), ("convert", "--to", "yaml"), ("draw",), ("simulate", "--script", "play.txt")]
)
def test_a_definition_includes_no_other_file_unless_src_is_allowed(
    call: Caller, folder: Path, words: tuple[str, ...]
) -> None:
    (folder / "lamp.scxml").write_text(INCLUDING, encoding="utf-8")
    (folder / "watts.json").write_text("60", encoding="utf-8")
    (folder / "play.txt").write_text("context\n", encoding="utf-8")
    command, *rest = words
    refused, allowed = call(command, "lamp.scxml", *rest), call(command, "lamp.scxml", *rest, "--allow-src")

    assert (1, 0) == (refused.code, allowed.code)
    assert "scxml.src" in refused.out + refused.err
    assert "--allow-src" in refused.out + refused.err


def test_json_of_check_is_one_document(call: Caller, folder: Path) -> None:
    said = json.loads(call("check", "--json", "bad.yaml", "lamp.yaml").out)

    assert [1, 0] == [len(each["findings"]) for each in said["files"]]
    assert (1, "target.unknown", 4) == (
        said["errors"],
        said["files"][0]["findings"][0]["code"],
        said["files"][0]["findings"][0]["line"],
    )
    assert said["files"][0]["revision"] is None
    assert said["files"][1]["revision"].startswith("b1.")


def test_bytes_that_are_not_utf8_are_a_finding(call: Caller, folder: Path) -> None:
    (folder / "latin.yaml").write_bytes(b"interlock: 1\nkind: caf\xe9\n")

    ended = call("check", "latin.yaml")

    assert 1 == ended.code
    assert "UTF-8" in ended.out


def test_a_missing_file_stops_the_check(call: Caller, folder: Path) -> None:
    assert 6 == call("check", "lamp.yaml", "none.yaml").code


def test_options_stand_before_or_after_the_command(call: Caller, folder: Path) -> None:
    before = call("--color", "always", "check", "bad.yaml").out
    after = call("check", "bad.yaml", "--color", "always").out
    both = call("--color", "always", "check", "bad.yaml", "--color", "never").out

    assert before == after
    assert "\x1b[" in before
    assert "\x1b[" not in both


# convert


def test_a_converted_chart_goes_to_stdout_and_losses_to_stderr(call: Caller, folder: Path) -> None:
    ended = call("convert", "lamp.yaml", "--to", "xstate")

    assert "lamp" == json.loads(ended.out)["id"]
    assert "warning export." in ended.err


def test_strict_writes_nothing_when_something_is_lost(call: Caller, folder: Path) -> None:
    (folder / "lamp.json").write_text("old", encoding="utf-8")

    ended = call("convert", "lamp.yaml", "--to", "xstate", "--strict", "-o", "lamp.json")

    assert 1 == ended.code
    assert "old" == (folder / "lamp.json").read_text(encoding="utf-8")


def test_a_quiet_conversion_prints_only_the_text(call: Caller, folder: Path) -> None:
    assert "" == call("convert", "lamp.yaml", "--to", "xstate", "-q").err


def test_json_of_convert_holds_text_and_losses(call: Caller, folder: Path) -> None:
    said = json.loads(call("convert", "lamp.yaml", "--to", "smcat", "--json").out)

    assert "dark -> bright: press;" in said["text"]
    assert "smcat" == said["format"]
    assert [] == [each for each in said["losses"] if not each["code"].startswith("export.")]


def test_a_bad_chart_is_not_converted(call: Caller, folder: Path) -> None:
    ended = call("convert", "bad.yaml", "--to", "smcat")

    assert (1, "") == (ended.code, ended.out)
    assert ended.err.endswith("error: 1 error in bad.yaml\n")


def test_minus_as_output_is_stdout(call: Caller, folder: Path) -> None:
    assert (
        call("convert", "lamp.yaml", "--to", "yaml").out == call("convert", "lamp.yaml", "--to", "yaml", "-o", "-").out
    )


# fmt and schema


def test_fmt_writes_the_canonical_form_once(call: Caller, folder: Path) -> None:
    first, second = call("fmt", "lamp.yaml"), call("fmt", "lamp.yaml")

    assert ("formatted lamp.yaml\n", "nothing to change\n") == (first.err, second.err)
    assert (0, 0) == (call("fmt", "--check", "lamp.yaml").code, second.code)


def test_fmt_writes_none_of_the_files_when_one_is_refused(call: Caller, folder: Path) -> None:
    wrong = LAMP.replace("expect:", "expects:")
    (folder / "wrong.yaml").write_text(wrong, encoding="utf-8")

    ended = call("fmt", "lamp.yaml", "wrong.yaml")

    assert 1 == ended.code
    assert "key.unknown" in ended.out + ended.err
    assert [LAMP, wrong] == [(folder / name).read_text(encoding="utf-8") for name in ("lamp.yaml", "wrong.yaml")]
    assert "formatted lamp.yaml\n" == call("fmt", "lamp.yaml").err


def test_fmt_of_stdin_goes_to_stdout(call: Caller, folder: Path, typed: Callable[[str], None]) -> None:
    typed(LAMP)
    ended = call("fmt", "-")

    assert "kind: lamp" in ended.out
    assert 0 == ended.code


def test_fmt_of_stdin_as_json_prints_json_only(call: Caller, folder: Path, typed: Callable[[str], None]) -> None:
    typed(LAMP)

    assert {"files": [{"file": "<stdin>", "changed": True}]} == json.loads(call("fmt", "-", "--json").out)


def test_fmt_is_for_yaml(call: Caller, folder: Path) -> None:
    (folder / "lamp.smcat").write_text("a -> b;\n", encoding="utf-8")

    ended = call("fmt", "lamp.smcat")

    assert (2, True) == (ended.code, "convert lamp.smcat --to yaml" in ended.err)


def test_fmt_refuses_to_change_the_meaning(call: Caller, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgetful:
        """A writer that loses a state."""

        def write(self, _: object) -> WriteResult:
            """Something else."""
            return WriteResult(text=LAMP.replace("bright", "bold"))

    monkeypatch.setattr("interlock.cli.commands.charts.convert.format_writer", lambda _: Forgetful().write)

    ended = call("fmt", "lamp.yaml")

    assert 70 == ended.code
    assert "formatting would change the meaning of" in ended.err
    assert LAMP == (folder / "lamp.yaml").read_text(encoding="utf-8")


def test_the_schema_is_json_schema(call: Caller, folder: Path) -> None:
    printed = call("schema").out
    call("schema", "-o", "interlock.schema.json")

    assert "http://json-schema.org/draft-07/schema#" == json.loads(printed)["$schema"]
    assert printed == (folder / "interlock.schema.json").read_text(encoding="utf-8")


# draw


@pytest.mark.parametrize(
    ("name", "beginning"),
    [("x.mmd", "---\ntitle"), ("x.dot", "digraph"), ("x.gv", "digraph"), ("x.puml", "@startuml"), ("x.smcat", "//")],
)
def test_the_suffix_of_the_output_names_the_drawing(call: Caller, folder: Path, name: str, beginning: str) -> None:
    ended = call("draw", "lamp.yaml", "-o", name)

    assert (0, f"wrote {name}\n") == (ended.code, ended.err)
    assert (folder / name).read_text(encoding="utf-8").startswith(beginning)


def test_a_format_outranks_the_suffix(call: Caller, folder: Path) -> None:
    call("draw", "lamp.yaml", "--format", "dot", "-o", "x.mmd")

    assert (folder / "x.mmd").read_text(encoding="utf-8").startswith("digraph")


def test_an_unsupported_picture_format_is_refused(call: Caller, folder: Path) -> None:
    ended = call("draw", "lamp.yaml", "-o", "x.pdf")

    assert (2, False) == (ended.code, (folder / "x.pdf").exists())
    assert ended.err.startswith('error: unsupported picture format "pdf"')
    assert 0 == call("draw", "lamp.yaml", "--format", "dot", "-o", "x.pdf").code


def test_a_bad_chart_is_not_drawn(call: Caller, folder: Path) -> None:
    assert (1, "") == ((ended := call("draw", "bad.yaml")).code, ended.out)


# simulate


def test_a_script_on_stdin_is_echoed(call: Caller, folder: Path, typed: Callable[[str], None]) -> None:
    typed("press\nadvance 10m\n")

    out = call("simulate", "lamp.yaml", "-q").out

    assert "> press\n0ms press applied: dark → bright (version 2)" in out
    assert "10m after.10m.bright applied: bright → dark (version 3)" in out


def test_the_same_script_gives_the_same_output(call: Caller, folder: Path) -> None:
    (folder / "play.txt").write_text("press\nback\npress\nadvance\ntree\n", encoding="utf-8")

    assert call("simulate", "lamp.yaml", "--script", "play.txt") == call(
        "simulate", "lamp.yaml", "--script", "play.txt"
    )


def test_every_line_of_a_json_simulation_is_an_object(call: Caller, folder: Path, typed: Callable[[str], None]) -> None:
    typed("press\nhelp\ntimers\nback\n")

    said = [json.loads(line) for line in call("simulate", "lamp.yaml", "--json").out.splitlines()]

    assert ["start", "press", "help", "timers", "back"] == [each["line"] for each in said]
    assert [["dark"], ["bright"], ["bright"], ["bright"], ["dark"]] == [
        each["snapshot"]["configuration"] for each in said
    ]


def test_a_script_that_is_not_text_is_refused(call: Caller, folder: Path) -> None:
    (folder / "play.txt").write_bytes(b"press\npress\xff\n")

    ended = call("simulate", "lamp.yaml", "--script", "play.txt")

    assert (2, "error: play.txt:2: invalid UTF-8\n") == (ended.code, ended.err)


def test_a_context_may_stand_in_a_file(call: Caller, folder: Path, typed: Callable[[str], None]) -> None:
    (folder / "till.yaml").write_text(LAMP + "context: {n: {type: integer, required: true}}\n", encoding="utf-8")
    (folder / "context.json").write_text('{"n": 5}', encoding="utf-8")
    typed("context\n")

    assert "\n  n: 5\n" in call("simulate", "till.yaml", "--context", "@context.json").out
    assert 6 == call("simulate", "till.yaml", "--context", "@none.json").code


@pytest.mark.parametrize(
    "context",
    ["[1]", "{", "5", '{"n": "\udcff"}', "[" * 100_000, '{"a":' * 100_000],
    ids=["list", "open", "number", "no_text", "deep_list", "deep_object"],
)
def test_a_context_that_is_not_an_object_is_refused(call: Caller, folder: Path, context: str) -> None:
    ended = call("simulate", "lamp.yaml", "--context", context)

    assert 2 == ended.code
    assert ended.err.startswith("error: --context is not ")


class Keyboard(io.StringIO):
    """A stdin that says it is a terminal."""

    def isatty(self) -> bool:
        """Yes."""
        return True


def test_an_invalid_line_does_not_end_a_simulation(call: Caller, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", Keyboard("advance soon\n\npress\n"))

    ended = call("simulate", "lamp.yaml", "-q")

    assert 0 == ended.code
    assert "invalid duration `soon`" in ended.err
    assert "press applied: dark → bright" in ended.out


def test_quit_ends_a_simulation(call: Caller, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", Keyboard("quit\npress\n"))

    assert "press" not in call("simulate", "lamp.yaml", "-q").out


def test_the_tab_key_knows_events_and_commands(call: Caller, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import readline

    monkeypatch.setattr("sys.stdin", Keyboard("quit\n"))
    call("simulate", "lamp.yaml", "-q")
    completer = readline.get_completer()
    assert completer is not None

    assert ("press", None) == (completer("pre", 0), completer("pre", 1))
    assert "advance" == completer("adv", 0)


def test_a_chart_with_errors_is_not_simulated(call: Caller, folder: Path, typed: Callable[[str], None]) -> None:
    (folder / "play.txt").write_text("press\n", encoding="utf-8")
    typed(BAD)

    assert 1 == call("simulate", "-", "--from", "yaml", "--script", "play.txt").code
