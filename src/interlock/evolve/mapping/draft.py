"""A mapping drafted from two definitions: what is safe is filled in, what a person must decide is a comment.

Rule 1: a state that was removed, and one that was added with the same content, are filled in as one. Nothing else is
        guessed.
Rule 2: every question comes with the answers that are possible. A draft with questions left is not accepted.
"""

from __future__ import annotations

from collections.abc import Iterator

from interlock.evolve.carry import Carrier
from interlock.evolve.diff import state_content
from interlock.evolve.mapping.check import open_questions
from interlock.evolve.mapping.document import VERSION, Mapping, Place
from interlock.evolve.mapping.placement import Placer, Question, quoted
from interlock.model.document.document import State

_SECTIONS = ("states", "timers", "invokes", "entered", "context")


def draft_mapping(carrier: Carrier, revision: str) -> tuple[str, tuple[Question, ...]]:
    """Return the text of a mapping from a revision, and its questions. Without questions it may be used as it is."""
    twins = _twins(carrier)
    mapping = Mapping(kind=carrier.new.kind, states={old: (Place((new,)),) for old, new in twins.items()})
    questions = open_questions(carrier, mapping, Placer(carrier, mapping))
    lines = [
        f"# Maps `{carrier.new.kind}` from {revision} to {carrier.written}.",
        "# Answer each question: remove its `#` and choose one of the answers.",
        f"interlock-mapping: {VERSION}",
        f"kind: {quoted(carrier.new.kind)}",
        f"from: {quoted(revision)}",
        *(f"# {each.text}" for each in questions if not each.path),
    ]
    for section in _SECTIONS:
        filled = [f"  {quoted(old)}: {quoted(new)}  # same content" for old, new in twins.items()]
        inside = [*(filled if section == "states" else ()), *_section(section, questions)]
        if inside:
            lines += [f"{section}:", *inside]
    return "\n".join(lines) + "\n", tuple(questions)


def _section(section: str, questions: list[Question]) -> Iterator[str]:
    """The questions of a section: those about one name together, because a key is written once."""
    mine = [each for each in questions if each.path[:1] == (section,)]
    for name in dict.fromkeys(each.path[1] for each in mine):
        answers: dict[str, object] = {}
        for each in (each for each in mine if each.path[1] == name):
            others = f" (answers: {', '.join(each.options)})" if len(each.options) > 1 else ""
            yield f"  # {each.text}{others}"
            inner: dict[str, object] = answers
            for key in each.path[1:-1]:
                inner = inner.setdefault(key, {})  # type: ignore[assignment]  # only the last key has a text
            inner[each.path[-1]] = each.options[0]
        yield f"  # {quoted(name)}: {_flow(answers[name])}"


def _flow(value: object) -> str:
    if not isinstance(value, dict):
        return str(value)
    return f"{{{', '.join(f'{quoted(name)}: {_flow(each)}' for name, each in value.items())}}}"


def _twins(carrier: Carrier) -> dict[str, str]:
    """Old atomic states that no longer exist, each with the only new one that has the same content."""
    gone = [name for name, state in carrier.old_states.items() if state.type == "atomic"]
    gone = [name for name in gone if carrier.renamed(name) not in carrier.new_states]
    come = [name for name, state in carrier.new_states.items() if state.type == "atomic"]
    come = [name for name in come if name not in carrier.old_states and name in carrier.new_written]
    found = {}
    for name in gone:
        content = _content(carrier, name)
        same = [each for each in come if state_content(carrier.new_written[each]) == content]
        twins = [each for each in gone if each != name and _content(carrier, each) == _content(carrier, name)]
        if len(same) == 1 and not twins:
            found[name] = same[0]
    return found


def _content(carrier: Carrier, name: str) -> State | None:
    """What an old state does; None for one that the compiler made."""
    written = carrier.old_written.get(carrier.renamed(name))
    return None if written is None else state_content(written)
