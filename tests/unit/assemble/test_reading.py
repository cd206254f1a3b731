"""Reading definitions: files and texts, formats by name and suffix, every way in which that fails."""

import os
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from interlock.assemble import charts
from interlock.assemble.charts import (
    FORMAT_GROUP,
    FORMATS,
    compile_reading,
    format_for_suffix,
    format_for_text,
    format_writer,
    get_format,
    load,
    loads,
    read_file,
    read_text,
)
from interlock.definition.format import Format, ReadResult, WriteResult
from interlock.errors import DefinitionError, NotFoundError, UsageError
from interlock.model.document.document import Document
from interlock.model.limits import DEFINITION_BYTES_MAX, TARGETS_MAX

YAML = "interlock: 1\nkind: door\nstates: {open: {on: {push: shut}}, shut: {on: {pull: open}}}\n"
TEXTS = {
    "yaml": YAML,
    "scxml": '<scxml xmlns="http://www.w3.org/2005/07/scxml" version="1.0" name="door"><state id="open"/></scxml>',
    "json": '{"interlock": 1, "kind": "door", "states": {"open": {"on": {"push": "shut"}}, "shut": {}}}',
    "xstate": '{"id": "door", "initial": "open", "states": {"open": {}}}',
    "xstate4": '{"id": "door", "initial": "open", "states": {"open": {"on": {"push": {"cond": "c", "actions": "x"}}}}}',
    "smcat": "initial, open; initial => open;",
}
SUFFIXES = {
    "door.yaml": "yaml",
    "door.yml": "yaml",
    "door.interlock.yaml": "yaml",
    "DOOR.YAML": "yaml",
    "door.scxml": "scxml",
    "door.xml": "scxml",
    "door.json": "json",
    "door.smcat": "smcat",
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_loads(name: str) -> None:
    assert name == get_format(name).name
    assert loads(TEXTS[name], format=name).chart.states


@pytest.mark.parametrize(
    ("name", "hint"), [("yamll", 'did you mean "yaml"?'), ("q", f"the formats are {', '.join(FORMATS)}")]
)
def test_an_unknown_format_is_rejected_with_the_nearest_or_all_formats(name: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        loads(YAML, format=name)

    assert ("format.unknown", hint) == (caught.value.code, caught.value.hint)


def test_a_format_that_is_only_read_has_no_writer() -> None:
    """Definitions of XState 4 are converted to something newer."""
    with pytest.raises(UsageError) as caught:
        format_writer("xstate4")

    assert "format.read_only" == caught.value.code


def test_another_package_adds_a_format_by_an_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(get_format("yaml"), name="other", suffixes=(".other",))
    entry = EntryPoint("other", "tests.unit.assemble.test_reading:OTHER", FORMAT_GROUP)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [entry] if group == FORMAT_GROUP else [])
    monkeypatch.setitem(globals(), "OTHER", other)

    assert other is get_format("other")
    assert "other" == format_for_suffix("door.other")
    assert loads(YAML, format="other").chart.states


@pytest.mark.parametrize(("file", "name"), SUFFIXES.items())
def test_the_suffix_of_a_file_decides_its_format(tmp_path: Path, file: str, name: str) -> None:
    (tmp_path / file).write_text(TEXTS[name], encoding="utf-8")

    assert name == format_for_suffix(file)
    assert load(tmp_path / file).chart.states
    assert load(str(tmp_path / file)).chart.states


@pytest.mark.parametrize("name", ["json", "xstate"])
def test_the_text_of_a_json_file_decides_its_format(tmp_path: Path, name: str) -> None:
    (tmp_path / "door.json").write_text(TEXTS[name], encoding="utf-8-sig")

    assert name == format_for_text("door.json", TEXTS[name])
    assert name == format_for_text("door.json", TEXTS[name].encode())
    assert {"json": "interlock", "xstate": "xstate"}[name] == load(tmp_path / "door.json").document.dialect


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('{"name": "door", "id": 7}', "json.format"),
        ("{}", "json.format"),
        ('{"kind": "door", "states": {"open": {}}}', "json.format"),
        ("[1]", "value.type"),
        ('"door"', "value.type"),
        ('{"interlock": 2, "kind": "door", "states": {"open": {}}}', "value.type"),
        ('{"interlock": 1', "json.syntax"),
        ('{"states": function () {}}', "json.syntax"),
        ("[" * 5_000, "json.depth"),
        (b"\xff{}", "json.encoding"),
        ("", "json.syntax"),
    ],
)
def test_a_json_file_that_is_neither_format_is_refused(tmp_path: Path, text: str | bytes, code: str) -> None:
    (tmp_path / "door.json").write_bytes(text if isinstance(text, bytes) else text.encode())

    with pytest.raises(DefinitionError) as caught:
        load(tmp_path / "door.json")

    assert [code] == [each.code for each in caught.value.diagnostics]


def test_each_json_format_refuses_the_other_by_name() -> None:
    for name, other in (("json", "xstate"), ("xstate", "json"), ("xstate4", "json")):
        with pytest.raises(DefinitionError) as caught:
            loads(TEXTS[other], format=name)

        assert ["json.format"] == [each.code for each in caught.value.diagnostics]
        assert f"format {other}" in (caught.value.diagnostics[0].hint or "")


@pytest.mark.parametrize("file", ["door", "door.txt", ".yaml"])
def test_a_file_with_an_unknown_suffix_needs_a_format(tmp_path: Path, file: str) -> None:
    (tmp_path / file).write_text(YAML, encoding="utf-8")

    assert None is format_for_suffix(file)
    with pytest.raises(UsageError) as caught:
        read_file(tmp_path / file)

    assert "format.unknown" == caught.value.code
    assert ".yaml, .yml, .scxml, .xml, .json, .smcat" in (caught.value.hint or "")
    assert "door" == load(tmp_path / file, format="yaml").chart.kind


def test_a_text_may_be_bytes() -> None:
    assert loads(YAML).chart == loads(YAML.encode()).chart


def test_a_document_loads_as_it_is() -> None:
    document = loads(YAML).document

    assert loads(YAML).chart == load(document).chart


def refused(path: Path) -> NotFoundError:
    """The error of a file that cannot be read."""
    with pytest.raises(NotFoundError) as caught:
        load(path)
    return caught.value


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    error = refused(tmp_path / "none.yaml")

    assert "file.not_found" == error.code
    assert str(tmp_path / "none.yaml") in error.message


def test_a_directory_is_not_a_definition(tmp_path: Path) -> None:
    (tmp_path / "folder.yaml").mkdir()

    assert "file.directory" == refused(tmp_path / "folder.yaml").code
    assert "file.directory" == refused(tmp_path).code


def test_a_file_below_a_file_is_unreadable(tmp_path: Path) -> None:
    (tmp_path / "door.yaml").write_text(YAML, encoding="utf-8")
    error = refused(tmp_path / "door.yaml" / "x.yaml")

    assert ("file.unreadable", True) == (error.code, error.message.endswith("cannot be read: Not a directory"))


def test_a_file_without_permission_is_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)

    assert "file.permission" == refused(tmp_path / "door.yaml").code


def test_a_file_that_is_too_large_is_not_read_whole(tmp_path: Path) -> None:
    (tmp_path / "big.yaml").write_bytes(b"#" * (DEFINITION_BYTES_MAX + 10))

    with pytest.raises(DefinitionError) as caught:
        load(tmp_path / "big.yaml")

    assert [f"the text is larger than {DEFINITION_BYTES_MAX:,} bytes"] == [
        each.message for each in caught.value.diagnostics
    ]


def test_all_problems_are_reported_together_sorted_by_position(tmp_path: Path) -> None:
    """Those of the reader and those of the compiler, each with file, line and column."""
    path = tmp_path / "bad.yaml"
    path.write_text(
        "interlock: 1\nkind: door\nstates:\n  a: {on: {x: none, y: {guard: '= 1 +', target: b}}}\n  b: {colour: red}\n",
        encoding="utf-8",
    )
    with pytest.raises(DefinitionError) as caught:
        load(path)

    errors = [each for each in caught.value.diagnostics if each.severity == "error"]
    assert 3 <= len(errors)
    assert {str(path)} == {each.location.file for each in errors}
    assert [4, 4, 5] == sorted(each.location.line for each in errors)
    assert list(caught.value.diagnostics) == sorted(
        caught.value.diagnostics, key=lambda each: (each.location, each.code)
    )


def test_a_text_is_named_in_its_diagnostics() -> None:
    """`source` is what stands before the line."""
    with pytest.raises(DefinitionError) as caught:
        loads("kind: x", source="door.yaml")

    assert {"door.yaml"} == {each.location.file for each in caught.value.diagnostics}


def test_an_unreadable_text_has_diagnostics() -> None:
    with pytest.raises(DefinitionError) as caught:
        loads("[")

    assert caught.value.diagnostics


def test_nothing_read_and_nothing_said_is_still_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = Format(name="silent", suffixes=(), read=lambda *_, **__: ReadResult(document=None), write=_unused)
    monkeypatch.setattr(charts, "get_format", lambda name: silent)
    with pytest.raises(DefinitionError) as caught:
        loads("", format="silent")

    assert ["definition"] == [each.code for each in caught.value.diagnostics]


def _unused(document: Document) -> WriteResult:
    raise NotImplementedError


def test_an_error_of_the_reader_makes_no_chart_though_the_rest_compiles() -> None:
    reading = read_text(YAML + "colour: red\n", format="yaml", source="x")
    compilation = compile_reading(reading)

    assert None is compilation.chart
    assert {"error"} <= {each.severity for each in compilation.diagnostics}


def test_warnings_do_not_stop_a_chart() -> None:
    chart = loads(YAML)

    assert chart.diagnostics
    assert {"error"}.isdisjoint(each.severity for each in chart.diagnostics)


# What a definition refers to


def scxml(reference: str) -> str:
    """A definition whose field takes its value from another file."""
    return (
        '<scxml xmlns="http://www.w3.org/2005/07/scxml" version="1.0" name="door"><datamodel>'
        f'<data id="x" src="{reference}"/></datamodel><state id="open"/></scxml>'
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a definition and files it may read, inside one with files it may not read."""
    inside = tmp_path / "inside"
    (inside / "sub").mkdir(parents=True)
    (inside / "near.txt").write_text("5", encoding="utf-8")
    (inside / "sub" / "deep.txt").write_text("[1, 2]", encoding="utf-8")
    (inside / "bad.txt").write_bytes(b"\xff\xfe")
    (tmp_path / "secret.txt").write_text("7", encoding="utf-8")
    (tmp_path / "inside_too").mkdir()
    (tmp_path / "inside_too" / "secret.txt").write_text("7", encoding="utf-8")
    (inside / "link.txt").symlink_to(tmp_path / "secret.txt")
    (inside / "up").symlink_to(tmp_path)
    (inside / "alias.txt").symlink_to(inside / "near.txt")
    (inside / ".env").write_text("7", encoding="utf-8")
    (inside / "huge.txt").write_bytes(b" " * (DEFINITION_BYTES_MAX + 1))
    os.mkfifo(inside / "pipe")
    return inside


def refusals(path: Path, *, allow_src: bool = True) -> list[str]:
    """The errors of a definition that includes what it may not."""
    with pytest.raises(DefinitionError) as caught:
        load(path, allow_src=allow_src)
    errors = [each for each in caught.value.diagnostics if each.severity == "error"]

    assert {"scxml.src"} == {each.code for each in errors}
    return [f"{each.message}; {each.hint}" for each in errors]


@pytest.mark.parametrize("reference", ["near.txt", ".env", "none.txt", "pipe", "../secret.txt"])
def test_a_definition_opens_no_other_file_unless_that_is_allowed(folder: Path, reference: str) -> None:
    """The finding says how to allow it, and is the same whether the file exists or not."""
    (folder / "door.scxml").write_text(scxml(reference), encoding="utf-8")
    opened: list[str] = []

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open" and listening:
            opened.append(str(arguments[0]))

    listening = True
    sys.addaudithook(hook)
    try:
        (problem,) = refusals(folder / "door.scxml", allow_src=False)
    finally:
        listening = False  # a hook stays for the life of the process

    assert "load(..., allow_src=True) or --allow-src" in problem
    assert [] == [each for each in opened if each.endswith(reference.rpartition("/")[2])]


def test_an_invoke_of_a_file_becomes_the_name_of_a_chart_unless_src_is_allowed(folder: Path) -> None:
    text = scxml("near.txt").replace('<state id="open"/>', '<state id="open"><invoke src="child.scxml"/></state>')
    (folder / "door.scxml").write_text(text.replace('<data id="x" src="near.txt"/>', ""), encoding="utf-8")
    (folder / "child.scxml").write_text(TEXTS["scxml"], encoding="utf-8")
    closed, allowed = load(folder / "door.scxml"), load(folder / "door.scxml", allow_src=True)

    assert [("scxml.src", True)] == [
        (each.code, "allow_src" in (each.hint or "")) for each in closed.diagnostics if each.severity == "warning"
    ]
    assert ("child.scxml", ()) == (closed.chart.states[1].invokes[0].src, closed.chart.inline)
    assert ["door"] == [chart.kind for _, chart in allowed.chart.inline]


@pytest.mark.parametrize(
    ("reference", "value"),
    [("near.txt", 5), ("file:near.txt", 5), ("./near.txt", 5), ("sub/deep.txt", [1, 2]), ("sub/../near.txt", 5)],
)
def test_an_allowed_definition_reads_files_of_its_folder_and_below(folder: Path, reference: str, value: object) -> None:
    (folder / "door.scxml").write_text(scxml(reference), encoding="utf-8")

    assert {"x": value} == load(folder / "door.scxml", allow_src=True).start(entity="door/1").snapshot.context


@pytest.mark.parametrize(
    "reference",
    [
        "../secret.txt",
        "sub/../../secret.txt",
        "../inside_too/secret.txt",
        "ABSOLUTE",
        "file:ABSOLUTE",
        "file://ABSOLUTE",
    ],
)
def test_an_allowed_definition_reads_nothing_outside_its_folder(folder: Path, reference: str) -> None:
    target = reference.replace("ABSOLUTE", str(folder.parent / "secret.txt"))
    (folder / "door.scxml").write_text(scxml(target), encoding="utf-8")
    (problem,) = refusals(folder / "door.scxml")

    assert f"{target} is outside the definition's folder" in problem


@pytest.mark.parametrize(
    ("reference", "problem"),
    [
        ("none.txt", "none.txt does not exist"),
        ("sub", "sub is not a regular file"),
        ("near.txt/x", "near.txt/x cannot be read: Not a directory"),
        ("bad.txt", "invalid start byte"),
        ("link.txt", "link.txt is a symbolic link"),
        ("alias.txt", "alias.txt is a symbolic link"),
        ("up/secret.txt", "up/secret.txt cannot be read: Not a directory"),
        (".env", ".env is a hidden file"),
        ("sub/.hidden/x", "sub/.hidden/x is a hidden file"),
        ("pipe", "pipe is not a regular file"),
        ("huge.txt", f"huge.txt has more than {DEFINITION_BYTES_MAX:,} bytes"),
    ],
)
def test_only_regular_files_of_a_definitions_size_are_read(folder: Path, reference: str, problem: str) -> None:
    """A FIFO without writer is rejected immediately, and no symbolic link is followed."""
    (folder / "door.scxml").write_text(scxml(reference), encoding="utf-8")

    assert problem in refusals(folder / "door.scxml")[0]


def test_a_text_has_no_folder() -> None:
    """`loads` reads nothing from anywhere."""
    with pytest.raises(DefinitionError) as caught:
        loads(scxml("near.txt"), format="scxml")

    assert "scxml.src" in str(caught.value)


def test_findings_at_one_place_keep_their_order() -> None:
    """Each once, in the order found: the same in every process, whatever its hash seed."""
    names = [f"t{number}" for number in range(9)]
    text = f"interlock: 1\nkind: door\nstates: {{open: {{on: {{push: [{{target: [{', '.join(names)}]}}]}}}}}}"
    found = [
        each
        for each in compile_reading(read_text(text, format="yaml", source="t")).diagnostics
        if each.severity == "error"
    ]

    assert [f'unknown state "{name}"' for name in names] == [each.message for each in found]


def test_a_definition_that_no_store_can_keep_is_an_error_at_load() -> None:
    """With aliases, a text within its limit can be a definition beyond it."""
    text = f'interlock: 1\nkind: big\nstates:\n  s0: {{description: &long "{"x" * 60_000}"}}\n'
    text += "".join(f"  s{number}: {{description: *long}}\n" for number in range(1, 80))
    assert len(text) < DEFINITION_BYTES_MAX
    with pytest.raises(DefinitionError) as caught:
        loads(text)

    assert ["json.size"] == [each.code for each in caught.value.diagnostics if each.severity == "error"]


SCXML = '<scxml xmlns="http://www.w3.org/2005/07/scxml" version="1.0" name="door">'


def test_a_value_that_a_stored_definition_cannot_have_is_an_error_at_its_state() -> None:
    """A `cancel` that names nothing is SCXML; no process could read such a definition back from a store."""
    text = f'{SCXML}\n<state id="open">\n<state id="wide">\n<onexit><cancel/></onexit></state></state></scxml>'
    with pytest.raises(DefinitionError) as caught:
        loads(text, format="scxml", source="door.scxml")

    (found,) = (each for each in caught.value.diagnostics if each.severity == "error")
    assert ("value.type", "door.scxml", 3) == (found.code, found.location.file, found.location.line)


def test_a_transition_has_at_most_so_many_targets() -> None:
    text = f'{SCXML}<state id="a"><transition event="e" target="{"a " * (TARGETS_MAX + 1)}"/></state></scxml>'
    with pytest.raises(DefinitionError) as caught:
        loads(text, format="scxml")

    assert "transition.targets" in {each.code for each in caught.value.diagnostics if each.severity == "error"}


def test_a_similar_key_is_searched_for_the_first_mistakes_only() -> None:
    text = YAML + "".join(f"stat{number}: 1\n" for number in range(100))
    found = read_text(text, format="yaml", source="t").diagnostics

    assert found[0].hint is not None
    assert found[-1].hint is None
