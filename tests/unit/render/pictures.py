"""Trees and pictures for the tests of the layout, from states written in a line."""

from interlock.model.charts.chart import Chart
from interlock.model.document.document import Document, State
from interlock.render.layout.compose import compose_picture
from interlock.render.layout.level import Budget
from interlock.render.shapes.boxes import make_box_tree
from interlock.render.shapes.geometry import Frame, Path, Picture
from tests.unit.render.charts import compiled


def chart_of(*states: State, **root: object) -> Chart:
    """Compiles a chart of these states."""
    return compiled(Document(kind="sample", dialect="scxml", root=State(states=states, **root)))  # type: ignore[arg-type]  # the tests know the fields


def picture_of(*states: State, **root: object) -> Picture:
    """Lays a chart of these states out."""
    return compose_picture(make_box_tree(chart_of(*states, **root)), Budget())


def frame_of(picture: Picture, key: str) -> Frame:
    """Finds the frame of a box."""
    return next(frame for frame in picture.frames if frame.box.key == key)


def paths_of(picture: Picture, source: str, target: str) -> list[Path]:
    """Finds the lines between two states."""
    ends = (f"s/{source}", f"s/{target}")
    return [path for path in picture.paths if (path.wire.source, path.wire.target) == ends]
