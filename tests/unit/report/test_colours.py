"""Colours of kinds of work are told apart from each other, and from those of sides, in both themes and by everybody."""

import re
from importlib.resources import files
from itertools import combinations

import numpy as np
import pytest

VISIONS = {
    "normal": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}
"""What linear RGB looks like: Machado, Oliveira & Fernandes, IEEE TVCG 15 (2009), severity 1."""
XYZ = np.array([[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.072175], [0.0193339, 0.119192, 0.9503041]])
WHITE = XYZ.sum(axis=1)
STYLES = files("benchmarker.report").joinpath("page.css").read_text("utf-8")
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
