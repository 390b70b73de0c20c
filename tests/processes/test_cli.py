"""The command line as a user meets it."""

import json
import os
import pty
import re
import shlex
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarker.api.framework import Device, FrameworkInfo
from benchmarker.api.problem import Support
from benchmarker.cli.commands import LINES
from benchmarker.planning.cases import Ability
from benchmarker.records import ceilings

NAP = ("--framework=toy", "--problem=nap", "--power=none", "--blocks=2")


@pytest.mark.parametrize("name", [name for name in LINES if name not in ("ceilings", "card")])  # which measure
def test_every_command_can_be_tried_bare(command, name):
    done = command(*name.split())
    assert "Traceback" not in done.stderr
    assert done.returncode == 0 or (done.returncode, done.stderr.count("\n")) == (2, 1)
    if name in ("run", "sweep", "ab", "check"):
        assert done.stderr.startswith(f"benchmarker: error: no options were given; for example: benchmarker {name} --")


@pytest.mark.parametrize(
    "words",
    [
        ("run", "--framework=\x1b[31mred", "--problem=nap"),
        ("show", "\x1b]0;title\x07"),
        ("describe", "a\x9bb"),
        ("report", "no\x1bwhere"),
        ("suite", "run", "\x1b[2J"),
    ],
)
def test_no_escape_sequence_reaches_the_terminal_through_an_error(command, words):
    done = command(*words)
    assert done.returncode in (1, 2)
    assert done.stderr
    assert all(line.isprintable() for line in done.stderr.split("\n"))


def test_a_home_that_cannot_be_entered_stops_no_command(cli, monkeypatch):
    """As root everything can be entered, so the refusal of the file system is played."""

    def refused(*_):
        raise PermissionError(13, "Permission denied")

    class Refused(type(Path())):
        glob = is_dir = exists = stat = refused

    monkeypatch.setattr(ceilings, "cache", lambda: Refused("/home/someone/.cache/benchmarker/ceilings"))
    assert cli("run", *NAP).returncode == 0
    assert cli("show", "results").returncode == cli("pareto", "results").returncode == 0
    assert "report: page.html" in cli("report", "results", "-o", "page.html").stderr
    known = cli("ceilings", "--known")
    assert known.returncode == 1
    assert "Permission denied; set BENCHMARKER_CEILINGS to a folder that can be read" in known.stderr


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--trials=1000000000", "a run has at most 100,000 trials"),
        ("--timeout=1e308", "--timeout=1e308: must be at most 1e+09"),
        ("--seed=1" + "0" * 30, "--seed=1" + "0" * 30 + ": too large"),
        ("--seed=9999999999999999999", "--seed=9999999999999999999: too large"),
        ("--blocks=1" + "0" * 5000, ": too large"),
    ],
)
def test_absurd_sizes_are_refused_before_anything_is_made(cli, tmp_path, option, message):
    done = cli("run", *NAP, option)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert message in done.stderr
    assert not (tmp_path / "results").exists()


def test_a_parameter_that_is_absurd_is_refused(command, tmp_path):
    for value in ("9" * 19, "1" + "0" * 5000, "-" + "9" * 40):
        done = command("run", "--framework=numpy", "--problem=gemm", f"--m={value}")
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert "--m is too large: at most 9223372036854775807 is possible" in done.stderr
    assert not (tmp_path / "results").exists()


def test_a_name_that_is_too_long_is_one_line(cli):
    for words in (("run", *NAP, f"--results={'x' * 300}"), ("show", "x" * 300), ("report", "x" * 300)):
        done = cli(*words)
        assert (done.returncode, done.stderr.count("\n")) in ((1, 1), (2, 1)), words
        assert "File name too long" in done.stderr


def test_closed_standard_files_do_not_end_a_run(toy_folder, tmp_path):
    words = [sys.executable, "-m", "benchmarker", "run", *NAP]
    script = f"exec {shlex.join(words)} <&- >&- 2>&-"
    env = {**os.environ, "PYTHONPATH": str(toy_folder)}
    assert subprocess.run(["sh", "-c", script], cwd=tmp_path, env=env, check=False).returncode == 0
    assert len([*tmp_path.glob("results/*/2*.json")]) == 1


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="takes root that gives up its rights")
def test_folders_that_cannot_be_entered_are_one_line(toy_folder, tmp_path):
    """With umask 777, a folder that was just made can be entered only by root."""
    words = [sys.executable, "-m", "benchmarker", "run", *NAP, "--results=results"]
    script = f"umask 777; exec setpriv --bounding-set=-all --inh-caps=-all {shlex.join(words)}"
    env = {**os.environ, "PYTHONPATH": str(toy_folder)}
    done = subprocess.run(["sh", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "Permission denied" in done.stderr


def test_a_folder_that_cannot_be_read_is_told_beside_what_can(cli, tmp_path, monkeypatch):
    """As root everything can be read, so the refusal of the file system is played."""
    assert cli("run", *NAP).returncode == 0
    closed = tmp_path / "results/closed"
    closed.mkdir()
    scandir = os.scandir

    def refuse(path):
        if Path(path) == closed.relative_to(tmp_path):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    done = cli("validate", "results")
    assert (done.returncode, done.stdout) == (1, "results/closed: Permission denied\n1 valid, 1 faulty\n")
    assert cli("show", "results/closed").stderr == "benchmarker: cannot read results/closed: Permission denied\n"


def test_the_command_line_can_be_called_twice_in_one_process():
    script = """
import signal
from benchmarker.cli import main
for words in (["list", "problems"], ["no-such-command"], ["list", "problems"]):
    try:
        main(words)
    except SystemExit as end:
        print("ended with", end.code, signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    first, refused, second, rest = re.split(r"ended with \d True\n", done.stdout)
    assert "gemm" in first
    assert (first, refused, rest) == (second, "", "")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("run --problem=gemm", "Missing option '--framework'; `benchmarker run --help` shows how it is given"),
        ("run gemm --framework=numpy", "gemm is a problem; name it with --problem=gemm"),
        ("bundle pack results", "no command 'bundle pack'; did you mean bundle create?"),
        ("run --framework=toy", "Missing option '--problem'"),
        ("run --framework=toy --problem=nop", "no problem is named 'nop'; did you mean nap?"),
        ("run --framework=troch --problem=gemm", "no framework is named 'troch'; did you mean torch?"),
        ("run --framework=toy --problem=nap --results=", "no folder is named; . is the current one"),
        (
            "run --framework=toy --problem=gemm",
            "toy has no implementation of gemm; frameworks that have one: blas, jax",
        ),
        ("run --framework=, --problem=gemm", "--framework=,: no value is given"),
        ("run --framework=toy --problem=nap --ms=fast", "--ms=fast: not a number"),
        ("run --framework=toy --problem=nap --ms=-1", "--ms=-1: must be at least 0"),
        ("run --framework=toy --problem=nap --sm=1", "No such option '--sm'"),
        ("history results --axes", "No such option '--axes'; `benchmarker history --help` lists the options"),
        (
            "run --framework=toy --problem=nap --fault=odd",
            "--fault=odd: not one of none, raise, memory, ",
        ),
        ("run --framework=toy --problem=nap --blocks=0", "--blocks=0: must be at least 1"),
        ("run --framework=toy --problem=nap --mode=training", "nap in toy does not support training; its modes are"),
        ("run --framework=toy --problem=nap --precision=bf16", "does not support inference in bf16; it supports: fp64"),
        ("run --framework=toy --problem=nap --precision=fp31", "--precision=fp31: not one of fp64, "),
        ("run --framework=toy --problem=nap --device=cuda", "toy 1.0 reports no device 'cuda' here; it reports: cpu"),
        ("run --framework=toy --problem=nap --gpus=0", "--gpus=0: no such GPU (nvidia-smi finds none)"),
        ("ceilings --framework=numpy --gpus=0", "--gpus=0: no such GPU (nvidia-smi finds none)"),
        ("run --framework=toy --problem=nap --compile", "toy does not compile"),
        ("run --framework=toy --problem=nap --resume", "no unfinished run of this plan under results"),
        ("describe nop", "no problem is named 'nop'"),
        ("list gadgets", "gadgets: not one of frameworks, problems, "),
        ("show", "Missing argument 'RESULT...'"),
        ("frobnicate", "no command 'frobnicate'; `benchmarker --help` lists the commands"),
        ("check --problem=nap --framework=toy --precision=bf16", "nap in toy does not support inference in bf16"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(cli, tmp_path, args, message):
    done = cli(*shlex.split(args), env={"PATH": "/usr/bin:/bin"})
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.startswith("benchmarker: error: ")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "results").exists()


def test_run_is_what_is_done_without_a_command(cli, tmp_path):
    done = cli(*NAP, "--trials", "1", "--warmup_steps=1")
    assert done.returncode == 0, done.stderr
    assert "ms=1.0" in done.stdout
    assert len(list((tmp_path / "results").glob("*/*.json"))) == 2


def test_nothing_at_all_asks_for_help(cli):
    done = cli()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == cli("--help").stdout


def test_underscores_are_dashes(cli):
    done = cli("run", "--framework=numpy", "--problem=gemm", "--m=8", "--batch_size=3", "--blocks=1", "--json")
    assert json.loads(done.stdout)[0]["case"]["params"]["batch_size"] == 3
    done = cli("run", *NAP, "--mode=forward_backward")
    assert "nap in toy does not support forward_backward" in done.stderr


def test_help_shows_the_options_of_the_problem(cli):
    own = cli("run", "--problem=nap", "--help").stdout
    assert "--ms FLOAT" in own
    assert "milliseconds a step sleeps; default: 1.0" in " ".join(own.split())
    shown = " ".join(cli("run", "--help").stdout.split())
    assert "--problem=NAME --help shows them. Problems: attention, bert, " in shown
    assert ", lu, mlp, moe, nap, resnet, " in shown


def test_list_says_what_is_there_and_why_not(cli):
    listed = json.loads(cli("list", "frameworks", "--json").stdout)
    assert {row["name"]: row["available"] for row in listed} == {
        **dict.fromkeys(
            ("blas", "jax", "numpy", "onednn", "onnxruntime", "openvino", "program", "tensorflow", "torch", "toy"), True
        )
    }
    assert ["meter", "rapl", "framework-benchmarker", "0.1.0", "not", "queried;"] in [
        line.split()[:6] for line in cli("list").stdout.splitlines()
    ]
    assert ["workload", "nap.toy", "toy", "1.0", "yes"] in [line.split() for line in cli("list").stdout.splitlines()]


def test_a_full_disk_behind_standard_output_is_one_line(cli, toy_folder):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarker", "list", "--json"],
            env={**os.environ, "PYTHONPATH": str(toy_folder)},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 2
    assert done.stderr == "benchmarker: error: cannot write the output: No space left on device\n"


def test_describe_tells_all_of_a_problem(cli):
    described = json.loads(cli("describe", "nap", "--json").stdout)
    assert described["parameters"][0]["option"] == "--ms"
    assert described["scopes"] == ["nap"]
    assert described["cost"] == "flops = 1000"
    (row,) = described["frameworks"]
    assert (row["framework"], row["mode"], row["precisions"]) == ("toy", "inference", ["fp64", "fp32"])
    text = cli("describe", "nap").stdout
    assert "--fault" in text
    assert "fp64 fp32" in text


def test_describe_takes_the_options_of_a_case_before_and_after_the_problem(cli):
    assert json.loads(cli("describe", "nap", "--json").stdout)["case"] is None
    for words in (("nap", "--ms=2", "--precision=fp64"), ("--ms=2", "--precision", "fp64", "nap")):
        done = cli("describe", *words, "--json")
        assert done.returncode == 0, done.stderr
        case = json.loads(done.stdout)["case"]
        assert (case["needs"]["flops"], case["needs"]["bytes"], case["needs"]["params"]["ms"]) == (1000, 8, 2.0)
        assert (case["needs"]["precision"], case["frameworks"]) == ("fp64", {"toy": None})
        (device,) = case["devices"]
        assert device["fits"] is True
    text = cli("describe", "nap", "--mode=inference").stdout
    assert "a step      1 kFLOP, at least 8 B moved, 125 FLOP/byte; 2 samples" in text
    assert "--fault" not in text
    refused = cli("describe", "nap", "--mode=training")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "toy does not support training; its modes are: inference" in refused.stderr
    assert "--ms=-1: must be at least 0" in cli("describe", "nap", "--ms=-1").stderr
    help_text = cli("describe", "nap", "--help").stdout
    assert "--fault" in help_text
    assert "NAME --help shows them" in cli("describe", "--help").stdout


@pytest.fixture
def known(monkeypatch):
    """A framework of which it is known what it supports, so that none is started."""
    info = FrameworkInfo("jax", "1.0", (Device("cpu", "a CPU", ("fp32",), count=None),), "always", {})
    able = {"jax": Ability(info, Support({"inference": ("fp32",), "training": ("fp32",)}))}
    monkeypatch.setattr("benchmarker.cli.commands.describe.abilities", lambda *_: able)


def test_describe_says_what_training_holds_and_whether_it_fits(command, known):
    text = command("describe", "llama", "--size=llama-3.1-70b", "--mode=training").stdout
    assert "parameters  70,553,706,496" in text
    assert "memory      at least 1.027 TiB: weights 262.8 GiB, gradients 262.8 GiB, optimizer state 525.7 GiB" in text
    assert "it does NOT fit" in text
    assert "left out: activations kept for the backward pass" in text


def test_describe_puts_published_figures_beside_those_of_the_formula(command, known):
    lines = command("describe", "vit").stdout.splitlines()
    heading = next(number for number, line in enumerate(lines) if line.startswith("published sizes: "))
    assert re.split("  +", lines[heading + 1]) == ["options", "parameters", "published", "FLOPs", "published", "source"]
    base = re.split("  +", lines[heading + 2])
    assert base[:3] == ["--size=b16", "86,567,656", "86,567,656"]
    assert base[3:5] == ["35.13 GFLOP", "35.13 GFLOP"]
    assert base[5].startswith("torchvision's documentation")


def test_env_describes_the_machine(cli):
    found = json.loads(cli("env", "--json").stdout)
    assert found["machine"]["cpu"]["usable_cores"] == len(os.sched_getaffinity(0))
    assert {"processor", "model"} <= {line.partition(" ")[0] for line in cli("env").stdout.splitlines()}


def test_check_finds_what_is_right_and_what_is_wrong(cli):
    done = cli("check", "--problem=nap", "--json")
    assert done.returncode == 0
    assert [finding["ok"] for finding in json.loads(done.stdout)["checks"]] == [True]
    done = cli("check", "--problem=nap", "--fault=wrong")
    assert done.returncode == 1
    assert "WRONG" in done.stdout
    done = cli("check", "--problem=nap", "--fault=shape", "--json")
    assert done.returncode == 1
    (finding,) = json.loads(done.stdout)["checks"]
    assert "RuntimeError" in finding["note"]


def test_show_prints_one_record_or_a_table(cli, tmp_path):
    cli("run", *NAP, "--trials=2")
    one, two = sorted(path for path in (tmp_path / "results").glob("*/2*.json"))
    alone = cli("show", str(one))
    assert alone.returncode == 0
    for text in (
        "nap ms=1.0 fault=none after=0 fp32 in toy on cpu",
        "step_time_median_s",
        "nap has no tokens",
        "repeat with",
    ):
        assert text in alone.stdout
    shared, headings, row = cli("show", "results").stdout.splitlines()
    assert shared == "nap ms=1.0 fault=none after=0 fp32 in toy on cpu, blocks=2"
    assert re.split("  +", headings)[:3] == ["step time", "range", "samples/s"]
    shown = re.fullmatch(r" *([\d.]+) ms  ([\d.]+)–([\d.]+) ms .* 2", row)
    records = json.loads(cli("show", str(one), str(two), "--json").stdout)
    times_ms = [1e3 * each["metrics"]["step_time_median_s"]["value"] for each in records]
    expected = [statistics.median(times_ms), min(times_ms), max(times_ms)]
    assert [float(each) for each in shown.groups()] == pytest.approx(expected, rel=0.01)
    shared, headings, *rows = cli("show", "results", "--trials").stdout.splitlines()
    assert headings.split()[0] == "trial"
    assert [line.split()[0] for line in rows] == ["0", "1"]
    assert len(records) == 2


def test_a_damaged_file_is_named_and_the_others_are_shown(cli, tmp_path):
    cli("run", *NAP)
    (folder,) = (tmp_path / "results").iterdir()
    (folder / "cut.json").write_text("{")
    done = cli("show", "results")
    assert done.returncode == 1
    assert "cut.json: Input data was truncated" in done.stderr
    assert "toy" in done.stdout
    done = cli("validate", "results", "--json")
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert found["valid"] == 1
    assert found["faults"][0]["path"].endswith("cut.json")


def test_a_hostile_name_cannot_steer_the_terminal(cli, tmp_path):
    cli("run", *NAP)
    (path,) = (tmp_path / "results").glob("*/2*.json")
    record = json.loads(path.read_text())
    record["machine"]["host"] = "\x1b[31mred\r[bold]x[/bold]\u202e"
    path.write_text(json.dumps(record))
    shown = cli("show", str(path)).stdout
    assert r"\x1b[31mred\x0d[bold]x[/bold]" in shown
    assert "\x1b" not in shown
    assert "\u202e" not in shown


def test_no_colour_codes_in_a_pipe(cli):
    done = cli("run", *NAP)
    assert "\x1b" not in done.stdout + done.stderr
    assert "toy nap, trial 0: done in" in done.stderr


def test_a_closed_pipe_is_no_error(toy_folder, tmp_path):
    done = subprocess.run(
        f"{sys.executable} -m benchmarker list | head -1", shell=True, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout.startswith("kind")
    assert done.stderr == ""


def test_a_terminal_sees_a_live_line(toy_folder, tmp_path):
    parent, child = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarker", "run", *NAP, "--ms=30"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(toy_folder), "TERM": "xterm", "COLUMNS": "100"},
        stdout=subprocess.PIPE,
        stderr=child,
    ) as process:
        os.close(child)
        seen = b""
        while True:
            try:
                chunk = os.read(parent, 4096)
            except OSError:  # the terminal is gone with the process
                break
            if not chunk:
                break
            seen += chunk
        process.communicate()
    os.close(parent)
    assert process.returncode == 0
    assert b"toy nap, trial 0: block 1 of " in seen
    assert b"\x1b[2K" in seen  # the line is drawn over
