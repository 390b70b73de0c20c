"""The launcher for Slurm against programs that answer as Slurm's do; tests/processes/test_slurm.py has the real one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarker import Allocation, JobState, UserError
from benchmarker.hooks import launchers
from benchmarker_plugins.launchers.slurm import make_launcher

HEADING = "JOBID|STATE|NODELIST|REASON\\n"


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Puts a program on PATH that runs a line of shell."""
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")

    def make(name: str, line: str) -> None:
        (programs / name).write_text(f"#!/bin/sh\n{line}\n")
        (programs / name).chmod(0o755)

    return make


@pytest.fixture(autouse=True)
def _no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_JOB_ID", "SLURMD_NODENAME", "SLURM_STEP_NODELIST", "SLURM_STEP_NUM_TASKS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def in_job(monkeypatch: pytest.MonkeyPatch):
    """Sets the variables of a job's script on its one node."""

    def enter(**variables: str) -> None:
        of_job = {"SLURM_JOB_ID": "12", "SLURM_JOB_NODELIST": "node1", "SLURMD_NODENAME": "node1"}
        for name, value in (of_job | variables).items():
            monkeypatch.setenv(name, value)

    return enter


def test_outside_of_a_job_there_is_no_allocation() -> None:
    assert launchers.allocation() is None


def test_the_allocation_is_the_node_of_the_job_or_of_the_step(in_job, play) -> None:
    in_job()
    assert launchers.allocation() == Allocation("slurm", "12", ["node1"], 0)
    in_job(SLURM_JOB_NODELIST="node[1-2]", SLURM_STEP_NODELIST="node2", SLURM_RESTART_COUNT="3")
    assert launchers.allocation() == Allocation("slurm", "12", ["node2"], 3)


def test_of_several_nodes_the_one_of_this_process_is_the_first(in_job, play) -> None:
    play("scontrol", '[ "$*" = "show hostnames node[1-3]" ] && printf "node1\\nnode2\\nnode3\\n"')
    in_job(SLURM_JOB_NODELIST="node[1-3]", SLURMD_NODENAME="node2")
    assert launchers.allocation() == Allocation("slurm", "12", ["node2", "node1", "node3"], 0)


def test_more_nodes_than_there_are_are_refused_with_the_remedy(in_job) -> None:
    in_job()
    launchers.check_nodes(1, None)
    launchers.check_nodes(1, launchers.allocation())
    with pytest.raises(UserError, match=r"^--nodes=2: job 12 has 1 node \(node1\); ask for more$"):
        launchers.check_nodes(2, launchers.allocation())
    with pytest.raises(UserError, match=r"^--nodes=2: not inside a launcher's allocation; use `submit --nodes=2`$"):
        launchers.check_nodes(2, None)


def test_the_address_of_a_node_is_that_by_which_slurm_reaches_it(play) -> None:
    play("scontrol", 'echo "NodeName=node2 Arch=x86_64 NodeAddr=10.1.2.3 NodeHostName=n2 Port=6818"')
    assert make_launcher({}).address("node2") == "10.1.2.3"


def test_what_cannot_be_measured_in_a_job_is_refused_with_the_remedy(in_job, monkeypatch) -> None:
    in_job(SLURM_STEP_NUM_TASKS="4")
    with pytest.raises(UserError, match="srun started this 4 times; start it once, with srun --ntasks=1"):
        launchers.allocation()
    monkeypatch.delenv("SLURMD_NODENAME")
    with pytest.raises(UserError, match="this is another machine: start it with srun"):
        launchers.allocation()


def test_a_program_runs_once_on_each_node_of_a_step_beside_others(play, in_job, tmp_path) -> None:
    play("srun", f'echo "$*" >{tmp_path}/asked; while [ "${{1#--}}" != "$1" ]; do shift; done; exec "$@"')
    launcher = make_launcher({})
    command = launcher.command(["node1", "node3"], ["/bin/sh", "-c", "exec cat"])
    assert subprocess.run(command, input="told", capture_output=True, text=True, check=True).stdout == "told"
    asked = (tmp_path / "asked").read_text().split()
    assert {"--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--nodelist=node1,node3", "--overlap"} <= set(asked)
    assert {"--kill-on-bad-exit=0", "--wait=0"} <= set(asked)
    assert not any("gpus" in word for word in asked)
    play("srun", f'echo "$* gpus=$SLURM_GPUS" >{tmp_path}/asked')
    in_job(SLURM_GPUS="8", SLURM_GPUS_ON_NODE="4")
    subprocess.run(launcher.command(["node1"], ["true"]), check=True)
    assert {"--gpus-per-node=4", "gpus="} <= set((tmp_path / "asked").read_text().split())


def test_the_node_of_this_process_is_what_slurm_calls_it(in_job) -> None:
    launcher = make_launcher({})
    assert launcher.node() is None
    in_job(SLURMD_NODENAME="node1")
    assert launcher.node() == "node1"


def test_the_directives_are_the_users_where_they_are_given() -> None:
    log = Path("/my results/100%/job.log")
    assert make_launcher({"time": "5", "exclusive": "", "signal": "B:TERM@120"}).directives("name", log, 1) == [
        "#SBATCH --job-name=name",
        "#SBATCH --nodes=1",
        "#SBATCH --ntasks=1",
        "#SBATCH --output='/my results/100%%/job.log'",
        "#SBATCH --open-mode=append",
        "#SBATCH --requeue",
        "#SBATCH --signal=B:TERM@120",
        "#SBATCH --time=5",
        "#SBATCH --exclusive",
    ]
    assert "#SBATCH --requeue" not in make_launcher({"no-requeue": ""}).directives("name", log, 1)
    assert make_launcher({}).directives("name", log, 3)[1:3] == ["#SBATCH --nodes=3", "#SBATCH --ntasks=3"]


@pytest.mark.parametrize(
    ("option", "complaint"),
    [
        ({"p": "gpu"}, "not a long option of sbatch"),
        ({"--partition": "gpu"}, "without dashes"),
        ({"nodes": "2"}, "launcher.slurm decides it; use --nodes=N"),
        ({"ntasks": "2"}, "a job has one task a node"),
        ({"nod": "2"}, "sbatch takes it for nodes; launcher.slurm decides it; use --nodes=N"),
        ({"outpu": "x"}, "sbatch takes it for output; launcher.slurm decides it"),
        ({"wra": "x"}, "sbatch takes it for wrap"),
        ({"ntasks-per-node": "4"}, "a job has one task a node"),
        ({"tasks-per-n": "4"}, "a job has one task a node"),
        ({"test-only": ""}, "launcher.slurm decides it"),
        ({"clusters": "b"}, "submit on a login node of that cluster"),
        ({"comment": "a\n#SBATCH --uid=0"}, r"--comment='a\\n#SBATCH --uid=0': sbatch takes no backslash"),
        ({"comment": "\x1b[2J"}, "nothing unprintable"),
        ({"comment": "a\\b"}, "no backslash"),
    ],
)
def test_options_that_are_none_are_refused(option: dict[str, str], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        make_launcher(option)


@pytest.mark.parametrize(
    "option", ["nodelist", "nodefile", "wait-all-nodes", "no-requeue", "time", "cluster-constraint"]
)
def test_options_that_only_look_like_those_are_accepted(option: str) -> None:
    assert make_launcher({option: "x"}).directives("name", Path("/job.log"), 1)[-1] == f"#SBATCH --{option}=x"


@pytest.mark.parametrize(
    "log", ["/re\ntouch /tmp/x #/job.log", "/re\\sults/job.log", "/re\udcff/job.log", "/a\tb/job.log"]
)
def test_a_path_that_sbatch_would_misread_is_refused(log: str) -> None:
    with pytest.raises(
        UserError, match=r"--output=.*: sbatch takes no backslash and nothing unprintable; choose another$"
    ):
        make_launcher({}).directives("name", Path(log), 1)


def test_states_are_told_for_all_jobs_at_once_and_a_forgotten_one_has_ended(play) -> None:
    play("squeue", f'printf "{HEADING}7|RUNNING|node1|None\\n8|PENDING||Resources\\n9|NODE_FAIL|node2|NodeDown\\n"')
    assert make_launcher({}).states(["7", "8", "9", "10"]) == {
        "7": JobState("running", "RUNNING", "node1"),
        "8": JobState("pending", "PENDING (Resources)", ""),
        "9": JobState("ended", "NODE_FAIL (NodeDown)", "node2"),
        "10": JobState("ended", "Slurm has forgotten it", ""),
    }
    play("squeue", f'printf "{HEADING}"')
    assert make_launcher({}).states(["7"]) == {"7": JobState("ended", "Slurm has forgotten it", "")}
    play("squeue", 'echo "squeue: error: Unable to contact slurm controller" >&2; exit 1')
    told = JobState("unknown", "squeue: Unable to contact slurm controller", "")
    assert make_launcher({}).states(["7"]) == {"7": told}


def test_a_reason_may_contain_a_bar_and_bytes_that_are_no_text(play) -> None:
    play("squeue", f"printf '{HEADING}7|PENDING||down | until \\377\\n'")
    assert make_launcher({}).states(["7"]) == {"7": JobState("pending", "PENDING (down | until \ufffd)", "")}


@pytest.mark.parametrize(
    ("printed", "detail"),
    [
        ("", "squeue printed ''"),
        ("slurm_load_jobs error: Unable to contact slurm controller", "squeue printed 'slurm_load_jobs error: Unable"),
        (f"{HEADING}7|RUNNING", "squeue printed '7|RUNNING'"),
        (f"{HEADING}error: 7", "squeue printed 'error: 7'"),
        (f"{HEADING}7|ON FIRE|node1|None", "ON FIRE"),
        ("\\377\\033[2J", r"squeue printed '\ufffd\x1b[2J'"),
        ("x" * 1000, f"squeue printed '{'x' * 80}...'"),
    ],
)
def test_what_squeue_prints_oddly_leaves_a_job_unknown(play, printed: str, detail: str) -> None:
    play("squeue", f"printf '{printed}\\n'")
    state = make_launcher({}).states(["7"])["7"]
    assert (state.phase, state.detail[: len(detail)]) == ("unknown", detail)


def test_a_line_that_is_odd_leaves_the_other_jobs_as_they_are(play) -> None:
    play("squeue", f"printf '{HEADING}9|RUNN\\n7|RUNNING|node1|None\\n'")
    states = make_launcher({}).states(["7", "8", "9"])
    assert [state.phase for state in states.values()] == ["running", "unknown", "unknown"]


@pytest.mark.parametrize(
    ("printed", "number"),
    [("12", "12"), ("12;cluster", "12"), ("Welcome to the cluster\\n12", "12")],
)
def test_the_number_of_a_job_is_on_the_last_line(play, printed: str, number: str) -> None:
    play("sbatch", f'[ "$1" = --test-only ] || printf "{printed}\\n"')
    assert make_launcher({}).submit(Path("/job.sh"), Path("/job.log")) == number


@pytest.mark.parametrize("printed", ["", "error: no such partition", "12 13", "12abc", "\\377", "12\\nqueued"])
def test_what_sbatch_prints_oddly_is_no_number(play, printed: str) -> None:
    play("sbatch", f'[ "$1" = --test-only ] || printf "{printed}\\n"')
    with pytest.raises(UserError, match=r"^sbatch printed .*, not the number of a job; see squeue --me"):
        make_launcher({}).submit(Path("/job.sh"), Path("/job.log"))


@pytest.mark.parametrize(
    "printed", ["", "error: Invalid job id", "Restarts=many JobState", "Restarts=-1", "\\377=\\377"]
)
def test_what_scontrol_prints_oddly_tells_nothing(play, in_job, printed: str) -> None:
    play("scontrol", f"printf '{printed}\\n'")
    allocation = Allocation("slurm", "12", ["node1"], 0)
    assert launchers.ending(allocation) == "cancelled"
    launchers.requeue(allocation)
    assert not launchers.lost_nodes(allocation)
    assert make_launcher({}).address("node1") == "node1"
    in_job(SLURM_JOB_NODELIST="node[1-2]")
    with pytest.raises(UserError, match=r"^scontrol printed .* for node\[1-2\], which is without node1$"):
        launchers.allocation()


def test_a_program_that_cannot_be_run_is_named(play, tmp_path, monkeypatch) -> None:
    play("squeue", "")
    monkeypatch.setenv("PATH", str(tmp_path / "programs"))  # the next on PATH would be tried, where there is one
    (tmp_path / "programs/squeue").write_bytes(b"\x7fELF")
    told = JobState("unknown", "cannot run squeue: Exec format error", "")
    assert make_launcher({}).states(["7"]) == {"7": told}


@pytest.mark.parametrize(
    ("told", "ending"),
    [
        ("JobState=COMPLETING Restarts=1 PreemptTime=None", "preempted"),
        ("JobState=COMPLETING Restarts=0 PreemptTime=2026-01-01T00:00:00", "preempted"),
        ("JobState=SIGNALING Restarts=0 PreemptTime=None", "time limit"),
        ("JobState=RUNNING Restarts=0", "time limit"),
        ("JobState=COMPLETING Restarts=0 PreemptTime=None", "cancelled"),
        ("JobState=COMPLETING Reason=NodeDown Restarts=0 PreemptTime=None", "node failure"),
        ("JobState=PENDING Reason=BeginTime Restarts=1 PreemptTime=None", "preempted"),
    ],
)
def test_why_a_job_gets_sigterm(play, told: str, ending: str) -> None:
    play("scontrol", f'[ "$*" = "--oneliner show job 12" ] && echo "JobId=12 {told}"')
    assert launchers.ending(Allocation("slurm", "12", ["node1"], 0)) == ending


def test_lost_nodes_are_those_that_are_down_or_do_not_answer(play) -> None:
    lines = "".join(
        f"NodeName=node{number} Arch=x86_64 CPUAlloc=1 State={state} ThreadsPerCore=1\\n"
        for number, state in enumerate(("MIXED", "DOWN*", "IDLE*", "MIXED+NOT_RESPONDING", "IDLE+DRAIN"))
    )
    play("scontrol", f'[ "$4" = node0,node1,node2,node3,node4 ] && printf "{lines}"')
    allocation = Allocation("slurm", "12", [f"node{number}" for number in range(5)], 0)
    assert launchers.lost_nodes(allocation) == ["node1", "node2", "node3"]
    play("scontrol", "exit 1")
    assert launchers.lost_nodes(allocation) == ()


@pytest.mark.parametrize(
    ("told", "asked"),
    [("Restarts=0 Requeue=1", True), ("Restarts=1 Requeue=1", False), ("Restarts=0 Requeue=0", False)],
)
def test_a_job_that_was_only_warned_is_put_back_on_the_queue(play, tmp_path, told: str, asked: bool) -> None:
    play("scontrol", f'[ "$1" = requeue ] && echo "$*" > {tmp_path}/asked; echo "JobId=12 {told}"')
    launchers.requeue(Allocation("slurm", "12", ["node1"], 0))
    assert (tmp_path / "asked").exists() == asked


def test_a_controller_that_does_not_answer_leaves_it_at_cancelled(play) -> None:
    play("scontrol", "exit 1")
    launchers.requeue(Allocation("slurm", "12", ["node1"], 0))
    assert launchers.ending(Allocation("slurm", "12", ["node1"], 0)) == "cancelled"


def test_without_slurm_the_remedy_is_told(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="sbatch is not on PATH; use a login node"):
        make_launcher({}).submit(tmp_path / "job.sh", tmp_path / "job.log")
