"""Figures of the page as pictures with their data, and in a notebook: what they show, the same bytes, text as text."""

from __future__ import annotations

import csv
import io
import re
import struct
import sys
import warnings
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from benchmarker.api.errors import UserError
from benchmarker.page.page_model import Axis, Band, Bars, Boxes, Figure, Heat, Points, Ridge, legend_of
from benchmarker.page.plots import inline, save
from benchmarker.tables.table import Column, Table, number

pytest.importorskip("matplotlib")
HOSTILE = '</text><script>$x_1$ & "a"\x1b[2J\u2028_b'
DATA = Table((Column("case"), number("rate", "1/s")), (("=1+1", 2.5), (HOSTILE, None)))
ROWS = ("first", "second")
FIGURES = {
    "bars": Figure(
        "bars",
        "Rates",
        "Medians.",
        Axis("samples/s", limit=(0.0,)),
        (
            Bars("one", 0, (0,), (4000.0,), (3000.0,), (5000.0,)),
            Bars("two", 1, (1,), (2000.0,), (None,), (None,)),
            Points.of("trials", 7, [(1900.0, 1.0, None, None, ""), (2100.0, 1.0, None, None, "")], "small"),
        ),
        DATA,
        rows=ROWS,
    ),
    "stacks": Figure(
        "stacks",
        "Shares",
        "",
        Axis("share", "%", limit=(0.0, 1.0)),
        tuple(Bars(f"kind {at}", at, (0, 1), (0.125, 0.0625), stacked=True) for at in range(8)),
        DATA,
        rows=ROWS,
    ),
    "boxes": Figure(
        "boxes",
        "Times",
        "",
        Axis("step time", "s", limit=(0.0,)),
        (Boxes("one", 0, (0, 1), ((1e-3, 2e-3, 3e-3, 4e-3, 5e-3), (2e-3,) * 5)),),
        DATA,
        rows=ROWS,
    ),
    "ratios": Figure(
        "ratios",
        "Ratios",
        "",
        Axis("ratio", log=True),
        (
            Ridge("p", 1, 0, (0.7, 0.8, 0.9), (0.0, 1.0, 0.0)),
            Points("rounds", 1, (0.75, 0.8, 0.85), (0.3, 0.3, 0.3), look="small dots", listed=False),
            Points.of("two: faster", 1, [(0.8, 0.0, 0.75, 0.85, "")], "dots", 3),
            Points.of("two: same", 1, [(1.0, 1.0, 0.99, None, "")], "dots", 1),
        ),
        DATA,
        rows=ROWS,
        lines=(1.0,),
        bands=(Band(0.98, 1.02, "±2%"), Band(1.1, 1.2, "disturbed", "doubt")),
    ),
    "lines": Figure(
        "lines",
        "Speed-up",
        "",
        Axis("devices", log="always"),
        (
            Points.of("strong", 0, [(1, 1, None, None, ""), (2, 1.8, 1.7, 1.9, ""), (4, 3.0, 2.9, 3.2, "")]),
            Points("ideal", 7, (1, 2, 4), (1, 2, 4), look="line"),
        ),
        DATA,
        y=Axis("speed-up", log="always"),
    ),
    "labels": Figure(
        "labels",
        "Trade-off",
        "",
        Axis("error", log=True),
        tuple(
            Points(f"case {at}", at, (10.0**-at,), (at + 1.0,), look=look, labels=(f"label {at}",), listed=False)
            for at, look in enumerate(("dots", "hollow", "small dots", "small"))
        ),
        DATA,
        y=Axis("rate", "1/s", log=True),
    ),
    "crosses": Figure(
        "crosses",
        "Intervals along both axes",
        "",
        Axis("samples/J", limit=(0.0,)),
        (
            Points("one", 0, (2.0,), (20.0,), (), (10.0,), (40.0,), labels=("one",), left=(1.0,), right=(4.0,)),
            Points("few trials", 1, (1.5,), (15.0,), (), (None,), (None,), "hollow", left=(None,), right=(None,)),
        ),
        DATA,
        y=Axis("samples/s", limit=(0.0,)),
    ),
    "heat": Figure(
        "heat",
        "Changes",
        "",
        Axis(""),
        (Heat("change", ("a", "b", "c"), ((0.1, None, -0.1), (0.0, 0.05, 0.2)), (("",) * 3,) * 2, 0.1),),
        DATA,
        rows=ROWS,
    ),
}


def texts(svg: str) -> list[str]:
    return ["".join(each.itertext()) for each in ElementTree.fromstring(svg).iter("text")]


def test_lines_have_their_names_at_their_ends_and_verdicts_beside_their_marks():
    """Above each other where the lines end; in a legend only if the names are too long."""
    root = ElementTree.fromstring(inline(FIGURES["lines"]))
    at = {"".join(text.itertext()): (float(text.get("x")), float(text.get("y"))) for text in root.iter("text")}
    assert min(at["strong"][0], at["ideal"][0]) > at["4"][0]  # right of the last point
    assert at["ideal"][1] + 10 < at["strong"][1] < at["1"][1]
    strong, ideal = FIGURES["lines"].marks
    long = replace(FIGURES["lines"], marks=(replace(strong, name="an exceedingly long name " * 3), ideal))
    root = ElementTree.fromstring(inline(long))
    at = {"".join(text.itertext()): (float(text.get("x")), float(text.get("y"))) for text in root.iter("text")}
    assert at["ideal"][1] > at["devices"][1]
    faster = replace(FIGURES["ratios"].marks[2], labels=("faster",))
    root = ElementTree.fromstring(inline(replace(FIGURES["ratios"], marks=(faster,))))
    at = {"".join(text.itertext()): float(text.get("x") or 0) for text in root.iter("text")}
    assert "faster" in at


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("ending", ["svg", "pdf", "png"])
def test_a_figure_is_as_wide_as_a_column_and_always_has_the_same_bytes(tmp_path, name, ending):
    told = save(FIGURES[name], tmp_path / f"a.{ending}")
    assert told.splitlines()[0] == f"figure: {tmp_path}/a.{ending}, its data: {tmp_path}/a.csv"
    assert told.splitlines()[1].startswith(f"{FIGURES[name].title}.")
    save(FIGURES[name], tmp_path / f"b.{ending}")
    content = (tmp_path / f"a.{ending}").read_bytes()
    assert content == (tmp_path / f"b.{ending}").read_bytes()
    if ending == "png":
        assert struct.unpack(">I", content[16:20]) == (3.5 * 300,)
    elif ending == "pdf":
        assert re.search(rb"/MediaBox \[ 0 0 252 ", content)  # 3.5 inches of 72 pt
        assert b"/FontFile2" in content or b"ObjStm" in content
        assert b"/Type3" not in content
    else:
        root = ElementTree.fromstring(content)
        assert root.get("width") == "252pt"
        assert not [each for each in root.iter() if each.tag.endswith("}text")]  # paths look the same everywhere


def test_the_data_are_those_of_the_figure_and_no_text_is_a_formula(tmp_path):
    save(FIGURES["bars"], tmp_path / "a.svg")
    rows = list(csv.reader(io.StringIO((tmp_path / "a.csv").read_text())))
    assert rows[:2] == [["case", "rate"], ["'=1+1", "2.5"]]
    assert "\\x1b" in rows[2][0]
    assert rows[2][1] == ""


def test_the_caption_is_in_the_file(tmp_path):
    figure = replace(FIGURES["bars"], left_out="Only 2 of 3 are drawn.")
    assert save(figure, tmp_path / "a.png").splitlines()[1] == "Rates. Medians. Only 2 of 3 are drawn."
    assert b"Rates. Medians. Only 2 of 3 are drawn." in (tmp_path / "a.png").read_bytes()


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("a.gif", r"cannot draw .*a\.gif: the supported formats are \.png, \.svg, \.pdf"),
        ("a", "the supported formats are"),
        ("none/a.svg", r"cannot write .*none/a\.svg: No such file or directory"),
        ("folder.csv/../a.svg", None),
    ],
)
def test_a_file_that_cannot_be_written_is_named(tmp_path, path, message):
    (tmp_path / "folder.csv").mkdir()
    if message is None:
        save(FIGURES["bars"], tmp_path / path)
        with pytest.raises(UserError, match=r"cannot write .*folder\.csv: Is a directory"):
            save(FIGURES["bars"], tmp_path / "folder.svg")
        return
    with pytest.raises(UserError, match=message):
        save(FIGURES["bars"], tmp_path / path)
    assert [each.name for each in tmp_path.iterdir()] == ["folder.csv"]


def test_matplotlib_is_named_if_it_is_missing(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "benchmarker.page.drawing", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UserError, match=r"a figure needs the module 'matplotlib'; .*plot"):
        save(FIGURES["bars"], tmp_path / "a.svg")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", FIGURES)
def test_a_notebook_gets_small_markup_in_its_own_colour_and_font(name):
    html = inline(FIGURES[name])
    assert len(html) < 100_000
    assert "currentColor" in html
    assert not re.search(r"https?:|src=|<script|<link|font-family|#010203", html)
    assert "href=" not in html.replace('href="data:image/png;base64,', "")
    root = ElementTree.fromstring(html)
    svg, caption = root
    assert (root.tag, svg.tag, svg.get("role"), caption.tag) == ("figure", "svg", "img", "figcaption")
    ids = {each.get("id") for each in root.iter() if each.get("id")}
    assert set(re.findall(r"url\(#(\w+)\)", html)) <= ids


def test_marks_show_what_the_figure_says():
    bars = ["0", "2k", "4k", "samples/s", *ROWS, "one", "two", "trials"]
    assert texts(inline(FIGURES["bars"])) == bars
    assert texts(inline(FIGURES["boxes"]))[:4] == ["0 s", "2 ms", "4 ms", "step time"]
    assert {"1", "2", "4", "devices", "speed-up", "strong", "ideal"} <= set(texts(inline(FIGURES["lines"])))
    assert "5" not in texts(inline(FIGURES["lines"]))
    assert {f"label {at}" for at in range(4)} <= set(texts(inline(FIGURES["labels"])))
    assert "rounds" not in texts(inline(FIGURES["ratios"]))
    assert {"p", "±2%", "disturbed", "two: faster", "two: same"} <= set(texts(inline(FIGURES["ratios"])))
    assert {"a", "b", "c", *ROWS, "10%"} <= set(texts(inline(FIGURES["heat"])))


def test_bars_reach_their_values_and_intervals_their_ends():
    """Positions are those of the ticks, which stand 1000 apart."""
    root = ElementTree.fromstring(inline(FIGURES["bars"]))
    ticks = {"".join(each.itertext()): float(each.get("x")) for each in root.iter("text")}
    scale = (ticks["4k"] - ticks["0"]) / 4000

    def ends(path):
        values = [float(each) for each in re.findall(r"-?[\d.]+", path.get("d"))][::2]
        return tuple((each - ticks["0"]) / scale for each in (min(values), max(values)))

    bars = [ends(each) for each in root.iter("path") if "#0b6fb3" in each.get("style", "")]
    assert bars[0] == pytest.approx((0, 4000), abs=10)
    lines = [ends(each) for each in root.iter("path") if "stroke-width: 0.9" in each.get("style", "")]
    assert lines == [pytest.approx((3000, 5000), abs=10)]


def test_intervals_along_both_axes_reach_their_ends_and_few_trials_have_none():
    root = ElementTree.fromstring(inline(FIGURES["crosses"]))
    places = [
        [float(each) for each in re.findall(r"-?[\d.]+", path.get("d"))]
        for path in root.iter("path")
        if "stroke-width: 0.9" in path.get("style", "") and "clip-path" in path.attrib
    ]
    at = {"".join(each.itertext()): (float(each.get("x")), float(each.get("y"))) for each in root.iter("text")}
    assert len(places) == 2
    (left, level, right, same), (middle, low, equal, high) = places
    wide = at["4"][0] - at["2"][0]
    assert (left - at["2"][0], right - at["2"][0]) == pytest.approx((-wide / 2, wide), abs=0.5)
    tall = at["20"][1] - at["40"][1]
    assert (low - level, level - high) == pytest.approx((tall / 2, tall), abs=0.5)
    assert (level, middle) == pytest.approx((same, equal))


def test_curves_of_meters_have_their_sides_in_a_legend():
    curves = tuple(Ridge(side, at, 0, (0.0, 1.0, 2.0), (0.2, 0.9, 0.4)) for at, side in enumerate(("one", "two")))
    figure = replace(FIGURES["ratios"], marks=curves, rows=("power, 0 to 90 W",), lines=(), bands=())
    assert [each.name for each in legend_of(figure)] == ["one", "two"]
    root = ElementTree.fromstring(inline(figure))
    at = {"".join(text.itertext()): float(text.get("y")) for text in root.iter("text")}
    assert at["one"] == at["two"] > at["ratio"]


def test_what_has_no_room_for_its_label_is_in_the_legend_and_no_label_touches_another():
    marks = tuple(
        Points(f"case {at}", at, (1.0 + at / 1000,), (1.0,), labels=(f"label of {at}",), listed=False)
        for at in range(12)
    )
    root = ElementTree.fromstring(inline(replace(FIGURES["crosses"], marks=marks)))
    at = {"".join(text.itertext()): (float(text.get("x")), float(text.get("y"))) for text in root.iter("text")}
    labelled = {number for number in range(12) if f"label of {number}" in at}
    assert 0 < len(labelled) < 12
    assert {number for number in range(12) if f"case {number}" in at} == set(range(12)) - labelled
    places = [at[f"label of {number}"] for number in labelled]
    for one, (x, y) in enumerate(places):
        assert all(abs(x - other) > 40 or abs(y - up) > 8 for other, up in places[one + 1 :])
    assert all(at[f"case {number}"][1] > at["samples/J"][1] for number in set(range(12)) - labelled)


def test_sides_differ_without_colour():
    html = inline(FIGURES["stacks"])
    hatched = re.findall(r"fill: url\(#(\w+)\)", html)
    assert len(set(hatched)) == 7  # all but the first of eight kinds
    svg = inline(FIGURES["lines"])
    assert "stroke-dasharray" in svg


def test_names_are_text_and_long_ones_stand_above_their_rows():
    named = replace(FIGURES["bars"], title=HOSTILE, rows=(HOSTILE, "an exceedingly long name of a case " * 5))
    html = inline(replace(named, marks=(Bars(HOSTILE, 0, (0, 1), (1.0, 2.0)), Bars("_b", 1, (0,), (1.0,)))))
    ElementTree.fromstring(html)
    assert "<script" not in html
    assert "\x1b" not in html
    shown = [each for each in texts(html) if "script" in each]
    assert shown == ['</text><script>$x_1$ & "a"\\x1b[2J\\x2028_b'] * 2
    assert "_b" in texts(html)
    (long,) = [each for each in texts(html) if each.startswith("an exceed")]
    assert "…" in long


def test_letters_that_the_font_lacks_raise_no_warning(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        save(replace(FIGURES["bars"], rows=("行列", "二")), tmp_path / "a.png")


def test_settings_of_the_user_neither_apply_nor_change():
    import matplotlib as mpl

    before = inline(FIGURES["bars"])
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "red", "axes.grid": True}):
        assert inline(FIGURES["bars"]) == before
        assert mpl.rcParams["font.size"] == 30


def test_every_figure_of_a_page_is_drawn(page_of, rich_place, tmp_path):
    figures = page_of(rich_place).figures
    assert len(figures) > 5
    for figure in figures:
        ElementTree.fromstring(inline(figure))
        save(figure, tmp_path / f"{figure.key}.png")
