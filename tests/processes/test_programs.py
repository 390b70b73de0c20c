"""Programs, measured by commands in real processes."""

import json
import os
import re
import resource
import shutil
import time
from pathlib import Path

import psutil
import pytest
from support import nvml
from support.cards import Card, Constant, write

from benchmarker import Case, TrialError, UserError
from benchmarker.hooks import parameters, registry
from benchmarker.running import trial
from benchmarker_problems.program.execution import ProgramExecution
from benchmarker_problems.program.figures import declared
from benchmarker_problems.program.parsing import check_sanity
from benchmarker_problems.program.process import Ended
from benchmarker_problems.program.ranks import told

QUIET = ("--power=none",)
TRIAD = r"--figure=triad[MB/s]=Triad:\s+(\S+) MB/s"


@pytest.fixture
def script(tmp_path):
    """Writes a program of a shell's commands."""

    def write(name, text):
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    return write


@pytest.fixture
def measured(cli):
    """Runs a program, and returns the record of its only trial."""

    def run(*words):
        done = cli("run", *QUIET, "--json", *words)
        assert done.stdout, done.stderr
        (record,) = json.loads(done.stdout)
        assert done.returncode == (record["status"] == "failed")
        return record

    return run


def test_a_program_is_executed_once_and_what_it_prints_is_its_figures(measured, script, tmp_path):
    script("stream", "echo x >> count; echo 'Triad: 12.5 MB/s'; echo \"Triad: $1 MB/s\"; sleep 0.05")
    record = measured(TRIAD, "--sanity=^Triad", "--", "./stream", "13.5")
    assert (tmp_path / "count").read_text() == "x\n"
    assert record["case"]["problem"] == "program:./stream 13.5"
    assert record["source"]["sha256"] == record["case"]["source"] != ""
    assert 0.05e9 <= record["blocks"]["duration_ns"][0] < 5e9
    assert [figure["name"] for figure in record["figures"]] == [
        *("user_time_s", "system_time_s", "start_time_s", "triad")
    ]
    assert len(record["figures"][2]["values"]) > 1
    assert 0 < record["metrics"]["start_time_s"]["value"] < record["metrics"]["step_time_median_s"]["value"]
    assert record["suspicions"] == []
    assert record["metrics"]["triad"]["value"] == 13.5e6
    assert record["metrics"]["triad"]["better"] == "higher"
    assert record["metrics"]["user_time_s"]["value"] + record["metrics"]["system_time_s"]["value"] > 0
    assert record["compile_s"] is None
    assert record["metrics"]["compile_s"]["reason"] == record["reasons"]["compile_s"]
    (log,) = tmp_path.glob("results/*/*.log")
    assert "Triad: 13.5 MB/s" in log.read_text()


def test_the_time_of_the_processor_and_the_memory_are_those_of_the_program(measured):
    busy = "x = bytearray(150 << 20)\nimport time\nwhile time.process_time() < 0.3: pass"
    record = measured("--", "python3", "-S", "-c", busy)
    assert 0.2 < record["metrics"]["user_time_s"]["value"] + record["metrics"]["system_time_s"]["value"] < 2
    assert 150 << 20 < record["metrics"]["host_peak_rss_bytes"]["value"] < 250 << 20
    assert record["interference"]["own_busy_cores"] > 0.1


def test_memory_below_that_of_the_worker_is_not_known(measured, cli):
    record = measured("--blocks=20", "--", "true")
    assert record["metrics"]["host_peak_rss_bytes"]["value"] is None
    assert "it is at most" in record["reasons"]["memory.host_peak_rss_bytes"]
    assert "nothing tells whether the output is right" in cli("run", *QUIET, "--", "true").stdout


@pytest.mark.parametrize(("own_ms", "suspect"), [(1.9, True), (2.1, False)])
def test_a_program_that_hardly_takes_longer_than_an_empty_one_is_suspect(own_ms, suspect):
    problem = parameters.convert(registry.problem("program:true"), {})
    execution = ProgramExecution(problem, Case(problem="program:true", framework="program", device="cpu", params={}))
    ended = [Ended(round(1e6 * ms), (), 0, None) for ms in (own_ms, own_ms + 5)]
    execution._ended, execution._empty = ended, [Ended(round(1e6 * ms), (), 0, None) for ms in (1.0, 9.0)]
    assert [text for text in execution.suspicions() if "1.9 ms at best, and an empty program 1 ms" in text] == (
        execution.suspicions()
    )
    assert bool(execution.suspicions()) == suspect


def test_a_time_that_is_mostly_the_start_gets_no_verdict(cli, script):
    script("told", "echo rate $1")
    words = ("--a=./told 1", "--b=./told 2", *QUIET, "--blocks=10", "--figure=rate=rate (.*)", "--max-rounds=2")
    done = cli("ab", *words, "--json")
    (comparison,) = json.loads(done.stdout)["family"]["comparisons"]
    assert (comparison["verdict"], comparison["ratio"], comparison["trials"]) == ("undecided", None, [2, 2])
    assert "it takes" in comparison["refused"]
    assert f"no verdict: {comparison['refused']}" in comparison["notes"]
    assert not any("suspect" in note for note in comparison["notes"])
    compared = cli("compare", "results").stdout
    assert "cannot be compared, because their time is mostly that of starting a process" in compared
    done = cli("compare", "results", "--metric=rate", "--json")
    (comparison,) = json.loads(done.stdout)["family"]["comparisons"]
    assert (comparison["ratio"], comparison["refused"]) == (2, "")


@pytest.mark.slow
def test_a_run_ends_at_the_first_look_if_there_can_be_no_verdict(cli):
    assert "ended after 8 rounds" in cli("ab", "--a=true", "--b=true 1", *QUIET).stdout


PARSE = """
import json
def rates(output):
    return [each["rate"] for each in json.loads(output)]
def size(output):
    return rates(output)[0] * 2
def sane(output):
    return "rate" in output
def wrong(output):
    return 0
def fails(output):
    return json.loads(output)["none"]
def text(output):
    return "many"
def ends(output):
    raise SystemExit(3)
"""


def test_functions_of_the_user_find_figures_and_tell_whether_the_output_is_sane(measured, tmp_path):
    (tmp_path / "parse.py").write_text(PARSE)
    figures = ("--figure=rate[MB/s,mean]=parse.py:rates", "--figure=size[B]=parse.py")
    record = measured(*figures, "--sanity=parse.py", "--", "echo", '[{"rate": 1}, {"rate": 2.5}]')
    assert record["error"] is None
    assert record["metrics"]["rate"]["value"] == 1.75e6
    assert (record["metrics"]["size"]["value"], record["metrics"]["size"]["better"]) == (2, "lower")
    assert [path.name for path in tmp_path.glob("__pycache__")] == []


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--sanity=parse.py:wrong", "--sanity: parse.py:wrong returned 0, not True"),
        ("--sanity=parse.py:fails", "parse.py:fails failed: KeyError: 'none'"),
        ("--figure=a=parse.py:ends", "parse.py:ends failed: SystemExit: 3"),
        ("--figure=a=parse.py:text", "figure a: 'many' is not a number"),
        ("--figure=a=parse.py:sane", "figure a: True is not a number"),
    ],
)
def test_a_function_of_the_user_that_fails_fails_the_trial(tmp_path, monkeypatch, option, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "parse.py").write_text(PARSE)
    name, _, value = option.removeprefix("--").partition("=")
    with pytest.raises(TrialError, match=re.escape(message)) as told:
        if name == "sanity":
            check_sanity(value, '{"rate": 1}')
        else:
            declared(value)[0].found('{"rate": 1}')
    assert told.value.kind == "check"


def test_memory_that_ran_out_is_told_from_other_kills(measured, monkeypatch):
    kills = iter([3, 4, 4, 4])
    monkeypatch.setattr(trial.counters, "oom_kills", lambda: next(kills))
    assert measured("--shell", "--", "kill -9 $$")["error"]["kind"] == "out_of_memory"
    record = measured("--shell", "--", "kill -9 $$")
    assert (record["error"]["kind"], record["error"]["exit"]) == ("killed", -9)


def test_a_program_that_is_held_to_a_pattern_has_no_note(cli):
    assert "note" not in cli("run", *QUIET, "--sanity=^ok$", "--shell", "--", "sleep 0.1; echo ok").stdout


def test_many_executions_leave_no_file_open(measured, cli):
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    try:
        record = measured("--blocks=300", "--warmup-steps=1", "--sanity=^$", "--", "true")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert len(record["blocks"]["duration_ns"]) == 300
    assert cli("validate", "results").returncode == 0


def test_what_is_in_braces_is_an_option(cli, script):
    script("show", 'echo "$#: $1"')
    done = cli("run", *QUIET, "--n=1,two words", "--json", r"--figure=count=^(\d):", "--", "./show", "x{n}")
    records = json.loads(done.stdout)
    assert [record["case"]["params"]["n"] for record in records] == [1, "two words"]
    assert {record["metrics"]["count"]["value"] for record in records} == {1}
    assert "{n} has no value; give --n=VALUE, or double the braces" in cli("run", "--", "./show", "{n}").stderr
    assert "{title} cannot be an option" in cli("run", "--", "./show", "{title}").stderr
    done = cli("run", *QUIET, "--n=a;b", "--shell", "--json", r"--figure=count=^(\d)$", "--", "printf %s {n} | wc -l")
    assert json.loads(done.stdout)[0]["metrics"]["count"]["value"] == 0


@pytest.mark.slow
def test_two_programs_are_compared_at_each_value(cli, script):
    script("slow", "sleep 0.1; echo $1; echo value 1")
    script("fast", "sleep 0.01; echo value 2")
    common = ("--max-rounds=2", *QUIET, "--figure=value=value (.*)")
    done = cli("ab", "--a=./slow {n}", "--b=./fast {n}", "--n=1,2", *common)
    assert done.returncode == 0, done.stderr
    assert "step time (median), medians over trials; 2 rounds; on cpu\n" in done.stdout
    assert "2 comparisons" in done.stdout
    done = cli("ab", "--a=./slow 1", "--b=./fast 1", *common, "--metric=value")
    assert done.returncode == 0, done.stderr
    assert "./fast {n}" in cli("show", "results").stdout
    assert "B/A 2.000" in done.stdout
    compared = cli("compare", str(max(Path("results").iterdir())), "--metric=value")
    assert compared.returncode == 0, compared.stderr


def test_a_value_may_be_one_of_one_side_only(cli):
    words = ("--m=1,2", "--n", "3,4", *QUIET, "--max-rounds=2", "--budget=0.001", "--json")
    done = cli("ab", "--a=true {m}", "--b=true {n} {m}", *words)
    assert done.returncode == 0, done.stderr
    comparisons = json.loads(done.stdout)["family"]["comparisons"]
    assert sorted((each["baseline"], each["contender"]) for each in comparisons) == [
        ("true {m}", f"true {{n}} {{m}} n={n}") for n in (3, 3, 4, 4)
    ]
    assert "--a: No such option '--x'" in cli("ab", "--a=true", "--b=true 1", "--x=1").stderr


def test_the_time_of_a_program_is_not_predicted(cli):
    for words in (("--problem=program:true",), ("--", "true")):
        assert "the work of a program is not known" in cli("predict", *words).stderr


@pytest.mark.parametrize(
    ("options", "line", "kind", "status", "message"),
    [
        ((), "echo to nowhere >&2; exit 3", "exception", 3, "the program ended with status 3: to nowhere"),
        ((), "kill -SEGV $$", "killed", -11, "the program was ended by SIGSEGV"),
        (("--timeout=1",), "sleep 30", "timeout", None, "not finished after 1 s; allow more time with --timeout"),
        (("--sanity=valid",), "echo no", "check", None, "the output has no match of --sanity=valid"),
        ((TRIAD,), "echo no", "check", None, r"figure triad: the output has no match of Triad:\s+(\S+) MB/s"),
        (("--figure=n=(.+)",), "echo no", "check", None, "figure n: 'no' is not a number"),
        (("--figure=n=(.+)",), "echo inf", "check", None, "figure n: the output has a number that is not finite"),
        (("--prepare=exit 4",), "true", "exception", 4, "--prepare ended with status 4: exit 4"),
    ],
)
def test_a_program_that_fails_says_how(measured, options, line, kind, status, message):
    record = measured(*options, "--shell", "--", line)
    assert (record["error"]["kind"], record["error"]["message"][: len(message)]) == (kind, message)
    assert status is None or record["error"]["exit"] == status


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--", "./absent"), "./absent: no such program"),
        (("--", "./file"), "./file: is not executable; try chmod +x"),
        (("--",), "no program is named; write it after --"),
        (("--problem=program:",), "no program is named; write it after --, as in: run -- ./stream 100"),
        (("--problem=program:a 'b",), "a 'b: no closing quotation"),
        (("--figure=a(", "--", "true"), "--figure=a(: write NAME=PATTERN"),
        (("--figure=a=(", "--", "true"), "is not a regular expression"),
        (("--figure=a=b", "--", "true"), r"'b' has no group; put the number in parentheses, as in (\S+)"),
        (("--figure=a[s,more]=(b)", "--", "true"), "'more' is none of higher, lower, last, mean, all"),
        (("--figure=user_time_s=(b)", "--", "true"), "a metric user_time_s already"),
        (("--sanity=(", "--", "true"), "is not a regular expression"),
        (("--prepare=cp {file} .", "--", "true"), "--prepare: the command line of the program has no {file}"),
        (("--sanity=absent.py", "--", "true"), "absent.py: no such file or directory"),
        (("--sanity=bad.py", "--", "true"), "bad.py is not Python"),
        (("--figure=a=empty.py", "--", "true"), "empty.py defines no function a; write def a(output): ..."),
        (("--env=1A=b", "--", "true"), "--env=1A=b: write NAME=VALUE, as in OMP_NUM_THREADS=2"),
        (("--env=A={m}", "--", "true"), "--env: the command line of the program has no {m}"),
        (("--workdir=absent", "--", "true"), "--workdir=absent: no such folder"),
        (("--devices=2", "--", "true"), "omit --devices=2"),
        (("--threads=2", "--", "true"), "--threads=2 was set, but program cannot report its thread count here"),
    ],
)
def test_what_cannot_be_executed_is_one_line(cli, tmp_path, words, message):
    for name, text in (("file", ""), ("empty.py", ""), ("bad.py", "def")):
        (tmp_path / name).write_text(text)
    done = cli("run", *QUIET, *words)
    assert done.returncode in (1, 2)
    assert message in done.stderr + done.stdout


def test_no_figure_has_the_name_of_another_metric(measured):
    record = measured("--figure=name=(1)", "--shell", "--", "echo 1")
    for name in record["metrics"].keys() - {"name"}:
        with pytest.raises(UserError, match="already" if name.islower() else "write NAME"):
            declared(f"{name}=(1)")


def test_what_is_cut_off_leaves_its_output_and_no_folder(measured, tmp_path):
    words = ("--timeout=2", "--cleanup=echo cleaned > kept", "--shell", "--", "echo {scratch}; sleep 30")
    assert measured(*words)["error"]["kind"] == "timeout"
    (log,) = tmp_path.glob("results/*/*.log")
    folder = next(line for line in log.read_text().splitlines() if "benchmarker-scratch-" in line)
    assert not Path(folder).exists()
    assert (tmp_path / "kept").read_text() == "cleaned\n"


def test_the_digest_is_of_all_that_is_executed(script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def digest(text):
        return registry.problem(f"program:{text}").source.sha256

    script("one", "echo 1")
    script("two", "echo 2")
    assert len({digest(text) for text in ("./one", "./two", "env A=1 ./one", "env A=1 ./two", "env A=1")}) == 5
    assert digest("./one {n}") == digest("./one 5")
    assert digest("./absent") == ""


def test_hostile_output_does_no_harm(cli, script, tmp_path):
    script(
        "hostile",
        "printf '\\033[2J\\000\\377\\n'; head -c 300000000 /dev/zero; printf '\\033]0;x\\007end 7' >&2; exit 1",
    )
    done = cli("run", *QUIET, "--", "./hostile")
    assert done.returncode == 1
    assert "the program ended with status 1" in done.stdout
    assert "\x1b" not in done.stdout
    (log,) = tmp_path.glob("results/*/*.log")
    assert log.stat().st_size < 3 << 20
    assert b"bytes are left out]" in log.read_bytes()


def test_nothing_is_left_running_and_a_pipe_held_open_is_not_waited_for(measured, cli, script, tmp_path):
    script("leaver", "echo $$ > pid; sleep 60 & echo $! >> pid; setsid sleep 61 & echo $! >> pid; echo 5")
    begun = time.monotonic()
    record = measured(r"--figure=five=(5)", "--", "./leaver")
    assert record["metrics"]["five"]["value"] == 5
    assert record["metrics"]["step_time_median_s"]["value"] < 5
    assert cli("validate", "results").returncode == 0
    assert time.monotonic() - begun < 30
    for pid in (tmp_path / "pid").read_text().split():
        assert not psutil.pid_exists(int(pid)) or psutil.Process(int(pid)).status() == psutil.STATUS_ZOMBIE


def test_preparing_and_cleaning_up_are_not_timed_and_the_folder_is_the_trials_own(measured, tmp_path):
    words = ("--prepare=sleep 0.3; echo made > {scratch}/file", "--cleanup=cp {scratch}/file kept; rm {scratch}/file")
    record = measured(*words, "--shell", r"--figure=same=(1)", "--", "grep -c made {scratch}/file; echo {scratch}")
    assert record["blocks"]["duration_ns"][0] < 0.3e9
    assert (tmp_path / "kept").read_text() == "made\n"
    (log,) = tmp_path.glob("results/*/*.log")
    folder = log.read_text().splitlines()[-1]
    assert "benchmarker-scratch-" in folder
    assert not Path(folder).exists()
    failed = measured("--prepare=true", "--blocks=2", "--", "true")
    assert "--prepare is for one execution in a trial" in failed["error"]["message"]


def test_environment_and_folder_are_those_of_all_that_is_executed(measured, script, tmp_path, monkeypatch):
    monkeypatch.setenv("GONE", "1")
    (tmp_path / "data").mkdir()
    script("show", 'echo "$(basename $PWD) $ONE $TWO ${GONE-unset}"')
    options = ("--env=ONE=a=b", "--env=TWO=x {n}", "--env=GONE", "--workdir=data", "--cleanup=echo $ONE > made")
    record = measured("--n=2", *options, "--sanity=^data a=b x 2 unset$", "--", "./show", "{n}")
    assert record["error"] is None
    assert (tmp_path / "data" / "made").read_text() == "a=b\n"
    assert "--env=ONE=a=b" in record["command"]
    record = measured("--workdir={scratch}", r"--sanity=^benchmarker-scratch-\S+ +$", "--env=GONE=", "--", "./show")
    assert record["error"] is None


MPI = {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "4", "PMIX_NAMESPACE": "1"}
STEP = {"SLURM_STEP_NUM_TASKS": "6", "SLURM_STEP_NUM_NODES": "3", "SLURM_STEP_ID": "2"}


@pytest.mark.parametrize(
    ("theirs", "own", "values"),
    [
        (MPI, {}, [4, 1]),
        (MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, {}, [4]),
        (MPI | STEP, {}, [4, 1]),
        (STEP, {}, [6, 3]),
        (STEP, {"SLURM_STEP_ID": "1"}, [6, 3]),
        (STEP, STEP, []),
        ({"PMI_SIZE": "8", "MPI_LOCALNRANKS": "8"}, {}, [8, 1]),
        ({"PMI_SIZE": "many"}, {}, []),
    ],
)
def test_what_a_launcher_tells_its_processes(theirs, own, values):
    assert [figure.values[0] for figure in told(theirs, own)] == values


def test_the_processes_of_mpirun_are_recorded(measured, monkeypatch):
    if shutil.which("mpirun") is None:
        pytest.skip("mpirun is not installed")
    for variable in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):
        monkeypatch.setenv(variable, "1")
    metrics = measured("--", "mpirun", "--oversubscribe", "-np", "3", "sleep", "1")["metrics"]
    assert (metrics["launched_ranks"]["value"], metrics["launched_nodes"]["value"]) == (3, 1)
    metrics = measured("--env=PATH=.", "--", "env", "echo", "srun")["metrics"]
    assert metrics["launched_ranks"]["reason"] == "the trial did not get so far"
    metrics = measured("--", "echo", "srun")["metrics"]
    assert "none of its processes on this node was seen" in metrics["launched_ranks"]["reason"]
    assert "launched_ranks" not in measured("--", "true")["metrics"]


SMI = """#!/bin/sh
case "$1" in
  --query-gpu=name) echo Fake Card; echo Fake Card ;;
  --query-gpu=*)
    echo "0, Fake Card, {0}, 580.95, 9.0, 143771, 700.00, Enabled, Disabled"
    echo "1, Fake Card, {1}, 580.95, 9.0, 143771, 700.00, Enabled, Disabled" ;;
esac
"""


@pytest.mark.parametrize(("options", "watts", "seen"), [((), 400, 2), (("--gpus=1",), 300, 1)])
def test_the_energy_of_a_program_is_that_of_all_gpus_that_it_sees(cli, tmp_path, monkeypatch, options, watts, seen):
    uuids = [f"GPU-{letter * 8}-0000-0000-0000-000000000000" for letter in "ab"]
    (tmp_path / "bin").mkdir()
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.write_text(SMI.format(*uuids))
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent), prepend=":")
    monkeypatch.setenv("BENCHMARKER_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    drawn = zip(uuids, (100.0, 300.0), strict=True)
    cards = [
        Card(uuid=uuid, pci=f"0000:0{number}:00.0", curve=Constant(power), counter_update_s=0.001)
        for number, (uuid, power) in enumerate(drawn, 1)
    ]
    write(tmp_path / "cards", cards)
    words = ("--device=cuda", "--power=nvml", "--power-min=0", "--power-idle=0", "--figure=seen=(\\d+)", "--shell")
    command = "sleep 1; echo $CUDA_VISIBLE_DEVICES | tr , '\\n' | grep -c GPU"
    done = cli("run", *words, *options, "--json", "--", command, env=nvml.environment(tmp_path / "cards"))
    assert done.returncode == 0, done.stderr
    (record,) = json.loads(done.stdout)
    assert record["metrics"]["seen"]["value"] == seen
    assert record["energy"]["energy_J"] == pytest.approx(watts * record["energy"]["duration_s"], rel=0.05)
    assert record["device"]["platform"] == "cuda"


def test_a_plan_file_measures_programs(cli, tmp_path):
    (tmp_path / "plan.toml").write_text(
        "problem = 'program:sh -c \"echo $N\" {n}'\nfigure = '''\nn=(\\d+)\nagain=(\\d+)'''\ntrials = 2\n"
        "env = '''\nN={n}\nM='''\nworkdir = '/'\nprepare = 'test $PWD = /'\n"
        "[measuring]\npower = 'none'\n[axes]\nn = [1, 2]\n"
    )
    done = cli("plan", "run", "plan.toml", "--json")
    assert done.returncode == 0, done.stderr
    records = json.loads(done.stdout)
    assert [record["metrics"]["again"]["value"] for record in records] == [1, 1, 2, 2]


def test_figures_are_scored_and_traded_off_as_other_metrics_are(cli, script):
    for result, value in (("one", 100), ("two", 150)):
        script("tells", f"echo rate {value}; sleep 0.{value}")
        done = cli("run", *QUIET, "--trials=2", "--figure=rate=rate (.*)", f"--results={result}", "--", "./tells")
        assert "[1/2] ./tells, trial 0: done" in done.stderr
    scored = cli("suite", "score", "one", "two", "--metric=rate")
    assert "1.500" in scored.stdout, scored.stderr
    traded = cli("pareto", "one", "two", "--metric=rate,step_time_median_s")
    assert traded.stdout.count("optimal") == 2, traded.stderr


def test_records_are_read_without_the_program(cli, script, tmp_path):
    path = script("once", "echo 1")
    assert cli("run", *QUIET, "--", "./once").returncode == 0
    path.unlink()
    for command in (["show"], ["show", "--trials"], ["validate"], ["table"]):
        done = cli(command[0], "results", *command[1:])
        assert done.returncode == 0, done.stderr
    assert cli("show", "results").stdout.startswith("./once on cpu")


def test_a_program_that_changed_is_another(cli, script):
    digests = set()
    for text in ("echo 1", "echo 2"):
        script("once", text)
        (record,) = json.loads(cli("run", *QUIET, "--json", "--", "./once").stdout)
        digests.add(record["case"]["source"])
    assert len(digests) == 2
    assert os.path.lexists("once")
