"""What a terminal shows fits it, and is coloured only there."""

import io
import json
import os
import pty
import re
import shlex
import subprocess
import sys

import msgspec
import pandas
import pytest
from rich.cells import cell_len
from support import profiles, serving, sysfs
from support.launched import allocation
from support.records import QUIET, make_ceiling, make_energy, make_record

from benchmarker.cli.commands import LINES
from benchmarker.files import atomic
from benchmarker.hooks import registry
from benchmarker.hooks.parameters import resolve
from benchmarker.records import ceilings
from benchmarker.records.load import RequestFailure, Slo
from benchmarker.records.record import TokenTimes

pytestmark = pytest.mark.slow
CASES = [
    ("gemm", "inference", {"m": 16, "n": 4096, "k": 4096}),
    ("gemm", "forward_backward", {"batch_size": 64, "transpose_b": True}),
    ("attention", "inference", {"batch_size": 16, "seq_len": 16384, "impl": "einsum", "causal": False}),
    ("gpt2", "training", {"size": "2.7b", "batch_size": 8, "seq_len": 1024}),
    ("gpt2", "inference", {"n_layer": 2, "d_model": 256, "n_head": 4, "vocab_size": 8192}),
    ("stream", "inference", {"op": "copy"}),
]
FRAMEWORKS = ("jax", "torch")
PRECISIONS = ("fp32", "mixed_bf16")
SIZES = (80, 160)
COLOURED = "compare old new"
COMMANDS = """
show old
show old new
show old --trials
show old --metric=samples_per_s,flop_per_s,compile_s
show text
show blocks
show blocks --trials
compare old new
compare old --by=framework
compare old --by=framework --verbose
compare old --by=framework --speedup
compare old --by=precision
compare one
history old new
compare one --verbose --classical
table old
table old --rows=problem,mode,d_model,impl --columns=framework,precision --difference=fp32
table old --rows=size --columns=precision,framework --where=problem=gpt2 --where=mode=training --difference=jax
suite score old new
suite score old --by=framework --contender=torch --verbose
suite accept old --reference=bounds.toml
suite list
suite run procurement-quick --framework=numpy --dry-run --results=none
roofline old
predict --problem=llama --phase=generate --batch-size=64 --precision=bf16 --device="NVIDIA H200" --roof=vendor --verbose
pareto old
pareto old new
plan show plan.toml
describe gemm
describe gpt2
describe llama --size=llama-3.1-8b --batch-size=4 --seq-len=2048 --mode=training
list
env
power --power=rapl,hwmon
profile kernels torch.json
profile kernels torch.json --by=device
profile kernels jax.pb
profile kernels torch.json jax.pb
profile ops torch.json
profile ops jax.pb
profile ops torch.json --by=shape
profile kernels torch.json --by=shape
profile kernels torch.json --by=launch
profile kernels torch.json --format=text
profile ops jax.pb --format=text
profile gemms torch.json
profile gemms torch.json --device="NVIDIA A100-SXM4-80GB" --roof=vendor
profile gemms jax.pb
profile idle torch.json
profile idle torch.json --by=step
profile idle torch.json --by=stream
profile path torch.json
profile memory memory.json
profile scopes torch.json
profile scopes jax.pb
profile scopes torch.json jax.pb
profile ranks ranks
show one-rate
show search
query old "SELECT * FROM trials"
profile sql torch.json "SELECT * FROM events"
profile sql torch.json jax.pb "SELECT result, name, count(*) AS number, sum(busy_ns) AS busy FROM events GROUP BY ALL"
profile sql torch.json "SELECT repeat('long', 99) AS a, name AS b, 1 AS c, repeat('x', 99) AS d FROM events"
""".strip().splitlines()
ELSEWHERE = {
    **dict.fromkeys(("run", "sweep", "plan run", "check"), "tables of `show`, after minutes of measuring"),
    **dict.fromkeys(("ab", "serve-load"), "tables of `compare` and of `show` with a load, after measuring"),
    **dict.fromkeys(("submit", "jobs", "nodes run", "nodes show", "scaling"), "need jobs, nodes or devices"),
    **dict.fromkeys(("new", "report", "bundle create", "bundle verify", "bundle unpack"), "print no table"),
    **dict.fromkeys(("profile export", "profile import", "archive add"), "print no table"),
    **dict.fromkeys(("validate", "suite check"), "name a file and its fault in a line each, for grep"),
    "ceilings": "the table of `roofline`, after measuring",
    "telemetry": "needs readings of a meter",
    "ladder": "another test has the width of its tables, of made records",
    "card": "another test has the width of its tables, of made records",
    "bisect": "prints no table, after measuring",
    "fit": "needs cases of several sizes",
}
"""Commands that are not run here, and why; their help is read."""
UNLIMITED = 1000
"""A width at which every table fits."""
PLAIN = ("", "NO_COLOR=1", "TERM=dumb")
DRIVER = """
import fcntl, json, os, shlex, struct, sys, termios
from benchmarker.cli import main
for columns, variable, words in json.loads(sys.argv[1]):
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    os.environ.update(TERM="xterm", NO_COLOR="")
    os.environ.update([variable.split("=")] if variable else [])
    print("\\0", flush=True)
    try:
        main(shlex.split(words))
    except SystemExit as end:
        print("\\0", end.code, sep="", flush=True)
"""
"""Runs commands at several sizes of the terminal; a line with a NUL begins each, and one with its status ends it."""


def suite(result, pace):
    """Six rounds of every case in each framework and precision, with energies and one failure."""
    number = 0
    for problem, mode, params in CASES:
        full = resolve(registry.problem(problem), params, "cpu")
        for framework in FRAMEWORKS:
            for precision in PRECISIONS:
                for trial in range(6):
                    record = make_record(
                        pace * (1 + number % 7 / 10 + trial / 100),
                        run=result,
                        trial=trial,
                        case={"framework": framework, "precision": precision, "mode": mode, "params": {}},
                        design={"case_number": number},
                        energy=make_energy(100.0 + trial),
                        interference=msgspec.structs.replace(QUIET, other_busy_cores=float(trial == 3)),
                    )
                    case = msgspec.structs.replace(record.case, problem=problem, params=full)
                    yield msgspec.structs.replace(record, case=case)
                number += 1


def loads():
    """A load at one rate, and a search, each with failures and doubts."""
    slo = Slo(ttft_s=0.5, tpot_s=0.05, e2e_s=20.0)
    refused = RequestFailure(
        "status", "HTTP 429: too many requests in the queue of this server, please try again later"
    )
    outcomes = [
        serving.outcome(float(at), *([0.3 + at / 150, 0.9, 1.0] if at % 9 else []), failure=None if at % 9 else refused)
        for at in range(90)
    ]
    steps = [serving.step(outcomes[at:], rate_per_s=rate) for at, rate in ((0, 20.0), (45, 4.4721359), (80, 1.0))]
    return {
        "one-rate": serving.load(steps[:1], slo=slo, endpoint="http://localhost:8000/v1"),
        "search": serving.load(steps, slo=slo, searched=True),
    }


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with two results of a mixed suite, a comparison of two configurations, ceilings and traces."""
    folder = tmp_path_factory.mktemp("place")
    results = {"old": list(suite("old", 1.0)), "new": list(suite("new", 1.3))}
    results["one"] = [each for each in results["old"] if each.case.params.get("impl") == "einsum"]
    results["one"] = [
        each for each in results["one"] if each.case.precision == "fp32" and each.case.framework != "numpy"
    ]
    results["blocks"] = [make_record([0.01 * (1 + at % 7 / 100) for at in range(99)] + [0.1])]
    times = {"token_times": TokenTimes([1_234_567] * 9, [[123_456] * 31] * 9)}
    results["text"] = [msgspec.structs.replace(each, **times) for each in results["old"]]
    for result, records in results.items():
        (folder / result).mkdir()
        for record in records:
            atomic.write(folder / result / f"{record.trial_id}.json", atomic.encode(record))
        known = [make_ceiling(1e12), make_ceiling(1e10, "memory"), make_ceiling(1e12, precision="bf16")]
        ceilings.write(folder / result / "ceilings.json", known)
    (folder / "torch.json").write_bytes(profiles.torch_json())
    (folder / "ranks").mkdir()
    for rank in range(2):
        (folder / "ranks" / f"{rank}.json").write_bytes(profiles.torch_json())
    allocated = [allocation(1_763_000_000_000_004, 1 << 30, 1 << 30)]
    (folder / "memory.json").write_bytes(profiles.torch_json(profiles.torch_events() + allocated))
    for name, found in loads().items():
        (folder / name).mkdir()
        (folder / name / "load.json").write_bytes(msgspec.json.encode(found))
    (folder / "jax.pb").write_bytes(profiles.small_cpu_space())
    (folder / "plan.toml").write_text(
        'problem = "attention"\nframework = "numpy"\n[axes]\nseq_len = [128, 16384]\nimpl = ["einsum", "matmul"]\n'
    )
    (folder / "bounds.toml").write_text(
        'format_version = 1\n[[case]]\nmatch = { problem = "gpt2" }\nmetric = "samples_per_s"\nmin = 0.5\ntrials = 6\n'
    )
    sysfs.powercap(folder / "sys", {"intel-rapl:0": "package-0", "intel-rapl:1": "psys"})
    return folder


@pytest.fixture(scope="module")
def shown(place):
    """What each command prints on terminals of each size, and its status."""
    asked = [(columns, "", words) for columns in (*SIZES, UNLIMITED) for words in COMMANDS]
    asked += [(80, "", f"{name} --help") for name in LINES]
    asked += [(100, variable, COLOURED) for variable in PLAIN]
    parent, child = pty.openpty()
    env = {**os.environ, "BENCHMARKER_SYSFS": str(place / "sys"), ceilings.VARIABLE: str(place / "ceilings")}
    env.pop("COLUMNS", None)
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, json.dumps(asked)], cwd=place, env=env, stdout=child, stderr=subprocess.PIPE
    ) as process:
        os.close(child)
        seen = b""
        try:
            while chunk := os.read(parent, 65536):
                seen += chunk
        except OSError:  # the terminal is gone with the process
            pass
        errors = process.stderr.read().decode()
    os.close(parent)
    parts = seen.decode().replace("\r\n", "\n").split("\0")[1:]
    assert len(parts) == 2 * len(asked), errors
    printed = zip(parts[::2], map(int, parts[1::2]), strict=True)
    return {
        key: (text.removeprefix("\n"), status) for key, (text, status) in zip(map(tuple, asked), printed, strict=True)
    }


def plain(text):
    return re.sub(r"\x1b\[[\d;]*m", "", text)


@pytest.mark.parametrize("words", COMMANDS)
@pytest.mark.parametrize("columns", SIZES)
def test_no_line_is_longer_than_the_terminal(shown, columns, words):
    text, status = shown[columns, "", words]
    lines = plain(text).splitlines()
    assert status in (0, 1)
    assert len(lines) > 2
    assert [line for line in lines if cell_len(line) > columns] == []


@pytest.mark.parametrize("words", COMMANDS)
def test_no_word_is_broken(shown, words):
    """A word that only a narrow terminal shows is a part of one, unless it was shortened or says what was left out."""
    narrow, wide = (set(plain(shown[columns, "", words][0]).split()) for columns in (80, UNLIMITED))
    parts = {word for word in narrow - wide if len(word) > 2 and any(word in whole for whole in wide)}
    assert {word for word in parts if "…" not in word and not word.isnumeric() and word != "more"} == set()


@pytest.mark.parametrize("name", LINES)
def test_no_line_of_help_is_longer_than_the_terminal(shown, name):
    text, status = shown[80, "", f"{name} --help"]
    assert status == 0
    assert [line for line in plain(text).splitlines() if cell_len(line) > 80] == []


def test_help_writes_ranges_alike_and_each_command_on_its_own_line(shown):
    helps = {name: plain(shown[80, "", f"{name} --help"][0]) for name in LINES}
    assert [
        name for name, text in helps.items() if re.search(r"x[<>]|INTEGER|DIRECTORY|\S {2,}benchmarker ", text)
    ] == []
    assert "--max-rounds N " in helps["ab"]
    assert "; ≥ 2]" in " ".join(helps["ab"].split())


def test_every_command_is_run_or_has_a_reason():
    run = {name for name in LINES for words in COMMANDS if f"{words} ".startswith(f"{name} ")}
    assert run | ELSEWHERE.keys() == LINES.keys()


def test_what_does_not_fit_is_left_out_and_said_in_one_line(shown):
    narrow, wide = (plain(shown[columns, "", "show old"][0]) for columns in (80, 160))
    assert re.search(r"^--wide shows more columns: measured/predicted, predicted, samples/s, ", narrow, re.M)
    assert "samples/s" in wide.splitlines()[1]
    assert "--wide shows more columns: distribution" in plain(shown[80, "", "list"][0])
    assert "--wide" not in shown[160, "", "compare old --by=framework --speedup"][0]


def test_a_pipe_gets_all_columns_on_whole_lines_without_colours(command, place, monkeypatch):
    monkeypatch.chdir(place)
    done = command("show", "old")
    headings = re.split("  +", done.stdout.splitlines()[1])
    assert headings[:4] == ["case", "framework", "step time", "95% interval"]
    assert {"samples/s", "compile", "mean power", "host peak rss", "trials", "disturbed"} <= set(headings)
    assert len(done.stdout.splitlines()) == 2 + len(CASES) * len(FRAMEWORKS) * len(PRECISIONS)
    assert max(map(len, done.stdout.splitlines())) > 160
    assert "\x1b" not in command("compare", "old", "--by=framework").stdout


def test_every_case_of_a_mixed_suite_has_its_own_name(command, place, monkeypatch):
    monkeypatch.chdir(place)
    rows = [re.split("  +", line)[:2] for line in command("show", "old").stdout.splitlines()[2:]]
    assert len(set(map(tuple, rows))) == len(rows) == len(CASES) * len(FRAMEWORKS) * len(PRECISIONS)
    assert ["GEMM 16×4096×4096 mixed_bf16", "jax"] in rows
    assert ["GPT-2 2.7b training, B=8 T=1024 mixed_bf16", "torch"] in rows


WITH_UNIT = re.compile(
    r"[-+]?\d[\d.,]*(e[-+]?\d+)? ?(%|x|[kMGTmµn]?(s|B|W|J|FLOP|FLOP/s|B/s)|[KMGT]iB|°C|[±[].*)( .*)?"
)
OF_FACTS = ("env",)
"""Commands whose table has a name and a value of any kind in each row."""


@pytest.mark.parametrize("words", [words for words in COMMANDS if not words.startswith(OF_FACTS)])
def test_no_column_of_numbers_is_text_in_csv(command, place, monkeypatch, words):
    monkeypatch.chdir(place)
    options = [option for option in shlex.split(words) if not option.startswith("--format=")]
    done = command(*options, "--csv")
    if not done.stdout:
        assert "No such option '--csv'" in done.stderr
        return
    for name, values in pandas.read_csv(io.StringIO(done.stdout)).items():
        texts = [value for value in values if isinstance(value, str)]
        assert [text for text in texts if WITH_UNIT.fullmatch(text)] == [], name


def test_the_first_rows_are_shown_and_the_others_counted(command, place, monkeypatch):
    monkeypatch.chdir(place)
    whole, first = (command("show", "old", f"--top={top}").stdout.splitlines() for top in (0, 3))
    assert len(first[1].split()) == len(whole[1].split())
    assert first[-1] == f"and {len(CASES) * len(FRAMEWORKS) * len(PRECISIONS) - 3} more; --top=0 shows all"
    done = command("pareto", "old", "--top=2", "--csv")
    assert len(done.stdout.splitlines()) == 3
    assert "more; --top=0 shows all" in done.stderr


@pytest.mark.parametrize("variable", PLAIN)
def test_verdicts_have_colours_unless_they_are_unwanted(shown, variable):
    text, _ = shown[100, variable, COLOURED]
    head = "over 24 cases (geometric mean): new takes 30."
    assert text.startswith(head if variable else f"\x1b[31m{head}")
    assert ("\x1b[3" in text) == (variable == "")


def test_a_single_comparison_begins_with_its_verdict(shown):
    text = plain(shown[80, "", "compare one"][0])
    assert re.match(r"torch takes \S+% longer than jax \(±\S+%\)\n", text)
