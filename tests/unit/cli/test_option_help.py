"""The help of a problem's options, and the one way in which true and false are written."""

import re

import pytest

from benchmarker.cli.options.problem import problem_names
from benchmarker.formatting import value_text
from benchmarker.hooks import parameters, registry


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
    problem = registry.load([f"problem.{name}"]).hook.make_problem()
    flags = [field.name for field in parameters.fields(problem) if field.type == "bool"]
    shown = [
        parameters.assignment(option, value) for size in problem.published for option, value in size.options.items()
    ]
    for flag in flags:
        for value in ("true", "false"):
            try:
                params = parameters.convert(problem.params, {flag: value})
            except Exception:  # noqa: BLE001 - such as one that needs another option
                continue
            shown.append(problem.title(params, "inference"))
    assert not re.search(r"True|False", " ".join(shown))
