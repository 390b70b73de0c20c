"""Programs that run their steps when they are told to: what is measured of them, and hostile ones."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from benchmarker import Case, ToldCheck, TrialError
from benchmarker.hooks import parameters, registry
from benchmarker.worker.timing import steps_per_block
from benchmarker_problems.program.stepwise import StepwiseExecution

EXAMPLES = Path(__file__).parents[2] / "examples" / "programs"
SPEAKER = """
import json, os, sys, time
fd = int(os.environ["BENCHMARKER_FD"])
commands, events = open(fd, closefd=False), open(fd, "w", buffering=1, closefd=False)
def say(event, **values):
    print(json.dumps({"event": event, **values}), file=events)
def run(steps):
    begun = time.perf_counter_ns()
    while time.perf_counter_ns() - begun < 1e6 * steps:
        pass
    return time.perf_counter_ns() - begun
"""
HONEST = """
say("ready")
for line in commands:
    say("block", steps=int(line), duration_ns=run(int(line)))
say("end")
"""


@pytest.fixture
def speaks(tmp_path):
    """Returns the execution of a program in Python that speaks."""
    opened = []

    def execution(text, **options):
        (tmp_path / "speaks.py").write_text(SPEAKER + text)
        name = f"program:{sys.executable} -S {tmp_path / 'speaks.py'}"
        problem = parameters.convert(registry.problem(name), {"stepwise": True, **options})
        opened.append(StepwiseExecution(problem, Case(problem=name, framework="program", device="cpu", params={})))
        return opened[-1]

    yield execution
    for one in opened:
        if one._program is not None:
            one._close()


def test_blocks_are_timed_from_outside_and_the_end_is_awaited(speaks):
    execution = speaks("say('cost', flops=1e9, samples=3)" + HONEST + "print('rate 5')", figure="rate=rate (.*)")
    execution.prepare()
    assert (execution.counted().flops, execution.counted().samples, execution.counted().bytes) == (10**9, 3, None)
    assert execution.counted().source == "program"
    steps_per_block(execution)
    assert [block.steps for block in execution._blocks][:11] == [*[0] * 10, 1]
    assert all(2e6 <= execution.block(2) < 1e9 for _ in range(9))
    figures = {figure.name: figure.values for figure in execution.figures()}
    assert figures["rate"] == [5.0]
    assert figures["user_time_s"][0] > 0.01
    assert execution.check() is None
    assert execution.suspicions() == []
    assert execution.peak_rss_bytes()


@pytest.mark.parametrize(("factor", "suspect"), [(100, True), (1.2, True), (1, False), (0.95, False), (0.01, True)])
def test_what_a_program_says_of_its_time_has_to_agree(speaks, factor, suspect):
    execution = speaks(HONEST.replace("run(int(line))", f"int(run(int(line)) * {factor})"))
    execution.prepare()
    assert min(execution.block(30) for _ in range(5)) >= 30e6
    execution.figures()
    assert bool(execution.suspicions()) == suspect
    if suspect:
        assert "the program says that a block of 30 steps took" in execution.suspicions()[0]


def test_a_program_need_not_say_its_time(speaks):
    execution = speaks(HONEST.replace(", duration_ns=run(int(line))", "+ 0 * run(int(line))"))
    execution.prepare()
    assert execution.block(2) >= 2e6
    execution.figures()
    assert execution.suspicions() == []


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("error=0.5, bound=1, output='y'", ToldCheck("y", 0.5, 1)),
        ("error=2, bound=1", ToldCheck("the output", 2, 1)),
        ("ok=True", "the program says that the output is right, without an error"),
        ("ok=False", TrialError("the program says that the output is wrong")),
        ("ok=True, error=1, bound=2", TrialError("give error and bound, or ok")),
        ("error=1", TrialError("give error and bound, or ok")),
    ],
)
def test_what_a_program_says_of_its_output_is_its_check(speaks, said, told):
    execution = speaks(HONEST.replace("say('end')", "").replace('say("end")', f"say('check', {said}); say('end')"))
    execution.prepare()

    def checked():
        execution.figures()
        return execution.check()

    if isinstance(told, TrialError):
        with pytest.raises(TrialError, match=str(told)):
            checked()
    else:
        assert checked() == told


@pytest.mark.parametrize(
    ("text", "message", "kind"),
    [
        ("", "the program ended before it said 'ready'; leave --stepwise out if it is not", "exception"),
        ("print('why'); sys.exit(3)", "the program ended with status 3: why", "exception"),
        ("os.kill(os.getpid(), 11)", "the program was ended by SIGSEGV", "killed"),
        (
            "events.write('\\x1b[2J\\n')",
            "the program wrote '\\x1b[2J' to BENCHMARKER_FD, which is no event",
            "exception",
        ),
        ("os.write(fd, b'\\xff\\n'); time.sleep(60)", "which is no event", "exception"),
        ("os.write(fd, b'{' * 200000 + b'\\n'); time.sleep(60)", "the program wrote", "exception"),
        ("os.write(fd, b'x' * 99999); time.sleep(60)", "more than 64 KiB to BENCHMARKER_FD without an", "exception"),
        ("say('steady')", "which is no event: Invalid value 'steady'", "exception"),
        ("say('ready', more=1)", "which is no event: Object contains unknown field `more`", "exception"),
        ("say('cost', flops=-1)", "which is no event", "exception"),
        ("say('cost', flops=10**30)", "which is no event", "exception"),
        ("say('end')", "the program said 'end' where 'ready' was awaited", "exception"),
        ("say('ready')", "the program ended before it said 'block'", "exception"),
        ("os.close(fd); time.sleep(60)", "the program closed BENCHMARKER_FD before it said 'ready'", "exception"),
        ("if os.fork() == 0: time.sleep(60)", "the program ended before it said 'ready'", "exception"),
        ("say('ready'); commands.readline(); say('block', steps=5)", "asked for 1 steps, and says", "exception"),
        (HONEST.replace("run(int(line))", "1"), "answers at once, however many steps it is asked for", "exception"),
        (HONEST + "sys.exit(4)", "the program ended with status 4", "exception"),
        (HONEST.replace('say("end")', ""), "the program ended before it said 'end'", "exception"),
    ],
)
def test_a_hostile_program_is_told_in_a_line_and_leaves_nothing(speaks, tmp_path, text, message, kind):
    execution = speaks(f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n{text}")
    begun = time.monotonic()
    with pytest.raises(TrialError) as told:
        execution.prepare()
        execution.block(1)
        steps_per_block(execution)
        execution.figures()
    assert message in str(told.value)
    assert "\n" not in str(told.value)
    assert told.value.kind == kind
    assert time.monotonic() - begun < 20
    group = (tmp_path / "pid").read_text()
    assert not [one for one in psutil.process_iter() if _in_group(one, int(group))]
    assert not Path(execution._scratch).exists()


def _in_group(process, number):
    try:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return int(fields[2]) == number and fields[0] != "Z"


def test_a_program_that_hangs_is_ended_at_the_time_limit(cli, tmp_path):
    (tmp_path / "hangs.py").write_text(SPEAKER + "say('ready'); print(os.getpid(), flush=True); time.sleep(60)")
    done = cli("run", "--power=none", "--stepwise", "--timeout=4", "--json", "--", "python3", "hangs.py")
    (record,) = json.loads(done.stdout)
    assert (record["error"]["kind"], record["error"]["stage"]) == ("timeout", "compile")
    (log,) = tmp_path.glob("results/*/*.log")
    assert not psutil.pid_exists(int(log.read_text().split()[-1]))


def test_the_examples_are_measured_in_blocks(cli, tmp_path):
    shutil.copy(EXAMPLES / "steps.py", tmp_path)
    words = ("--stepwise", "--power=none", "--seconds=1", "--blocks=5", "--json", "--")
    done = cli("run", "--n=1000", *words, "python3", "steps.py", "{n}")
    (record,) = json.loads(done.stdout)
    assert record["error"] is None
    assert record["blocks"]["steps_per_block"] > 10
    assert 0 < len(record["blocks"]["duration_ns"]) <= 5
    assert record["preheat"]["steps"] == 3
    assert record["compile_s"] > 0
    assert record["cost"]["samples"] == 1000
    assert record["interference"]["own_busy_cores"] > 0.1
    assert record["reasons"]["check"] == "the program says that the output is right, without an error"
    assert record["suspicions"] == []
    assert cli("validate", "results").returncode == 0
    assert "--stepwise" in record["command"]


def test_the_example_in_c_checks_itself(cli, tmp_path):
    if shutil.which("cc") is None:
        pytest.skip("cc is not installed")
    subprocess.run(["cc", "-O2", "-Wall", "-Werror", EXAMPLES / "steps.c", "-o", tmp_path / "steps", "-lm"], check=True)
    done = cli("run", "--stepwise", "--power=none", "--blocks=5", "--seconds=1", "--json", "--", "./steps", "10000")
    (record,) = json.loads(done.stdout)
    assert record["error"] is None
    assert record["check"]["against"] == "what the program says"
    assert record["check"]["ok"]
    assert record["check"]["error"] <= 1e-12
    assert record["cost"]["flops"] == 30000
    assert record["cost"]["source"] == "program"
    assert record["metrics"]["flop_per_s"]["value"] > 0
    alone = subprocess.run([tmp_path / "steps", "10"], check=True, capture_output=True, text=True).stdout
    assert [json.loads(line)["event"] for line in alone.splitlines()] == ["cost", "ready", "block", "check", "end"]


def test_a_wrong_result_fails_the_trial(cli, tmp_path):
    (tmp_path / "wrong.py").write_text(
        SPEAKER + HONEST.replace('say("end")', "say('check', error=1, bound=0.1)\nsay('end')")
    )
    done = cli("run", "--stepwise", "--power=none", "--blocks=2", "--json", "--", "python3", "wrong.py")
    (record,) = json.loads(done.stdout)
    assert record["error"]["kind"] == "check"
    assert (
        "wrong result: the output is off by 1 (relative, against what the program says)" in record["error"]["message"]
    )
    assert record["check"]["ok"] is False
    assert cli("validate", "results").returncode == 0
