"""Layers, their order, and places across the flow."""

from itertools import pairwise

import pytest

from interlock.model.document.document import State
from interlock.model.limits import STATES_MAX
from interlock.render.layout.coordinates import place_items
from interlock.render.layout.layering import against, layers_of, make_layers
from interlock.render.layout.level import ITEM_GAP, Budget, Item, Link, WorkSpentError
from interlock.render.layout.ordering import order_layers
from interlock.render.layout.ports import free_spot, pooled, port_range, side_room
from interlock.render.layout.routing import route_level
from tests.unit.render.charts import on
from tests.unit.render.pictures import picture_of


def items(count: int, across: float = 80.0) -> list[Item]:
    """Boxes of one size."""
    return [Item(across=across, along=30.0, low=12.0, high=across - 12.0) for _ in range(count)]


def links(*ends: tuple[int, int]) -> list[Link]:
    """Links without labels."""
    return [Link(source=source, target=target) for source, target in ends]


def test_a_link_that_closes_a_circle_runs_against_the_flow() -> None:
    assert [False, False, True] == against(["box"] * 3, [(0, 1), (1, 2), (2, 0)])
    assert [True, False, False] == against(["box", "start", "box"], [(0, 2), (1, 2), (2, 0)])


def test_ports_turn_their_links() -> None:
    assert [True, True, False] == against(["box", "top", "bottom"], [(0, 1), (2, 0), (1, 0)])


def test_every_link_leads_to_a_higher_layer_and_ports_have_their_own() -> None:
    things = [*items(4), Item(across=1, along=0, role="top"), Item(across=1, along=0, role="bottom")]
    found = layers_of(things, [(0, 1), (1, 2), (3, 2), (4, 0), (2, 5)])

    assert [1, 2, 3, 2, 0, 4] == found


def test_a_chain_of_as_many_states_as_there_may_be_needs_no_recursion() -> None:
    count = STATES_MAX
    found = layers_of(items(count), [(each, each + 1) for each in range(count - 1)])

    assert list(range(count)) == found
    assert not any(against(["box"] * count, [(each, each + 1) for each in range(count - 1)]))


def test_a_label_is_on_the_first_odd_layer_after_its_source() -> None:
    made = make_layers(
        items(3),
        [
            Link(source=0, target=1, label=(5.0, 40.0, 15.0)),
            Link(source=1, target=2),
            Link(source=2, target=0, label=(5.0, 30.0, 15.0)),
        ],
        Budget(),
    )

    assert [1, None, 3] == [None if label is None else made.layer[label] for label in made.labels]
    assert [False, False, True] == made.turned


def test_lines_are_put_in_an_order_in_which_none_cross() -> None:
    made = make_layers(items(4), links((0, 3), (1, 2)), Budget())
    rows, crossings = order_layers(made, items(4), Budget())

    assert (0, [[0, 1], [3, 2]]) == (crossings, [rows[0], rows[2]])


def test_a_crossing_that_must_be_is_counted() -> None:
    """Three by three, all joined: nine lines in a plane cross at least once, however they are ordered."""
    everything = links(*((one, other) for one in range(3) for other in range(3, 6)))
    _, crossings = order_layers(make_layers(items(6), everything, Budget()), items(6), Budget())

    assert 9 == crossings


def test_neighbours_change_places_where_sweeping_was_not_enough() -> None:
    """Sorting by means leaves one crossing here; exchanging neighbours takes it away."""
    ends = ((0, 5), (1, 4), (3, 5), (4, 5), (4, 6), (5, 6))
    _, crossings = order_layers(make_layers(items(7), links(*ends), Budget()), items(7), Budget())

    assert 0 == crossings


def test_lines_that_cross_on_their_way_bend_where_they_do() -> None:
    """Only one of two crossing lines stays straight; states stay apart all the same."""
    long = [(one, other) for one in range(3) for other in range(3, 6)]
    found = route_level(items(8), links(*long, (0, 6), (6, 7), (7, 3), (7, 4), (7, 5)), Budget())
    rows: dict[float, list[float]] = {}
    for u, v in found.places:
        rows.setdefault(v, []).append(u)

    assert all(other - one >= 100.0 for row in rows.values() for one, other in pairwise(sorted(row)))


def test_pinned_ends_keep_lines_from_crossing() -> None:
    things = items(3)
    things[0].fixed_ports = {0: 70.0, 1: 10.0}
    rows, crossings = order_layers(make_layers(things, links((0, 1), (0, 2)), Budget()), things, Budget())

    assert (0, [2, 1]) == (crossings, rows[2])


def test_items_keep_their_distance_and_a_single_chain_is_straight() -> None:
    things = items(3)
    made = make_layers(things, links((0, 1), (1, 2)), Budget())
    found = place_items(made, things, made.rows, Budget())

    assert 1 == len({round(place, 3) for place in found.places})

    wide = route_level(items(3), links((0, 1), (0, 2)), Budget())

    assert abs(wide.places[1][0] - wide.places[2][0]) >= 80.0 + ITEM_GAP


def test_a_level_without_links_is_one_row() -> None:
    found = route_level(items(2), [], Budget())

    assert (30.0, 80.0 * 2 + ITEM_GAP) == (found.along, found.across)
    assert (0.0, 0.0) == ((empty := route_level([], [], Budget())).across, empty.along)


def test_wishes_are_met_as_nearly_as_the_gaps_allow() -> None:
    assert [-5.0, 5.0] == pooled([0.0, 0.0], 10.0)
    assert [0.0, 20.0] == pooled([0.0, 20.0], 10.0)
    assert [-10.0, 0.0, 10.0] == pooled([2.0, 0.0, -2.0], 10.0)


def test_a_free_spot_is_the_nearest_beside_what_is_taken() -> None:
    assert 40.0 == free_spot(40.0, [], 10.0, 0.0, 80.0)
    assert 30.0 == free_spot(38.0, [40.0], 10.0, 0.0, 80.0)
    assert 5.0 == free_spot(5.0, [4.0, 6.0], 10.0, 0.0, 10.0)


def test_a_side_is_long_enough_for_its_ends() -> None:
    assert (0.0, 0.0) == (side_room(0), side_room(1))
    assert side_room(4) > side_room(2) > 0.0
    assert (5.0, 5.0) == port_range(10.0)


def test_many_ends_beside_pins_keep_apart() -> None:
    things = items(5, across=160.0)
    things[0].fixed_ports = {0: 80.0}
    found = route_level(things, links((0, 1), (0, 2), (0, 3), (0, 4)), Budget())
    starts = sorted(line[0][0] for line in found.lines)

    assert all(other - one > 10.0 for one, other in pairwise(starts))


@pytest.mark.parametrize("work", [0, 40, 400])
def test_work_is_counted_and_ends(work: int) -> None:
    with pytest.raises(WorkSpentError):
        route_level(items(40), links(*((one, (one * 7) % 40) for one in range(1, 40))), Budget(work))


def test_a_line_passes_beside_the_states_on_its_way() -> None:
    names = [f"s{number}" for number in range(6)]
    states = [State(key=one, transitions=(on("n", other),)) for one, other in pairwise(names)]
    first = State(key="s0", transitions=(on("n", "s1"), on("skip", "s5")))
    picture = picture_of(first, *states[1:], State(key="s5"))
    (skip,) = [path for path in picture.paths if path.wire.labels and path.wire.labels[0].event == "skip"]

    assert len(skip.points) <= 6
