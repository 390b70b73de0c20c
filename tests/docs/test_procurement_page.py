"""docs/procurement.md: its TOML is read by the readers, and every key that they take stands on it."""

import re
from pathlib import Path

import msgspec
import pytest

from benchmarker.planning import suites
from benchmarker.procurement import reference, weights
from benchmarker.procurement.costs import Inputs
from benchmarker.procurement.costs import read as read_costs

PAGE = (Path(__file__).parents[2] / "docs/procurement.md").read_text()
BLOCKS = re.findall(r"^```toml\n(.*?)^```", PAGE, re.M | re.S)


@pytest.fixture
def block(tmp_path):
    """Writes the TOML block of a number to a file."""

    def write(number):
        path = tmp_path / f"{number}.toml"
        path.write_text(BLOCKS[number])
        return path

    return write


def keys(struct):
    return [field.name for field in msgspec.structs.fields(struct)]


def test_the_files_on_the_page_are_read(block):
    assert [each.weight for each in weights.read(block(0)).entries] == [3, 0.5]
    costs = read_costs(block(1))
    assert costs.of("baseline", "offers/a").power_W is None
    assert costs.of("contender", "offers/b").pue == 1.3
    first, second = reference.read(block(2))
    assert (first.low, first.high, first.trials) == (410, None, 6)
    assert (second.low, second.high) == pytest.approx((5.1e13 * 0.95, 5.1e13 * 1.05))
    assert len(BLOCKS) == 3


def test_every_key_stands_on_the_page():
    named = set(re.findall(r"`(\w+)`", "\n".join(line for line in PAGE.splitlines() if line.startswith("| `"))))
    for known in (keys(weights.Weight), keys(Inputs), keys(reference.Table), ["currency", "format_version"]):
        assert set(known) <= named


def test_every_suite_stands_on_the_page():
    of_tables = set(re.findall(r"lm-[a-z]+", (Path(__file__).parents[2] / "docs/tables.md").read_text()))
    of_tables = {f"{name.removesuffix('-quick')}{end}" for name in of_tables for end in ("", "-quick")}
    assert set(suites.names()) == of_tables | set(re.findall(r"^\| `((?:procurement|zoo|node)[\w-]*)`", PAGE, re.M))
