"""Values of the model as JSON by field name, where the tests of SCXML and XState do not get."""

import pytest

from interlock.definition.extension_json import Leaves
from interlock.model.document.actions import GuardName
from tests.unit.definition.scxml_reading import codes, read, state


def test_a_format_without_guards_in_its_extension_writes_none() -> None:
    """SCXML has its own attribute for guards; asking the extension for one is a bug of ours."""
    with pytest.raises(AssertionError):
        Leaves().write_guard(GuardName(name="g"))


def test_a_field_whose_enum_is_not_a_list_is_refused() -> None:
    data = """<datamodel><data id="n" interlock:field='{"enum": 5}'/></datamodel><state id="s"/>"""

    assert ["scxml.extension"] == codes(data)


def test_an_unknown_choice_of_our_namespace_counts_as_absent() -> None:
    assert ["scxml.value"] == codes('<state id="s"/>', 'interlock:unhandled="keep"')


@pytest.mark.parametrize("name", ["=x", "\\\\=x"])
def test_the_name_of_a_guard_may_start_with_an_equals_sign(name: str) -> None:
    guard = f'{{"all": [{{"name": "{name}", "with": {{"a": 1}}}}]}}'
    (transition,) = state(f"""<transition cond="a" interlock:guard='{guard}'/>""").transitions

    assert GuardName(name="=x", arguments={"a": 1}) == transition.guard.guards[0]  # type: ignore[union-attr]  # it is an `all`
    assert read('<state id="s"/>').root.states
