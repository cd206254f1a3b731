"""Whole drawings: levels in levels, loops, regions, titles, and the faults of an earlier layout."""

from itertools import pairwise

import pytest

from interlock.model.document.document import Initial, State, Transition
from interlock.render.layout.box_layout import BoxLayout, Lanes, frame_content, make_lanes, place_title, stretch_box
from interlock.render.layout.compose import CANVAS, Composer, compose_picture, join_points
from interlock.render.layout.crossings import find_crossings
from interlock.render.layout.invariants import broken_rules
from interlock.render.layout.level import Budget
from interlock.render.layout.self_loops import make_self_loops
from interlock.render.shapes.boxes import make_box_tree
from interlock.render.shapes.geometry import Picture
from tests.unit.render.charts import expression, flat, nested, on, parallel_root
from tests.unit.render.pictures import chart_of, frame_of, paths_of, picture_of


def sound(picture: Picture) -> Picture:
    """The picture, after a look at the hard rules."""
    assert [] == list(broken_rules(picture))
    return picture


@pytest.mark.parametrize("chart", [flat(), nested(), parallel_root()], ids=["flat", "nested", "parallel"])
def test_a_drawing_keeps_every_invariant(chart: object) -> None:
    sound(compose_picture(make_box_tree(chart), Budget()))  # type: ignore[arg-type]  # parametrized


def test_states_that_follow_each_other_are_drawn_one_below_the_other() -> None:
    picture = picture_of(
        State(key="a", transitions=(on("x", "b"), on("y", "c"))),
        State(key="b", transitions=(on("x", "d"),)),
        State(key="c", transitions=(on("x", "d"),)),
        State(key="d"),
    )

    assert frame_of(picture, "s/a").area.bottom < frame_of(picture, "s/b").area.y
    assert frame_of(picture, "s/b").area.bottom < frame_of(picture, "s/d").area.y


def test_a_short_chain_is_drawn_to_the_right() -> None:
    names = "abcd"
    chain = [State(key=one, transitions=(on("n", other),)) for one, other in pairwise(names)]
    picture = sound(picture_of(*chain, State(key="d")))

    assert frame_of(picture, "s/a").area.right < frame_of(picture, "s/b").area.x


def test_the_only_line_to_a_final_state_ends_in_the_middle_of_its_ring() -> None:
    picture = sound(
        picture_of(
            State(key="unpaid", transitions=(on("late", "expired"), on("payment", "paid"), on("cancelled", "gone"))),
            State(key="paid", transitions=(on("parcel.shipped", "shipped"), on("cancelled", "refund"))),
            State(key="refund", transitions=(on("done", "gone"), on("failed", "refund_failed"))),
            State(key="refund_failed", transitions=(on("retried", "refund"),)),
            *(State(key=each, type="final") for each in ("expired", "shipped", "gone")),
        )
    )
    off = []
    for source, target in (("unpaid", "expired"), ("paid", "shipped")):
        (path,) = paths_of(picture, source, target)
        ring = frame_of(picture, f"s/{target}").area
        off.append(round(path.points[-1][0] - ring.x - ring.width / 2, 1))

    assert [0.0, 0.0] == off


def test_a_line_into_a_compound_crosses_its_border_without_a_bend() -> None:
    inner = State(key="c", states=(State(key="x"), State(key="y", transitions=(on("back", "#a"),))))
    picture = sound(picture_of(State(key="a", id="a", transitions=(on("in", "c.y"), on("on", "c"))), inner))
    (path,) = paths_of(picture, "a", "c.y")

    assert all(one[0] == other[0] or one[1] == other[1] for one, other in pairwise(path.points))


def test_a_line_against_the_flow_leaves_at_the_top_and_enters_at_the_bottom() -> None:
    """Not by accident: the sides follow from the structure, before anything has a size."""
    states = (
        State(key="a", states=(State(key="a1"), State(key="a2")), transitions=(on("go", "b.b1"),)),
        State(key="b", states=(State(key="b1", transitions=(on("back", "a.a2"),)), State(key="b2"))),
    )
    made = make_box_tree(chart_of(*states))
    sides = find_crossings(made).sides
    wires = {(wire.source, wire.target): number for number, wire in enumerate(made.wires)}
    back, onward = wires["s/b.b1", "s/a.a2"], wires["s/a", "s/b.b1"]

    assert ("top", "bottom") == (sides["s/b", back], sides["s/a", back])
    assert ("bottom", "top") == (sides["s/a", onward], sides["s/b", onward])


def test_an_edge_between_regions_runs_in_the_channel() -> None:
    """It leaves and enters at the same side, and is never slanted across the drawing."""
    picture = sound(compose_picture(make_box_tree(parallel_root()), Budget()))
    (path,) = paths_of(picture, "left.a", "right.d")

    assert len(path.points) >= 4


@pytest.mark.parametrize("down", [True, False])
def test_several_loops_are_stacked_and_do_not_overlap(down: bool) -> None:
    """Each has its own place along the box, which grows when it must; labels stand beyond the loops."""
    box = make_box_tree(flat()).boxes["s/unpaid"]
    small = BoxLayout(box=box, width=40.0, height=20.0)
    looped = make_self_loops(small, [(0, (60.0, 15.0)), (1, (50.0, 30.0))], down=down)
    spans = sorted((min(p[down] for p in points), max(p[down] for p in points)) for _, points, _ in looped.lines)

    assert spans[0][1] < spans[1][0]
    assert (looped.layout.height if down else looped.layout.width) >= spans[1][1]
    assert all(label[not down] > (40.0 if down else 20.0) for _, _, label in looped.lines)
    assert make_self_loops(small, [], down=down).layout is small


def test_a_loop_is_drawn_at_states_and_at_compounds() -> None:
    again = (on("one", "a", reenter=True), on("two", "a", reenter=True))
    group = State(key="g", states=(State(key="x"),), transitions=(on("again", "g", reenter=True),))
    picture = sound(picture_of(State(key="a", transitions=(*again, on("go", "g"))), group))

    assert [2, 1] == [len(path.lines) for path in (*paths_of(picture, "a", "a"), *paths_of(picture, "g", "g"))]


def test_a_title_gives_way_to_lines_that_enter_through_the_header() -> None:
    """It stays where it fits before the first line, moves to a gap between lines, or the box widens before all."""
    assert (13.0, 0.0) == place_title(100.0, 300.0, [])
    assert (13.0, 0.0) == place_title(100.0, 300.0, [150.0])
    assert 40.0 < place_title(100.0, 300.0, [40.0])[0] < 200.0
    assert 40.0 < place_title(100.0, 300.0, [40.0, 200.0])[0] < 200.0
    assert place_title(100.0, 110.0, [40.0, 80.0])[1] > 0.0


def test_a_box_widens_for_its_title_and_nothing_else_moves_apart() -> None:
    box = make_box_tree(nested()).boxes["s/setup"]
    narrow, x, _ = frame_content(box, (60.0, 50.0), [])
    wide, shifted, _ = frame_content(box, (60.0, 50.0), [10.0, 30.0, 50.0])

    assert wide.width - narrow.width == pytest.approx(shifted - x)
    assert shifted > x


@pytest.mark.parametrize("doors", [[], [10.0, 30.0, 50.0], [55.0]])
def test_room_before_the_content_comes_on_top_of_what_the_title_needs(doors: list[float]) -> None:
    """What asks for a little room sees its lines move by as much; else it would have to guess how much to ask for."""
    box = make_box_tree(nested()).boxes["s/setup"]
    plain, x, top = frame_content(box, (60.0, 50.0), doors)
    roomy, moved, same = frame_content(box, (60.0, 50.0), doors, lead=3.0)

    assert pytest.approx((x + 3.0, top, plain.width + 3.0, plain.height)) == (moved, same, roomy.width, roomy.height)


def test_a_title_of_regions_gives_way_too() -> None:
    regions = tuple(
        State(key=f"r{number}", states=(State(key=f"x{number}"), State(key=f"y{number}"))) for number in range(2)
    )
    name = "a_parallel_state_with_quite_a_long_name_indeed_and_more"
    both = State(key=name, type="parallel", states=regions, transitions=(on("out", "a"),))
    start = State(key="a", transitions=(on("e", f"{name}.r0.x0"), on("f", f"{name}.r0.y0"), on("g", f"{name}.r1.y1")))
    sound(picture_of(start, both, State(key="b"), State(key="c"), State(key="d"), initial=Initial(targets=("a",))))


def test_lines_end_at_regions_and_their_titles_still_have_room() -> None:
    """Regions without states inside widen too; lines to several of them keep apart."""
    name = "a_parallel_state_with_quite_a_long_name"
    left, right = (
        State(key="l", id="l", transitions=(on("out", "#b"),)),
        State(key="r", id="r", states=(State(key="x"),)),
    )
    both = State(key=name, type="parallel", states=(left, right))
    start = State(key="a", transitions=(on("one", "#l"), on("two", "#r"), on("three", f"{name}.r.x")))
    middle = State(key="c", transitions=(on("four", "#l"), on("five", "#r")))
    picture = sound(
        picture_of(start, middle, both, State(key="b", id="b", transitions=(on("again", "a"), on("on", "c"))))
    )

    assert paths_of(picture, "a", "l")[0].points[-1] != paths_of(picture, "c", "l")[0].points[-1]


def test_a_line_without_words_loops_too() -> None:
    box = make_box_tree(flat()).boxes["s/unpaid"]
    silent = make_self_loops(BoxLayout(box=box, width=90.0, height=60.0), [(0, (0.0, 0.0))], down=True)

    assert 4 == len(silent.lines[0][1])


def test_a_final_state_that_a_line_reaches_from_below_has_its_caption_aside() -> None:
    """Else the line would cross the caption. Drawn to the right it is the other way round."""
    group = State(
        key="g",
        states=(State(key="x", transitions=(on("n", "end"),)), State(key="end", type="final")),
        transitions=(on("go", "z"),),
    )
    made = make_box_tree(chart_of(group, State(key="z", transitions=(on("back", "g.end"),))))
    composer = Composer(made, Budget())

    assert composer.box_layout("s/g.end", down=True).aside
    assert not composer.box_layout("s/g.end", down=False).aside
    sound(compose_picture(made, Budget()))


@pytest.mark.parametrize("down", [True, False])
def test_growing_a_box_leads_its_lines_on_to_the_new_border(down: bool) -> None:
    """Regions are made as long as the longest of them; a line that ends at the border continues to its new place."""
    group = State(key="g", id="g", states=(State(key="x", transitions=(on("all", "#g"),)),))
    made = make_box_tree(chart_of(group, State(key="z")))
    layout = Composer(made, Budget()).filled("s/g", down=down)
    ((wire, end),) = layout.border_ends.items()
    grown = stretch_box(layout, width=layout.width + 50.0, height=layout.height + 70.0)
    expected = grown.height if down else grown.width

    assert expected == grown.segments[wire][end][1 if down else 0]


def test_a_state_has_room_for_every_line_that_ends_on_it() -> None:
    ends = tuple(on(f"e{number}", f"t{number}") for number in range(12))
    targets = tuple(State(key=f"t{number}", transitions=(on("end", "z"),)) for number in range(12))
    picture = sound(picture_of(State(key="a", transitions=ends), *targets, State(key="z")))
    starts = {path.points[0] for path in picture.paths if path.wire.source == "s/a"}

    assert 12 == len(starts)


def test_small_jogs_are_straightened() -> None:
    names = ("a", "a_much_wider_state", "b", "another_quite_wide_state", "c", "d", "e", "f", "g")
    chain = [State(key=one, transitions=(on("n", other),)) for one, other in pairwise(names)]
    picture = sound(picture_of(*chain, State(key="g")))

    assert {2} == {len(path.points) for path in picture.paths}


def test_lanes_nearer_to_the_content_are_for_lines_that_turn_in_earlier() -> None:
    lanes = make_lanes({0: ("top", 10.0), 1: ("top", 50.0), 2: ("bottom", 10.0), 3: ("bottom", 50.0)}, 200.0)

    assert lanes.places[1] < lanes.places[0] < lanes.before
    assert lanes.before + 200.0 < lanes.places[3] < lanes.places[2] < lanes.before + 200.0 + lanes.after
    assert Lanes({}, 0.0, 0.0) == make_lanes({}, 200.0)


@pytest.mark.parametrize("down", [True, False])
def test_a_turned_compound_is_entered_where_the_flow_around_it_wants(down: bool) -> None:
    chain = [State(key=one, transitions=(on("n", other),)) for one, other in pairwise(("x0", "x1", "x2"))]
    last = State(key="x2", transitions=(on("out", "#z"), on("back", "#a")))
    states = (State(key="a", id="a", transitions=(on("in", "g.x1"),)), State(key="g", states=(*chain, last)))
    composer = Composer(make_box_tree(chart_of(*states, State(key="z", id="z"))), Budget())
    turned = composer.group("s/g", down=down, lead=0.0, turned=True)
    straight = composer.group("s/g", down=down, lead=0.0)
    border_ends = {turned.segments[wire][end][1 if down else 0] for wire, end in turned.border_ends.items()}

    assert {0.0, turned.along(down=down)} == border_ends
    assert turned.along(down=down) != straight.along(down=down)
    assert turned.ports.keys() == straight.ports.keys()


def test_a_compound_is_turned_when_its_shape_is_much_better_for_it() -> None:
    """Three tall compounds one after the other stand side by side, although lines enter and leave the box around."""

    def tall(name: str, *leaving: Transition) -> State:
        keys = [f"{name}{number}" for number in range(4)]
        inside = [State(key=one, transitions=(on("a_rather_long_event", other),)) for one, other in pairwise(keys)]
        return State(key=name, states=(*inside, State(key=keys[-1])), transitions=leaving)

    three = (tall("p", on("n", "q")), tall("q", on("n", "r")), tall("r", on("out", "#z")))
    states = (
        State(key="a", transitions=(on("in", "g.q"), on("x", "b"), on("y", "c"))),
        State(key="b", transitions=(on("x", "z"),)),
        State(key="c", transitions=(on("x", "z"),)),
        State(key="g", states=three),
        State(key="z", id="z"),
    )
    picture = sound(picture_of(*states))
    first, second = frame_of(picture, "s/g.p").area, frame_of(picture, "s/g.q").area

    assert first.right < second.x


def test_a_choice_is_reached_from_any_side() -> None:
    always = (
        Transition(origin="always", targets=("b",), guard=expression("1 < 2")),
        Transition(origin="always", targets=("c",)),
    )
    sound(
        picture_of(
            State(key="a", transitions=(on("x", "q"), on("y", "q2"))),
            State(key="q", transitions=always),
            State(key="q2", transitions=always),
            State(key="b", transitions=(on("back", "q"),)),
            State(key="c"),
        )
    )


def test_points_on_a_straight_line_are_left_out() -> None:
    assert ((0.0, 0.0), (0.0, 9.0), (5.0, 9.0)) == join_points(
        [(0.0, 0.0), (0.05, 4.0), (0.0, 9.0), (0.0, 9.0), (5.0, 9.0)]
    )
    assert ((0.0, 0.0), (9.0, 0.0)) == join_points([(0.0, 0.0), (4.0, 0.0), (9.0, 0.0)])


def test_a_chart_of_one_state_is_small() -> None:
    picture = sound(picture_of(State(key="only")))

    assert picture.width < 250 + 2 * CANVAS
    assert 1 == len(picture.paths)


def test_the_root_has_a_frame_only_when_it_says_something() -> None:
    """A frame around everything would say nothing."""
    silent = picture_of(State(key="a"), State(key="b"))
    telling = picture_of(State(key="a"), transitions=(on("any", "a"),))

    assert (True, False) == (frame_of(silent, "s/").bare, frame_of(telling, "s/").bare)
