"""The page and matplotlib draw the same of a figure: the ends of intervals along both axes, and the same names."""

import re
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


@pytest.fixture(scope="module")
def page(browser, tmp_path_factory):
    path = tmp_path_factory.mktemp("engines") / "page.html"
    path.write_bytes(render(Page("made", "", (), (), (Section("made", "Made", (), (CROSSES, METERS)),))))
    opened = browser.new_page(viewport={"width": 1280, "height": 900})
    opened.goto(path.as_uri())
    for key in ("crosses", "meters"):
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
