"""Figures look as they did: pictures of them are compared with those in `tests/fixtures/pictures`.

Text is hidden and taken to be as wide as its number of letters, so that fonts do not matter. `make references` draws
the references anew. A picture that differs is left in `build/pictures`, beside one with what differs in red.
"""

import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.records import make_record

from benchmarker.comparing.results import Rules
from benchmarker.page.assemble import page
from benchmarker.page.gather import gather
from benchmarker.page.page_model import Axis, Figure, Heat, Page, Points, Section
from benchmarker.page.render import render
from benchmarker.page.traced import page as page_of_traces
from benchmarker.records import load as loads
from benchmarker.records import store
from benchmarker.tables.table import Column, Table
from benchmarker.traces.ingest import ingest

pytestmark = pytest.mark.slow

PIL = pytest.importorskip("PIL.Image", reason="Pillow is not installed")

REFERENCES = Path(__file__).parents[2] / "fixtures/pictures"
LEFT = Path(__file__).parents[3] / "build/pictures"
RENEW = "RENEW_PICTURES"
SEEN = {"viewport": {"width": 1000, "height": 900}}
COLOURS = 128
"""Colours of a reference, which is the smaller for it."""
BLUR = 1.0
"""Radius in pixels, so that how edges are smoothed does not matter."""
NEAR = 24
"""Difference of a colour, of 255, that is none: it is less than that of neighbours in a palette."""
TOLERANCE = 0.01
"""Largest share of the pixels that are not background in both pictures that may differ."""
ALONE = "{ position: 'fixed', top: '0', left: '0', zIndex: 99, background: 'var(--paper)' }"
"""Where a figure is while its picture is taken: at whole pixels, whatever the height of the texts above it."""
WITHOUT_FONTS = """
CanvasRenderingContext2D.prototype.measureText = (text) => ({ width: 6.5 * text.length });
CanvasRenderingContext2D.prototype.fillText = () => {};
addEventListener("DOMContentLoaded", () => document.head.append(Object.assign(document.createElement("style"), {
  textContent: ".plot { width: 600px !important } .plot text { visibility: hidden }",
})));
"""
DATA = Table((Column("none"),), ())
HEAT = Figure(
    "heat",
    "A heat map",
    "",
    Axis("change"),
    (Heat("change", ("a", "b", "c"), ((-0.2, 0.1, None), (0.0, 0.05, 0.2)), (("",) * 3,) * 2, 0.2),),
    DATA,
    rows=("one", "two"),
)
LINES = Figure(
    "lines",
    "Lines with direct labels",
    "",
    Axis("devices", log=True),
    tuple(
        Points.of(name, series, [(x, x**power, 0.9 * x**power, 1.1 * x**power, "") for x in (1, 2, 4, 8)], "line")
        for series, (name, power) in enumerate((("ideal", 1.0), ("measured", 0.8)))
    ),
    DATA,
    Axis("speed-up", log=True),
)
CROSSES = Figure(
    "crosses",
    "Points with intervals along both axes",
    "",
    Axis("samples/J"),
    tuple(
        replace(
            Points.of(name, series, [(x, y, 0.9 * y, 1.2 * y, "")], look),
            left=(0.8 * x,),
            right=(1.1 * x,),
            labels=(name,),
        )
        for series, (name, x, y, look) in enumerate((("one", 3.0, 5.0, "dots"), ("two", 2.9, 4.6, "hollow")))
    ),
    DATA,
    Axis("samples/s"),
)
FIGURES = (
    *("sides-ratios", "sides-density-0", "sides-quantiles-0", "sides-over-time-0"),
    *("rich-samples_per_s", "rich-blocks", "rich-meters-0", "rich-power", "rich-ttft-load-0", "rich-categories"),
    *(
        "traces-difference-icicle",
        "traces-trace0-icicle",
        "traces-trace0-step",
        "made-heat",
        "made-lines",
        "made-crosses",
    ),
)
PICTURES = [*((key, "light") for key in FIGURES), *((f"sides-{key}", "dark") for key in ("ratios", "density-0"))]
TRACES = [Path(__file__).parents[2] / f"fixtures/traces/h200-torch-{name}.json.gz" for name in ("gpt2", "triton")]


def trial(number, framework):
    """A trial of two frameworks: its step times scatter, and so do those of the trials."""
    number += 20 * framework
    level = (0.01, 0.013)[framework] * (1 + 0.02 * math.sin(5.1 * number))
    steps = [level * (1 + 0.03 * math.sin(1.7 * at + number)) for at in range(30)]
    case = {"framework": ("one", "two")[framework]}
    return make_record(steps, trial=number % 20, case=case, design={"case_number": framework})


def pages(rich_place, folder):
    """The pages whose figures are compared: two sides, a bit of everything, traces, and what none of them has."""
    records = [trial(number, framework) for number in range(9) for framework in (0, 1)]
    served = [loads.read(path) for path in rich_place.rglob("load.json")]
    for name, of, those in (("sides", records, ()), ("rich", store.read([rich_place])[0], served)):
        yield name, page(gather([(rich_place if those else folder, of, [])], Rules(), loads=those))[0]
    yield "traces", page_of_traces([(trace, ingest(trace)) for trace in TRACES], None)
    yield "made", Page("made", "", (), (), (Section("made", "Made", (), (HEAT, LINES, CROSSES)),))


@pytest.fixture(scope="module")
def file(rich_place, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    figures = [
        replace(figure, key=f"{name}-{figure.key}")
        for name, made in pages(rich_place, folder)
        for figure in made.figures
        if f"{name}-{figure.key}" in FIGURES
    ]
    assert len(figures) == len(FIGURES)
    path = folder / "report.html"
    path.write_bytes(render(Page("pictures", "", (), (), (Section("all", "All", (), tuple(figures)),))))
    return path


@pytest.fixture(scope="module")
def opened(browser, file):
    """The page in each colour scheme, without what depends on fonts."""
    pages, contexts = {}, []
    for scheme in ("light", "dark"):
        contexts.append(browser.new_context(**SEEN, color_scheme=scheme))
        contexts[-1].add_init_script(WITHOUT_FONTS)
        pages[scheme] = contexts[-1].new_page()
        pages[scheme].goto(file.as_uri())
    yield pages
    for context in contexts:
        context.close()


def picture(seen, key, path):
    """The picture of a figure, drawn as it is."""
    place = seen.locator(f"#plot-{key}")
    place.scroll_into_view_if_needed()
    seen.wait_for_selector(f"#plot-{key}[data-drawn]", timeout=60_000)
    place.evaluate(f"(place) => Object.assign(place.style, {ALONE})")
    place.screenshot(path=path, animations="disabled")
    place.evaluate("(place) => Object.assign(place.style, { position: '' })")
    return PIL.open(path).convert("RGB")


def blurred(image):
    from PIL import ImageFilter

    return np.asarray(image.filter(ImageFilter.GaussianBlur(BLUR)), np.int16)


def differing(image, reference):
    """The pixels that differ, and their share of all that are not background in both; all if the sizes differ."""
    if image.size != reference.size:
        return np.ones((image.height, image.width), bool), 1.0
    one, two = map(blurred, (image, reference))
    drawn = (np.abs(one - one[0, 0]).max(axis=2) > NEAR) | (np.abs(two - two[0, 0]).max(axis=2) > NEAR)
    found = np.abs(one - two).max(axis=2) > NEAR
    return found, found.sum() / max(1, drawn.sum())


def check(image, name, references=REFERENCES, left=LEFT):
    """Compare a picture with its reference, or make it the reference."""
    path = references / f"{name}.png"
    if os.environ.get(RENEW):
        references.mkdir(exist_ok=True)
        few = image.quantize(COLOURS, kmeans=2, dither=PIL.Dither.NONE)
        assert differing(image, few.convert("RGB"))[1] < TOLERANCE / 10, f"{name}: {COLOURS} colours are too few"
        few.save(path, optimize=True)
        return
    found, share = differing(image, PIL.open(path).convert("RGB"))
    if share <= TOLERANCE:
        return
    left.mkdir(parents=True, exist_ok=True)
    image.save(left / f"{name}.png")
    marked = np.asarray(image).copy()
    marked[found] = (255, 0, 0)
    PIL.fromarray(marked).save(left / f"{name}-differs.png")
    pytest.fail(
        f"{name}: {share:.1%} of what is drawn differs from {path}: see {left / name}.png and {name}-differs.png; "
        "if it is meant to, `make references` renews the references",
        pytrace=False,
    )


@pytest.mark.parametrize(("key", "scheme"), PICTURES)
def test_a_figure_looks_as_it_did(opened, tmp_path, key, scheme):
    check(picture(opened[scheme], key, tmp_path / "picture.png"), f"{key}-{scheme}")


CHANGES = {
    "another colour": (
        "rich-samples_per_s",
        "all('.bars rect').forEach((each) => each.setAttribute('fill', '#7a3aa0'))",
    ),
    "no medians": ("rich-blocks", "all('.median').forEach((each) => each.remove())"),
    "a box moved by 9 pixels": ("rich-blocks", "all('.box')[0].setAttribute('transform', 'translate(9 0)')"),
    "a curve upside down": (
        "sides-ratios",
        "all('.ridge')[0].setAttribute('transform', 'scale(1 -1) translate(0 -90)')",
    ),
    "a part without colour": ("traces-difference-icicle", "all('.part rect')[1].setAttribute('fill', 'none')"),
    "taller": ("rich-categories", "all('svg')[0].setAttribute('height', 90)"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_a_figure_is_found_and_the_new_picture_is_left(browser, file, tmp_path, monkeypatch, change):
    monkeypatch.delenv(RENEW, raising=False)
    key, script = CHANGES[change]
    context = browser.new_context(**SEEN, color_scheme="light")
    context.add_init_script(WITHOUT_FONTS)
    seen = context.new_page()
    seen.goto(file.as_uri())
    before = picture(seen, key, tmp_path / "before.png")
    references, left = tmp_path / "references", tmp_path / "left"
    with monkeypatch.context() as renewing:
        renewing.setenv(RENEW, "yes")
        check(before, key, references, left)
    check(picture(seen, key, tmp_path / "again.png"), key, references, left)
    assert not left.exists()
    seen.evaluate(f"const all = (which) => document.querySelectorAll(`#plot-{key} ${{which}}`); {script}")
    with pytest.raises(pytest.fail.Exception, match=rf"{key}: .*% of what is drawn differs .*`make references` renews"):
        check(picture(seen, key, tmp_path / "after.png"), key, references, left)
    assert {path.name for path in left.iterdir()} == {f"{key}.png", f"{key}-differs.png"}
    context.close()
