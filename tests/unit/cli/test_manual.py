"""The manual page has every command and option, and is well formed."""

import re
import shutil
import subprocess

import pytest

from benchmarker.cli.commands import LINES
from benchmarker.cli.manual import manual
from benchmarker.cli.options.problem import problem_names
from benchmarker.formatting import value_text
from benchmarker.hooks import parameters, registry

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


@pytest.mark.parametrize("name", problem_names())
def test_the_help_of_no_option_has_a_gap(command, name):
    done = command("run", f"--problem={name}", "--help")
    assert done.returncode == 0
    text = " ".join(done.stdout.split())
    assert not re.search(r"; ?[;,.]|, ?[;,]|: ?[;,]|\bNone\b|\bTrue\b|\bFalse\b", text)


def test_a_default_on_accelerators_stands_alone_where_that_of_a_cpu_is_derived(command):
    text = " ".join(command("run", "--problem=gpt2", "--help").stdout.split())
    assert "the capacity of the KV cache in positions; on accelerators: 1024" in text


def test_true_and_false_are_written_as_in_plan_files():
    assert [value_text(value) for value in (True, False, 1, 2.5, "fit")] == ["true", "false", "1", "2.5", "fit"]
    assert [parameters.assignment("tied_head", value) for value in (True, "true", False, "false", 1)] == [
        "--tied-head",
        "--tied-head",
        "--no-tied-head",
        "--no-tied-head",
        "--tied-head=1",
    ]


@pytest.mark.parametrize("name", problem_names())
def test_no_title_and_no_published_size_has_a_boolean_in_python(name):
    problem = registry.problem(name)
    flags = [field.name for field in parameters.fields(problem) if field.type == "bool"]
    shown = [
        parameters.assignment(option, value) for size in problem.published for option, value in size.options.items()
    ]
    for flag in flags:
        for value in ("true", "false"):
            try:
                params = parameters.convert(problem, {flag: value})
            except Exception:  # noqa: BLE001 - such as one that needs another option
                continue
            shown.append(params.title("inference"))
    assert not re.search(r"True|False", " ".join(shown))
