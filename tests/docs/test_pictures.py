"""The pictures in docs/pictures: shown on pages, small, without a network, and what the tool prints."""

import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image
from rich.text import Text

DOCS = Path(__file__).parents[2] / "docs"
PICTURES = sorted((DOCS / "pictures").iterdir())
TERMINAL = DOCS / "pictures" / "terminal.svg"
README = DOCS.with_name("README.md").read_text()
ALT = {Path(source).name: text for source, text in re.findall(r'<img src="([^"]+)"[^>]* alt="([^"]+)"', README)}
NUMBER = r"\d+(?:\.\d+)?"


@pytest.fixture(scope="module")
def script():
    pytest.importorskip("playwright", reason="playwright is not installed")
    return runpy.run_path(str(DOCS / "pictures.py"))


@pytest.fixture(scope="module")
def place(script, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    script["unpacked"](script["BUNDLE"], folder)
    return folder


def squeezed(text):
    return re.sub(r"\s", "", text)


def texts(svg):
    """The texts of an SVG, without white space: a line of a terminal is several of them."""
    found = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    return squeezed("".join("".join(each.itertext()) for each in found))


def test_the_readme_shows_each_picture_and_says_what_is_on_it():
    assert {path.name for path in PICTURES} == {*re.findall(r'docs/pictures/([\w.-]+)"', README)}
    assert {*ALT} == {"report-light.png", "terminal.svg"}
    assert all(len(text) > 80 for text in ALT.values())


def test_pictures_are_small_and_refer_to_nothing():
    assert sum(path.stat().st_size for path in PICTURES) < 500_000
    for path in PICTURES:
        if path.suffix == ".png":
            assert path.stat().st_size < 150_000
            with Image.open(path) as image:
                assert (image.format, image.mode, image.width, image.text) == ("PNG", "P", 1440, {})
    addresses = re.findall(r"\w+://[^\"]*|url\((?!#)|@import|href", TERMINAL.read_text())
    assert addresses == ["http://www.w3.org/2000/svg"]


def test_the_terminal_has_what_the_tool_prints(script, place):
    session = [(command, script["printed"](command, place)) for command in script["COMMANDS"]]
    shown = "".join(f"$ benchmarker {command}{Text.from_ansi(text).plain}" for command, text in session)
    assert texts(TERMINAL.read_text()) == squeezed(shown)
    assert texts(script["terminal"](session)) == squeezed(shown)
    assert "lm_head" in shown


def test_the_numbers_said_of_the_terminal_are_on_it():
    shown = " ".join(ElementTree.fromstring(TERMINAL.read_text()).itertext()).replace("\xa0", " ")
    numbers = re.findall(NUMBER, ALT["terminal.svg"])
    assert len(numbers) == 6
    assert {*numbers} <= {*re.findall(NUMBER, shown)}
    lm_head = re.search(rf"lm_head +forward +({NUMBER}) ms .*?({NUMBER}) ms", shown)
    said = re.search(rf"PyTorch takes ({NUMBER}) ms for `lm_head`, JAX ({NUMBER}) ms", README)
    assert [f"{float(each):.1f}" for each in lm_head.groups()] == [*said.groups()]


@pytest.mark.slow
def test_the_script_makes_them_anew(script, place, tmp_path):
    if shutil.which("chromium") is None:
        pytest.skip("chromium is not installed")
    subprocess.run([sys.executable, DOCS / "pictures.py", script["BUNDLE"], tmp_path / "made"], check=True)
    made = {path.name: path for path in (tmp_path / "made").iterdir()}
    assert {*made} == {path.name for path in PICTURES}
    assert texts(made["terminal.svg"].read_text()) == texts(TERMINAL.read_text())
    grounds = []
    for name in ("report-light.png", "report-dark.png"):
        with Image.open(made[name]) as image, Image.open(DOCS / "pictures" / name) as kept:
            assert image.width == kept.width
            assert abs(image.height - kept.height) < 0.1 * kept.height
            assert len(image.convert("RGB").getcolors(256)) > 50
            grounds.append(image.convert("L").getpixel((0, 0)))
    assert grounds[0] > 200 > 60 > grounds[1]
    content = script["printed"]("report gpt2 --by=framework --json", place)
    (said,) = re.findall(r"“(.+)”", ALT["report-light.png"])
    assert said in content
