"""The page as bytes: text stays text, nothing is fetched, and the same records give the same page."""

import gzip
import json
import re
import subprocess
import sys
from base64 import b64decode
from html.parser import HTMLParser
from importlib.resources import files
from itertools import combinations

import numpy as np
import pytest
from support.pages import figures_in
from support.records import make_record

from benchmarker.files import atomic
from benchmarker.hooks.registry import installing
from benchmarker.page.render import compressed, prose, render

NETWORK = re.compile(r"""(?:src|href|action|data|poster|srcset)\s*=\s*["']?\s*(?:https?:)?//""", re.I)
TAGS = re.compile(
    "a|body|button|code|dd|details|div|dl|dt|figcaption|figure|footer|h[123]|head|header|html|input|label|li|link|main|"
    "meta|nav|noscript|ol|p|pre|script|section|span|strong|style|summary|table|tbody|td|tfoot|th|thead|title|tr|ul"
)


class Reader(HTMLParser):
    """Elements, attributes, and the text of scripts, as a browser would see them."""

    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.scripts, self.text = set(), set(), [], []
        self.inside = None

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag == "script":
            self.scripts.append("")
        self.inside = tag

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        if self.inside == "script":
            self.scripts[-1] += data
        else:
            self.text.append(data)


@pytest.fixture(scope="module")
def rich_page(rich_place, tmp_path_factory):
    file = tmp_path_factory.mktemp("page") / "report.html"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarker", "report", str(rich_place), "-o", str(file)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert re.fullmatch(r"report: .*report\.html \(\d+(\.\d+)? KiB\)\n", done.stderr)
    assert done.stdout == ""
    return file.read_text("utf-8")


def test_names_from_records_are_text(rich_page):
    reader = Reader()
    reader.feed(rich_page)
    assert not [tag for tag in reader.tags if not TAGS.fullmatch(tag)]
    assert not {name for name in reader.attributes if name.startswith("on")}
    assert len(reader.scripts) == 2  # figures, and the page's own
    assert "<script>document.title = 'executed'</script>" in "".join(reader.text)
    assert not set("\x00\x1b\u202e\u2028\u2029") & set(rich_page)
    assert "\\x1b[31m\\u202eb" not in rich_page  # it is shown as the tables of the command line show it
    assert "a\\x1b[31m\\x202eb\\x2028c\\x00" in "".join(reader.text)


def test_figures_are_compressed_json_that_no_markup_can_end(rich_page):
    names = " ".join(mark["name"] for figure in figures_in(rich_page) for mark in figure["marks"])
    assert "GPU-<b>a\\x202e\\x1b" in names  # the script makes texts of them
    hostile = ["</script>&\u2028", 2**53 - 1]
    assert json.loads(gzip.decompress(b64decode(compressed(hostile), validate=True))) == hostile
    assert len(compressed(["kernel"] * 10_000)) < 1000


def test_nothing_is_fetched(rich_page):
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', rich_page)[1]
    assert policy.startswith("default-src 'none'; ")
    assert "connect-src" not in policy
    assert "http" not in policy
    assert not NETWORK.search(rich_page)


def test_the_same_records_give_the_same_bytes(rich_place, study_of):
    from benchmarker.page.assemble import page

    one, two = (render(page(study_of(rich_place))[0]) for _ in range(2))
    assert one == two


OF_FORMULAS = ("ratios", "density-")
"""Figures whose curves are those of formulas: p-values, densities."""


def is_number(word):
    return re.fullmatch(r"-?[\d.]+(e-?\d+)?", word) is not None


def test_what_is_drawn_is_in_the_data(rich_page):
    for figure in figures_in(rich_page):
        cells = [cell for row in figure["data"]["rows"] for cell in row]
        numbers = {cell for cell in cells if isinstance(cell, int | float)}
        numbers |= {float(word) for cell in cells if isinstance(cell, str) for word in cell.split() if is_number(word)}
        is_formula = figure["key"].startswith(OF_FORMULAS)
        marks = [mark for mark in figure["marks"] if mark["type"] != "ridge" or not is_formula]
        drawn = [value for mark in marks for name in ("x", "values", "low", "high") for value in mark.get(name, [])]
        drawn += [value for mark in marks for five in mark.get("five", []) for value in five]
        if figure["key"] == "roofs" or figure["marks"][0]["type"] in ("icicle", "timeline"):
            continue  # roofs are lines of a formula; figures of profiles list the longest alone: test_profile_figures
        assert drawn, figure["key"]
        assert {value for value in drawn if value} <= numbers, figure["key"]


def test_the_command_writes_where_it_is_told(command, place, two):
    results = place(two([1.0, 1.1], [2.0, 2.1]))
    done = command("report", str(results), "--output", "page.html", "--title", "A <title>")
    assert done.returncode == 0
    page = (results.parent / "page.html").read_text("utf-8")
    assert "<h1>A &lt;title&gt;</h1>" in page
    assert command("report", str(results)).returncode == 0
    assert (results.parent / "report.html").exists()


def test_its_content_is_printed_as_json_without_a_file(command, place, two):
    results = place(two([1.0, 1.1], [2.0, 2.1]))
    done = command("report", str(results), "--json")
    assert done.returncode == 0
    content = json.loads(done.stdout)
    assert content["cards"][0]["sentence"]
    (shown,) = [each for each in content["sections"] if each["key"] == "results"]
    table = shown["parts"][0]["table"]
    times = [row[[column["name"] for column in table["columns"]].index("step_time_median_s")] for row in table["rows"]]
    assert times == pytest.approx([1.05, 2.05])
    assert not list(results.parent.glob("*.html"))
    refused = command("report", str(results), "--json", "-o", "page.html")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "leave --output out" in refused.stderr


def test_what_cannot_be_read_is_told_and_the_page_is_written(command, place, two):
    results = place(two([1.0, 1.1], [2.0, 2.1]))
    (results / "cut.json").write_text("{")
    done = command("report", str(results), "-o", "page.html")
    assert done.returncode == 1
    assert "cannot read" in done.stderr
    page = (results.parent / "page.html").read_text("utf-8")
    assert "1 file could not be read and is not included." in page
    assert "cut.json" in page


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-o", "page.txt"], "the name of a report must end in .html or .htm"),
        (["-o", "none/page.html"], "cannot write none/page.html: No such file or directory"),
        (["-o", "folder.html"], "cannot write folder.html: Is a directory"),
        (["--by", "colour"], "--by=colour: the records have no such factor"),
        (["--baseline", "one"], "--baseline names a value of the axis"),
        (["--metric", "colour"], "no metric is named 'colour'"),
        (["empty"], "no record was read from empty"),
    ],
)
def test_mistakes_are_one_line(command, place, two, tmp_path, options, message):
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "empty").mkdir()
    results = place(two([1.0, 1.1], [2.0, 2.1]))
    done = command("report", str(results), *options)
    assert done.returncode == 2
    assert message in done.stderr.splitlines()[-1]
    assert not list(tmp_path.glob("**/*.tmp"))


@pytest.mark.parametrize("words", [["report"], ["nodes", "show", "--output=page.html"]])
def test_a_missing_library_is_named_with_the_remedy(command, place, monkeypatch, words):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.delitem(sys.modules, "benchmarker.page.render", raising=False)
    done = command(*words, str(place([make_record()])))
    assert done.returncode == 2
    assert f"a page needs the module 'jinja2'; {installing('report')}" in done.stderr


def test_a_verdict_can_fail_the_command(command, place, two):
    steps = [1.0, 1.01, 0.99, 1.02, 0.98, 1.0, 1.01, 0.99]
    results = place(two(steps, [2 * each for each in steps]))
    assert command("report", str(results), "--fail-on=slower").returncode == 1
    assert command("report", str(results), "--fail-on=faster").returncode == 0


def test_an_older_page_stays_where_a_new_one_cannot_be_made(command, place, two, tmp_path):
    (tmp_path / "page.html").write_text("old")
    atomic.write(tmp_path / "x.json", b"{")
    assert command("report", "x.json", "-o", "page.html").returncode == 2
    assert (tmp_path / "page.html").read_text() == "old"


VISIONS = {
    "normal": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}
"""What linear RGB looks like: Machado, Oliveira & Fernandes, IEEE TVCG 15 (2009), severity 1."""
XYZ = np.array([[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.072175], [0.0193339, 0.119192, 0.9503041]])
WHITE = XYZ.sum(axis=1)
STYLES = files("benchmarker.page").joinpath("page.css").read_text("utf-8")
THEMES = re.findall(r":root[^{]*\{([^}]*)\}", STYLES)[:2]
LIGHT, DARK = (dict(re.findall(r"--(\w+): (#\w{6})", theme)) for theme in THEMES)


def lab(colour, vision):
    """Return a colour in CIELAB (D65), in which a distance of about 2 is just noticeable."""
    code = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    linear = np.where(code <= 0.04045, code / 12.92, ((code + 0.055) / 1.055) ** 2.4)
    x, y, z = np.cbrt(XYZ @ np.clip(np.array(VISIONS[vision]) @ linear, 1e-3, 1) / WHITE)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def distance(pair, vision="normal"):
    one, two = (lab(colour, vision) for colour in pair)
    return np.linalg.norm(one - two)


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_kinds_of_work_are_told_apart(theme, vision):
    kinds = [theme[f"k{index}"] for index in range(9)]
    assert min(distance(pair, vision) for pair in combinations(kinds, 2)) > 15
    assert min(distance((kind, theme["paper"]), vision) for kind in kinds) > 15


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_no_kind_of_work_has_the_colour_of_a_side(theme):
    pairs = [(theme[f"k{kind}"], theme[f"s{side}"]) for kind in range(9) for side in range(3)]
    assert min(map(distance, pairs)) > 15


def contrast(one, two):
    """Return the contrast ratio of two colours. Source: WCAG 2.2, definitions of relative luminance and contrast."""

    def luminance(colour):
        code = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
        return np.where(code <= 0.04045, code / 12.92, ((code + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]

    dark, light = sorted((luminance(one), luminance(two)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_marks_and_texts_stand_out_from_what_is_behind_them(theme):
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    for behind in ("paper", "raised", "band", "mark"):
        assert min(contrast(theme[ink], theme[behind]) for ink in ("ink", "muted", "accent")) >= 4.5
    for behind in ("paper", "band"):  # bars of kinds of work have outlines of the colour `muted`
        assert min(contrast(theme[f"s{side}"], theme[behind]) for side in range(8)) >= 3


def test_options_and_dates_of_a_sentence_stay_on_one_line():
    assert prose("add --compile-all; 2026-11-27 <b>") == (
        'add <span class="whole">--compile-all</span>; <span class="whole">2026-11-27</span> &lt;b&gt;'
    )
    assert prose("`a --x=1` and `b`") == '<code>a <span class="whole">--x</span>=1</code> and <code>b</code>'
