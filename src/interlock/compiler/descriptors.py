"""Event descriptors: what each dialect means by `foo`, `foo.*` and `*`, and in which order a state tries them."""

from __future__ import annotations

from interlock.model.chart import Descriptor, Transition
from interlock.model.document.document import DialectName


def descriptor(text: str, dialect: DialectName) -> Descriptor:
    """The descriptor that an author means: a prefix of whole tokens in SCXML and YAML, the exact name in XState."""
    if text == "*":
        return Descriptor(text, ())
    if dialect == "xstate":
        if text.endswith(".*"):
            return Descriptor(text, tuple(text[:-2].split(".")))
        return Descriptor(text, tuple(text.split(".")), exact=True)
    return Descriptor(text, tuple(text.removesuffix("*").removesuffix(".").split(".")))


def exact(name: str) -> Descriptor:
    """The descriptor of exactly one name: what is made from `after`, `onDone` and `onError`."""
    return Descriptor(name, tuple(name.split(".")), exact=True)


def selection_order(transitions: list[Transition], dialect: DialectName) -> list[Transition]:
    """The transitions of one state as tried: as written; in XState exact names first, then longer wildcards."""
    if dialect != "xstate":
        return transitions
    return sorted(transitions, key=_xstate_rank)


def _xstate_rank(transition: Transition) -> tuple[bool, int]:
    if not transition.descriptors or transition.descriptors[0].exact:
        return (False, 0)
    return (True, -len(transition.descriptors[0].text))
