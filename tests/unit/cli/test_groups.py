"""Groups of commands: their names, their help, and what is said to a near miss."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from benchmarker.cli import commands, group
from benchmarker.cli.commands import LINES, MEANT, MODULES, SECTIONS
from benchmarker.cli.groups import Group, module_of
from benchmarker.hooks import registry

FRAMEWORKS = [plugin.name for plugin in registry.registered("framework").values()]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("comapre", "no command 'comapre'; did you mean compare?"),
        ("Compare", "no command 'Compare'; did you mean compare?"),
        ("kernal", "no command 'kernal'; did you mean profile kernels?"),
        ("bundel", "no command 'bundel'; did you mean bundle?"),
        ("diff", "no command 'diff'; did you mean compare?"),
        ("Pack", "no command 'Pack'; did you mean bundle create?"),
        ("imported", "no command 'imported'; did you mean profile import?"),
        ("init", "no command 'init'; did you mean new?"),
        ("frobnicate", "no command 'frobnicate'; `benchmarker --help` lists the commands"),
        ("suite lst", "no command 'suite lst'; did you mean suite list?"),
        ("suite frobnicate", "no command 'suite frobnicate'; `benchmarker suite --help` lists the commands"),
        ("plan rn", "no command 'plan rn'; did you mean plan run?"),
        ("plan", "no command was given; there are: plan show, plan run"),
    ],
)
def test_a_near_miss_gets_a_suggestion_and_status_2(command, words, message):
    done = command(*words.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"benchmarker: error: {message}\n"


def test_words_that_mean_a_command_are_no_commands_and_name_one():
    assert set(MEANT.values()) <= set(LINES)
    assert not set(MEANT) & {name.partition(" ")[0] for name in LINES}


def test_help_has_one_line_of_at_most_80_columns_for_each_command_by_section(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = command("--help").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    at = 0
    for title, section in SECTIONS.items():
        at = lines.index(f"{title}:", at)
        shown = [line.split(maxsplit=len(name.split())) for line, name in zip(lines[at + 1 :], section, strict=False)]
        assert [*map(" ".join, shown)] == [f"{name} {line}" for name, line in section.items()]
    assert lines[at + len(section) + 1 :] == []


def test_help_of_a_group_has_its_commands_alone(command):
    done = command("suite", "--help").stdout
    commands_shown = [line.split()[0] for line in done.partition("Commands:\n")[2].splitlines()]
    assert commands_shown == [name.split()[1] for name in LINES if name.startswith("suite ")]


def test_each_module_has_commands_and_each_command_has_a_module():
    folder = Path(commands.__file__).parent
    modules = {path for path in folder.rglob("*.py") if path.name != "__init__.py"}
    assert {folder.joinpath(*module_of(name).split(".")).with_suffix(".py") for name in LINES} == modules
    assert set(MODULES) <= set(LINES)


def test_each_command_is_found_by_its_name():
    group = Group("benchmarker")
    for name in LINES:
        *of, word = name.split()
        parent = group.get_command(click.Context(group), of[0]) if of else group
        assert isinstance(parent, click.Group)
        found = parent.get_command(click.Context(parent), word)
        assert found is not None
        assert found.name == word


def test_help_imports_no_command():
    code = (
        "import sys\nfrom benchmarker.cli import main\n"
        "try:\n main(sys.argv[1:])\nexcept SystemExit as end:\n assert not end.code, end.code\n"
        "found = [name for name in sys.modules if name.startswith('benchmarker.cli.commands.')]\n"
        "assert not found and 'pandas' not in sys.modules, found\n"
    )
    for words in (["--help"], ["suite", "--help"]):
        done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "incomplete", "expected"),
    [
        ([], "sui", ["suite"]),
        ([], "ker", []),
        (["suite"], "", [name.split()[1] for name in LINES if name.startswith("suite ")]),
        (["run"], "--preheat-", ["--preheat-max"]),
        ([], "--preheat-", ["--preheat-max"]),
        (["--framework=jax"], "--preheat-", ["--preheat-max"]),
        (["run", "--problem=gpt2"], "--seq", ["--seq-len"]),
        (["run", "--problem=gtp2"], "--warm", ["--warmup-steps"]),
        (["run", "--precision"], "bf", ["bf16"]),
        (["run", "--problem"], "gp", ["gpt2"]),
        (["bundle", "create"], "--out", ["--output"]),
        (["describe"], "gem", ["gemm"]),
        (["run", "--framework"], "to", ["torch"]),
        (["run", "--framework"], "torch,", [f"torch,{name}" for name in FRAMEWORKS if name != "torch"]),
        (["--framework"], "ja", ["jax"]),
        (["ceilings", "--framework=numpy", "--precision=fp32", "--framework"], "nu", ["numpy"]),
        (["suite", "run"], "zoo", ["zoo-quick"]),
        (["suite", "check", "--suite"], "lm-w", ["lm-warmup", "lm-warmup-quick"]),
        (["submit", "--launcher"], "slu", ["slurm"]),
        (["plan", "run"], "tests/unit/", ["tests/unit/"]),
        (["plan", "run"], "benchmarker/planning/suites/zoo", ["benchmarker/planning/suites/zoo-quick.toml"]),
    ],
)
def test_commands_and_options_are_completed(words, incomplete, expected):
    completer = ShellComplete(group, {}, "benchmarker", "_BENCHMARKER_COMPLETE")
    assert [found.value for found in completer.get_completions(words, incomplete)] == expected


def test_completing_names_imports_no_framework():
    code = (
        "import sys\nfrom benchmarker.cli import main\n"
        "try:\n main()\nexcept SystemExit as end:\n assert not end.code, end.code\n"
        "found = {'jax', 'torch', 'pandas'} & set(sys.modules)\nassert not found, found\n"
    )
    for words, expected in (("suite run zoo", "plain,zoo-quick\n"), ("run --problem=gpt", "plain,gpt2\n")):
        asked = {"_BENCHMARKER_COMPLETE": "bash_complete", "COMP_WORDS": f"benchmarker {words}"}
        env = {**os.environ, **asked, "COMP_CWORD": str(len(words.split()))}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
        assert (done.returncode, done.stdout) == (0, expected), done.stderr


def test_the_documented_variable_makes_the_script_and_the_completions_of_a_shell(command, monkeypatch):
    page = (Path(__file__).parents[3] / "README.md").read_text()
    assert 'eval "$(_BENCHMARKER_COMPLETE=bash_source benchmarker)"' in page
    monkeypatch.setenv("_BENCHMARKER_COMPLETE", "zsh_source")
    assert "compdef _benchmarker_completion benchmarker" in command().stdout
    monkeypatch.setenv("_BENCHMARKER_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "benchmarker suite r")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert command().stdout == "plain,run\n"
