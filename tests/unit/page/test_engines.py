"""The page and matplotlib draw the same of a figure: the ends of intervals along both axes, and the same names."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from benchmarker.page.page_model import Axis, Figure, Page, Points, Ridge, Section
from benchmarker.page.plots import inline
from benchmarker.page.render import render
from benchmarker.tables.table import Column, Table

pytestmark = pytest.mark.slow
pytest.importorskip("matplotlib")

DATA = Table((Column("none"),), ())
CROSSES = Figure(
    "crosses",
    "Intervals along both axes",
    "",
    Axis("samples/J", log="always"),
    (
        Points("one", 0, (2.0,), (20.0,), (), (10.0,), (40.0,), labels=("one",), left=(1.0,), right=(5.0,)),
        Points("few trials", 1, (1.5,), (15.0,), (), (None,), (None,), "hollow", left=(None,), right=(None,)),
        Points("open", 2, (4.0,), (30.0,), (), (20.0,), (None,), left=(None,), right=(10.0,), labels=("open",)),
    ),
    DATA,
    y=Axis("samples/s", log="always"),
)
ENDS = [(1.0, 20.0), (5.0, 20.0), (2.0, 10.0), (2.0, 40.0), (4.0, 30.0), (10.0, 30.0), (4.0, 20.0), (4.0, 30.0)]
"""The two ends of each interval of the crosses: along x, then along y."""
METERS = Figure(
    "meters",
    "What meters read",
    "",
    Axis("time", "s"),
    tuple(Ridge(side, at, 0, (0.0, 1.0, 2.0), (0.2, 0.9, 0.4)) for at, side in enumerate(("one", "two"))),
    DATA,
    rows=("power, 0 to 90 W",),
)

CLOSE = Figure(
    "close",
    "Points in nearly the same place",
    "",
    Axis("samples/J", limit=(0.0,)),
    tuple(Points(f"side {at}", at, (5.4 + 0.01 * at,), (20.0 + 0.01 * at,), labels=(f"side {at}",)) for at in range(6)),
    DATA,
    y=Axis("samples/s", limit=(0.0,)),
)
SPAN = replace(CLOSE, key="span", x=Axis("time", "s"), marks=(Points("one", 0, (5.7, 13.4), (1.0, 2.0)),))


@pytest.fixture(scope="module")
def page(browser, tmp_path_factory):
    path = tmp_path_factory.mktemp("engines") / "page.html"
    path.write_bytes(render(Page("made", "", (), (), (Section("made", "Made", (), (CROSSES, METERS, CLOSE, SPAN)),))))
    opened = browser.new_page(viewport={"width": 1280, "height": 900})
    opened.goto(path.as_uri())
    for key in ("crosses", "meters", "close", "span"):
        opened.locator(f"#plot-{key}").scroll_into_view_if_needed()
        opened.wait_for_selector(f"#plot-{key}[data-drawn]", timeout=60_000)
    yield opened
    opened.close()


def values(places, ticks):
    """The values at pixels, on logarithmic axes: between two ticks, each a value and where it is."""
    (one, (x1, y1)), (ten, (x10, y10)) = ticks
    return [
        (one[0] * (ten[0] / one[0]) ** ((x - x1) / (x10 - x1)), one[1] * (ten[1] / one[1]) ** ((y - y1) / (y10 - y1)))
        for x, y in places
    ]


def pairs(path):
    numbers = [float(each) for each in re.findall(r"-?[\d.]+", path)][:4]
    return [tuple(numbers[:2]), tuple(numbers[2:])]


def test_intervals_end_where_the_figure_says_in_both(page):
    found = page.eval_on_selector_all("#plot-crosses .interval", "(all) => all.map((each) => each.getAttribute('d'))")
    at = {
        axis: dict(
            page.eval_on_selector_all(
                f"#plot-crosses .tick.{axis}", f"(all) => all.map((e) => [+e.dataset.value, +e.getAttribute('{axis}')])"
            )
        )
        for axis in "xy"
    }
    ticks = [((x, y), (at["x"][x], at["y"][y])) for x, y in ((2, 20), (5, 10))]
    assert values([place for path in found for place in pairs(path)], ticks) == [
        pytest.approx(end, rel=0.01) for end in ENDS
    ]
    root = ElementTree.fromstring(inline(CROSSES))
    named = {"".join(each.itertext()): (float(each.get("x")), float(each.get("y"))) for each in root.iter("text")}
    paths = [
        path.get("d")
        for path in root.iter("path")
        if "stroke-width: 0.9" in path.get("style", "") and "clip-path" in path.attrib
    ]
    middle = pairs(paths[0])[0][1]  # of y = 20, which its text is not at
    ticks = [((2, 20), (named["2"][0], middle)), ((5, 10), (named["5"][0], middle + named["10"][1] - named["20"][1]))]
    assert values([place for path in paths for place in pairs(path)], ticks) == [
        pytest.approx(end, rel=0.03) for end in ENDS
    ]


@pytest.mark.parametrize("figure", [CROSSES, METERS], ids=lambda figure: figure.key)
def test_names_are_the_same_in_both(page, figure):
    shown = set(page.locator(f"#plot-{figure.key} text:is(.legend, .label, .direct)").all_text_contents())
    drawn = {"".join(each.itertext()) for each in ElementTree.fromstring(inline(figure)).iter("text")}
    names = {mark.name for mark in figure.marks}
    assert names & drawn == names & shown == names


@pytest.mark.parametrize("width", [390, 1280])
def test_labels_without_room_beside_their_points_are_at_the_end_of_a_line(page, width):
    page.set_viewport_size({"width": width, "height": 900})
    page.wait_for_timeout(500)
    labels = page.locator("#plot-close .label")
    assert sorted(labels.all_text_contents()) == [mark.name for mark in CLOSE.marks]
    boxes = [each.bounding_box() for each in labels.all()]
    tops = sorted((box["x"] > boxes[0]["x"], box["y"]) for box in boxes)
    assert len(set(tops)) == len(boxes)
    assert page.locator("#plot-close .leader").count() >= 2
    assert page.locator("#plot-crosses .leader").count() == 0


def test_a_short_axis_has_more_than_one_tick(page):
    """From 5.4 to 13.7, with steps of 5, 10 would be alone."""
    page.set_viewport_size({"width": 390, "height": 900})
    page.wait_for_timeout(500)
    assert page.locator("#plot-span .tick.x").all_text_contents() == ["6", "8", "10", "12"]
