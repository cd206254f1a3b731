"""Fields of the context, what is assigned to them, what expressions read."""

import pytest

from interlock.evolve.identity import behaviour_name
from tests.unit.compiler.diagnostics import chart_of, errors, read, reported


def test_a_field_is_declared_once() -> None:
    """The context is one for the whole chart, so a second declaration would overwrite the first."""
    bad = """\
context: {n: {type: integer, default: 0}}
states:
  a: {context: {n: {type: string, default: x}}}
"""
    good = """\
context: {n: {type: integer, default: 0}}
states:
  a: {context: {m: {type: string, default: x}}}
"""

    assert ["error 5:17"] == reported(bad, "context.duplicate")
    assert [] == reported(good, "context.duplicate")


def test_a_field_has_a_first_value() -> None:
    """Otherwise its type would be broken from the start."""
    bad = """\
context: {n: {type: integer}}
states: {a: {}}
"""
    good = """\
context: {n: {type: integer, nullable: true}}
states: {a: {}}
"""

    assert ["error 3:11"] == reported(bad, "context.no_value")
    assert [] == reported(good, "context.no_value")


def test_only_the_root_requires_fields() -> None:
    bad = "states: {a: {context: {n: {type: integer, required: true}}}}"
    good = """\
context: {n: {type: integer, required: true}}
states: {a: {}}
"""

    assert ["error 3:24"] == reported(bad, "context.required")
    assert [] == reported(good, "context.required")


def test_a_default_fits_its_own_field() -> None:
    """A default that its type refuses would fail in every entity."""
    bad = """\
context: {n: {type: integer, default: one}}
states: {a: {}}
"""
    good = """\
context: {n: {type: integer, default: 1}}
states: {a: {}}
"""

    assert ["error 3:11"] == reported(bad, "context.default")
    assert [] == reported(good, "context.default")


def test_a_computed_default_is_left_to_the_step() -> None:
    bad = """\
context: {n: {type: integer, min: 1, default: 0}}
states: {a: {}}
"""
    good = """\
context: {n: {type: integer, min: 1, default: '= 1 - 1'}}
states: {a: {}}
"""

    assert ["error 3:11"] == reported(bad, "context.default")
    assert [] == reported(good, "context.default")


def test_a_payload_default_fits_its_own_field() -> None:
    bad = """\
events: {e: {payload: {n: {type: integer, default: one}}}}
states: {a: {on: {e: {}}}}
"""
    good = """\
events: {e: {payload: {n: {type: integer, default: 1}}}}
states: {a: {on: {e: {}}}}
"""

    assert ["error 3:24"] == reported(bad, "payload.default")
    assert [] == reported(good, "payload.default")


def test_an_enum_holds_values_of_its_type() -> None:
    bad = """\
context: {n: {type: string, enum: [s, 3], default: s}}
states: {a: {}}
"""
    good = """\
context: {n: {type: string, enum: [s, '3'], default: s}}
states: {a: {}}
"""

    assert ["error 3:11"] == reported(bad, "field.enum")
    assert [] == reported(good, "field.enum")


def test_bounds_leave_room_for_a_value() -> None:
    bad = """\
context: {n: {type: integer, min: 3, max: 1, nullable: true}}
states: {a: {}}
"""
    good = """\
context: {n: {type: integer, min: 1, max: 3, nullable: true}}
states: {a: {}}
"""

    assert ["error 3:11"] == reported(bad, "field.bounds")
    assert [] == reported(good, "field.bounds")


def test_an_assign_names_a_field() -> None:
    bad = """\
context: {count: {type: integer, default: 0}}
states: {a: {entry: [{assign: {counts: 1}}]}}
"""
    good = """\
context: {count: {type: integer, default: 0}}
states: {a: {entry: [{assign: {count: 1}}]}}
"""

    assert ["error 4:22"] == reported(bad, "assign.unknown_field")
    assert [] == reported(good, "assign.unknown_field")


def test_an_assign_without_any_near_field_says_where_to_declare_it() -> None:
    bad = "states: {a: {entry: [{assign: {x: 1}}]}}"
    good = "states: {a: {entry: [{foreach: {in: [1], item: x, do: [{assign: {x: 2}}]}}]}}"

    assert ["error 3:22"] == reported(bad, "assign.unknown_field")
    assert [] == reported(good, "assign.unknown_field")


def test_a_send_keeps_its_id_in_a_field() -> None:
    """`idLocation` is written like an assign."""
    bad = "states: {a: {entry: [{send: {event: e, idLocation: sent, delay: 1s}}]}}"
    good = """\
context: {sent: {type: string, nullable: true}}
states: {a: {entry: [{send: {event: e, idLocation: sent, delay: 1s}}]}}
"""

    assert ["error 3:22"] == reported(bad, "assign.unknown_field")
    assert [] == reported(good, "assign.unknown_field")


def test_an_invoke_keeps_its_id_in_a_field() -> None:
    """`idLocation` of an invoke is written like an assign."""
    bad = "states: {a: {invoke: {src: s, idLocation: asked}}}"
    good = """\
context: {asked: {type: string, nullable: true}}
states: {a: {invoke: {src: s, idLocation: asked}}}
"""

    assert ["error 3:22"] == reported(bad, "assign.unknown_field")
    assert [] == reported(good, "assign.unknown_field")


def test_a_literal_fits_its_field() -> None:
    """A written value that its field refuses would fail in every step."""
    bad = """\
context: {n: {type: integer, default: 0}}
states: {a: {entry: [{assign: {n: one}}]}}
"""
    good = """\
context: {n: {type: integer, default: 0}}
states: {a: {entry: [{assign: {n: 1}}]}}
"""

    assert ["error 4:22"] == reported(bad, "assign.refused")
    assert [] == reported(good, "assign.refused")


def test_a_literal_fits_the_field_its_path_leads_to() -> None:
    bad = """\
context: {o: {type: object, default: {}, fields: {xs: {type: array, items: integer}}}}
states: {a: {entry: [{assign: {o.xs.0: one}}]}}
"""
    good = """\
context: {o: {type: object, default: {}, fields: {xs: {type: array, items: integer}}}}
states: {a: {entry: [{assign: {o.xs.0: 1, o.ys.z: 1}}]}}
"""

    assert ["error 4:22"] == reported(bad, "assign.refused")
    assert [] == reported(good, "assign.refused")


def test_a_script_is_refused() -> None:
    bad = "states: {a: {entry: [{if: '= event.name == null', then: [{script: x = 1}]}]}}"
    good = "states: {a: {entry: [{if: '= event.name == null', then: [{log: x}]}]}}"

    assert ["error 3:58"] == reported(bad, "script.untrusted")
    assert [] == reported(good, "script.untrusted")


def test_an_expression_reads_declared_fields() -> None:
    bad = """\
context: {count: {type: integer, default: 0}}
states: {a: {on: {e: {guard: '= context.cuont > 1'}}}}
"""
    good = """\
context: {count: {type: integer, default: 0}}
states: {a: {on: {e: {guard: '= context.count > 1'}}}}
"""

    assert ["warning 4:41"] == reported(bad, "expression.unknown_field")
    assert [] == reported(good, "expression.unknown_field")


def test_what_a_foreach_makes_may_be_read() -> None:
    """`item` and `index` of a foreach are fields once it ran."""
    bad = "states: {a: {entry: [{foreach: {in: [1], item: x, do: [{log: '= context.y'}]}}]}}"
    good = """\
states: {a: {entry: [{foreach: {in: [1], item: x, index: y,
    do: [{log: '= context.y + context.x'}]}}]}}
"""

    assert ["warning 3:73"] == reported(bad, "expression.unknown_field")
    assert [] == reported(good, "expression.unknown_field")


def test_a_policy_may_read_the_principal() -> None:
    """Only `permit` may read the principal; its mistakes are reported at its place."""
    bad = """\
events: {e: {roles: [r], permit: '= principals.id == 1'}}
states: {a: {on: {e: {}}}}
"""
    good = """\
events: {e: {roles: [r], permit: '= principal.id == 1'}}
states: {a: {on: {e: {}}}}
"""

    assert ["error 3:37"] == reported(bad, "expression.name")
    assert [] == reported(good, "expression.name")


def test_a_transition_reads_what_its_event_carries() -> None:
    bad = """\
events: {e: {payload: {size: string}}}
states: {a: {on: {e: {guard: '= event.data.sise == 1'}}}}
"""
    good = """\
events: {e: {payload: {size: string}}}
states: {a: {on: {e: {guard: "= event.data['size'] == 1"}}}}
"""

    assert ["error 4:44"] == reported(bad, "payload.type")
    assert [] == reported(good, "payload.type")


def test_a_transition_reads_inner_fields_that_exist() -> None:
    """Objects inside a payload are checked; fields inside a missing field are not reported again."""
    bad = """\
events: {e: {payload: {o: {type: object, fields: {x: string}}}}}
states: {a: {on: {e: {actions: [{log: '= event.data.o.y.z'}]}}}}
"""
    good = """\
events: {e: {payload: {o: {type: object, fields: {x: object}}}}}
states: {a: {on: {e: {actions: [{log: '= event.data.o.x.z'}]}}}}
"""

    assert ["error 4:55"] == reported(bad, "payload.type")
    assert [] == reported(good, "payload.type")


def test_one_of_several_events_may_carry_the_field() -> None:
    bad = """\
events: {e.a: {payload: {}}, e.b: {payload: {m: string}}}
states: {a: {on: {e: {guard: '= event.data.x == 1'}}}}
"""
    good = """\
events: {e.a: {payload: {}}, e.b: {payload: {x: string}}}
states: {a: {on: {e: {guard: '= event.data.x == 1'}}}}
"""

    assert ["error 4:44"] == reported(bad, "payload.type")
    assert [] == reported(good, "payload.type")


def test_an_event_without_payload_carries_anything() -> None:
    """Without `payload` nothing is known."""
    bad = """\
events: {e: {payload: {}}}
states: {a: {on: {e: {guard: '= event.data.x == 1'}}}}
"""
    good = """\
events: {e: {}}
states: {a: {on: {e: {guard: '= event.data.x == 1'}}}}
"""

    assert ["error 4:44"] == reported(bad, "payload.type")
    assert [] == reported(good, "payload.type")


def test_results_are_not_declared_events() -> None:
    bad = """\
events: {e: {payload: {}}}
states: {a: {on: {'e, f': {guard: '= event.data.x == 1'}}}}
"""
    good = """\
events: {e: {payload: {}}}
states: {a: {on: {'error.execution, e': {guard: '= event.data.x == 1'},
    '*': {guard: '= event.data.x == 1'}}}}
"""

    assert ["error 4:49"] == reported(bad, "payload.type")
    assert [] == reported(good, "payload.type")


@pytest.mark.parametrize(
    "bad",
    [
        "context: {n: {type: array, nullable: true, index: true}}\nstates: {a: {}}\n",
        "context: {n: {index: true}}\nstates: {a: {}}\n",
        "context: {n: {type: object, nullable: true, fields: {m: {type: string, index: true}}}}\nstates: {a: {}}\n",
        "context: {n: {type: array, nullable: true, items: {type: string, index: true}}}\nstates: {a: {}}\n",
        "events: {e: {payload: {n: {type: string, index: true}}}}\nstates: {a: {on: {e: {}}}}\n",
        "states: {a: {context: {n: {type: string, nullable: true, index: true}}}}\n",
    ],
)
def test_only_a_scalar_of_the_roots_context_has_an_index(bad: str) -> None:
    assert 1 == len(reported(bad, "field.index"))


def test_scalars_of_the_roots_context_may_have_an_index() -> None:
    types = ("string", "integer", "number", "boolean")
    fields = ", ".join(f"f{n}: {{type: {each}, nullable: true, index: true}}" for n, each in enumerate(types))

    assert [] == errors(f"context: {{{fields}}}\nstates: {{a: {{}}}}\n")


def test_a_chart_has_at_most_eight_indexes() -> None:
    def chart(count: int) -> str:
        fields = "".join(f"  f{n}: {{type: string, nullable: true, index: true}}\n" for n in range(count))
        return f"context:\n{fields}states: {{a: {{}}}}\n"

    assert [] == reported(chart(8), "index.count")
    assert ["error 12:3"] == reported(chart(9), "index.count")


def test_an_index_changes_neither_the_revision_nor_the_behaviour() -> None:
    plain = "context: {n: {type: string, default: a}}\nstates: {a: {}}\n"
    indexed = plain.replace("default: a", "default: a, index: true")

    assert chart_of(plain).revision == chart_of(indexed).revision
    assert behaviour_name(read(plain)) == behaviour_name(read(indexed))
    assert chart_of(indexed).states[0].context[0].index
