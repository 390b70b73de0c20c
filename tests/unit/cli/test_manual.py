"""The manual page has every command and option, and is well formed."""

import re
import shutil
import subprocess

import pytest

from benchmarker.cli.commands import LINES
from benchmarker.cli.manual import manual

MACROS = {*("TH", "SH", "SS", "PP", "TP", "RS", "RE"), *("nf", "fi", "br", "nh", "ad")}


@pytest.fixture(scope="module")
def page():
    return manual()


def test_every_command_has_its_options_and_every_line_is_text_or_a_macro(page):
    text = page.replace("\\-", "-")
    sections = re.split(r"^\.SS ", text, flags=re.M)[1:]
    assert [re.match(r"benchmarker ([a-z -]+[a-z])", each)[1] for each in sections] == list(LINES)
    assert all("--help" in each for each in sections)
    assert set(re.findall(r"^\.(\w+)", page, re.M)) == MACROS
    assert page.isascii()
    assert "benchmarker sweep --framework=jax,torch --problem=gemm --axis m=256,512" in text


@pytest.mark.skipif(shutil.which("groff") is None, reason="needs groff")
def test_groff_renders_it_without_a_warning(page):
    done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-P-cbou"], input=page, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert "       --slo NAME=TIME[,...]" in lines
    assert [line for line in lines if len(line) > 80 and not line.startswith(" " * 9)] == []
