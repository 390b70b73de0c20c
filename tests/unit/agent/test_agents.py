"""The agents of a run: one step a node, what a refused step does, and who is gone when a rank has lost its peer."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from support.played_agents import DONE, LOST_PEER, Played

from benchmarker import UserError
from benchmarker.agent import node, remote, supervisor
from benchmarker.agent.messages import EndRanks, StartRanks
from benchmarker.agent.node import LostNodeError
from benchmarker.agent.remote import Agents
from benchmarker.agent.supervisor import run_group
from benchmarker.hooks import launchers
from benchmarker.worker.launch import Ending, ending_text
from benchmarker.worker.pipes import Child, listen
from benchmarker.worker.protocol import Event, Failed, Task

SILENT = "while :; do IFS= read -r line || exit; done"
"""What an agent does whose link has died."""


def run_worker(played: Played, agents: Agents) -> tuple[Ending, list[str]]:
    """A trial of all nodes: how it ended, and the failures that were told."""
    told: list[str] = []
    task = Task(kind="profile", framework="toy", cases=(played.case(),))
    logs = [played.folder / f"{name}.log" for name in played.names]

    def on_event(event: Event) -> None:
        if isinstance(event, Failed):
            told.append(event.failure.message)

    with agents.on(played.names) as nodes:
        return run_group(nodes, task, 30, logs, on_event, agents.down), told


@pytest.fixture
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait shorter."""
    monkeypatch.setattr(supervisor, "GATHER_S", 0.1)
    monkeypatch.setattr(supervisor, "LATE_S", 0.6)
    monkeypatch.setattr(supervisor, "AGAIN_S", 1.0)
    monkeypatch.setattr(supervisor, "GRACE_S", 0.1)
    monkeypatch.setattr(remote, "END_S", 0.3)
    monkeypatch.setattr(node, "END_S", 0.3)


def test_all_trials_take_one_step_on_each_node(tmp_path: Path) -> None:
    played = Played(tmp_path, [DONE] * 16)
    with closing(played.agents()) as agents:
        for _ in range(10):
            assert run_worker(played, agents)[0].exit == 0
        started = list(agents._by_name.values())
    assert played.steps() == played.names
    assert all(agent.process.poll() is not None for agent in started)


def test_a_node_whose_agent_was_lost_gets_another_one(tmp_path: Path) -> None:
    played = Played(tmp_path, [DONE, DONE])
    with closing(played.agents()) as agents:
        assert run_worker(played, agents)[0].exit == 0
        agents._by_name["1"].process.kill()
        assert run_worker(played, agents)[0].exit == 0
    assert played.steps() == ["0", "1", "1"]


class Refusing(Played):
    """Starts nothing on the second node."""

    def command(self, nodes, program):
        refusal = ["/bin/sh", "-c", "echo 'srun: error: Step limit reached for this job' >&2; exit 1"]
        return refusal if nodes == ["1"] else super().command(nodes, program)


def test_a_refused_step_stops_the_run_and_says_why_and_is_no_lost_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = Refusing(tmp_path, [DONE, DONE])
    why = "its agent ended with status 1: srun: error: Step limit reached for this job"
    with (
        closing(played.agents()) as agents,
        pytest.raises(UserError, match=f"^nothing can be started on node 1: {why}; fix this"),
    ):
        run_worker(played, agents)
    monkeypatch.setattr(launchers, "lost_nodes", lambda _: ["1"])
    with closing(played.agents()) as agents, pytest.raises(LostNodeError, match=f"^node 1 was lost: {why}$"):
        run_worker(played, agents)


@pytest.mark.usefixtures("_soon")
@pytest.mark.parametrize(
    ("begin", "down", "text"),
    [
        (SILENT, [], "node 1 was lost: its agent did not answer within 1 s"),
        ("sleep 0.3; exit 9", [], "node 1 was lost: its agent ended with status 9"),
        (
            """sleep 0.3; tell 1 '"status":-9'""",
            [],
            "rank 1 on 1: the worker was ended by SIGKILL; the system may have run out of memory",
        ),
        (":", ["1"], "node 1 was lost: its agent is on a node that the launcher says is down"),
    ],
    ids=["link", "agent", "rank", "launcher"],
)
def test_a_rank_that_has_lost_its_peer_is_not_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begin: str, down: list[str], text: str
) -> None:
    monkeypatch.setattr(launchers, "lost_nodes", lambda _: down)
    played = Played(tmp_path, [LOST_PEER, begin])
    with closing(played.agents()) as agents:
        ending, told = run_worker(played, agents)
    assert (ending.rank, ending.node, told) == (1, "1", [])
    assert ending_text(ending, tmp_path / "none") == text


@pytest.mark.usefixtures("_soon")
def test_a_lost_connection_is_told_where_nobody_is_gone(tmp_path: Path) -> None:
    played = Played(tmp_path, [LOST_PEER, ":"])
    with closing(played.agents()) as agents:
        ending, told = run_worker(played, agents)
    assert (ending.lost, told) == ("", ["rank 0 on 0: reset by peer"])


@pytest.mark.parametrize("line", [b"{", b"\xff\xfe", b'{"type":"StartRanks"}', b"[" * 100_000], ids=range(4))
def test_an_agent_that_is_told_what_is_not_valid_says_so_and_ends(line: bytes) -> None:
    start = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "benchmarker.agent"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout and process.stdin and process.stderr
        assert b'"type":"Present"' in process.stdout.readline()
        process.stdin.write(line + b"\n")
        process.stdin.flush()  # and the pipe stays open
        try:
            assert process.wait(10) == 1
        finally:
            process.kill()
        (said,) = process.stderr.read().decode().splitlines()
    assert said.startswith("the agent was told what is not valid: ")
    assert len(said) < 200
    assert time.monotonic() - start < 10


@pytest.mark.parametrize("is_ended", [True, False])
def test_an_agent_that_is_not_told_of_the_end_of_a_trial_ends(tmp_path: Path, is_ended: bool) -> None:
    """As on a node that the launcher has lost: standard input stays open, and nothing comes."""
    script = "from benchmarker.agent import __main__ as agent; agent.FORGOTTEN_S = 0.5; agent.main()"
    task = Task(kind="describe", framework="none", cases=(Played(tmp_path, [""]).case(),))
    with subprocess.Popen(
        [sys.executable, "-P", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin and process.stdout
        for message in (StartRanks([task], [str(tmp_path / "log")]), *([EndRanks()] if is_ended else [])):
            process.stdin.write(msgspec.json.encode(message) + b"\n")
        process.stdin.flush()
        while b'"type":"TrialEnded"' not in process.stdout.readline():
            pass
        try:
            assert process.wait(5 if not is_ended else 1.5) == 0
            assert not is_ended
        except subprocess.TimeoutExpired:
            assert is_ended
        process.stdin.close()
        assert process.wait(5) == 0


def test_an_agent_that_sends_a_line_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(remote, "LINE_BYTES", 1 << 20)
    played = Played(tmp_path, [DONE, "head -c 9000000 /dev/zero; sleep 0.2"])
    with closing(played.agents()) as agents:
        ending, _ = run_worker(played, agents)
    assert ending.lost == "node 1 was lost: its agent sent a line of more than 2 MiB"


@pytest.fixture
def files():
    """Restore the limit of open files."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_low_limit_of_open_files_is_raised_as_far_as_it_may_be(files):
    _, hard = files
    for number, limit in ((10, 522), (10**9, hard)):
        resource.setrlimit(resource.RLIMIT_NOFILE, (500, hard))
        remote.allow_files(number)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (limit, hard)
    remote.allow_files(10)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)  # a high one stays


def started(script: str, heard: list[bytes]) -> Child:
    words = ["/bin/sh", "-c", script]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return Child(subprocess.Popen(words, bufsize=0, **pipes), heard.append, heard.append)


def test_processes_are_heard_to_their_ends_whenever_they_end():
    heard: list[bytes] = []
    children = [started(script, heard) for script in ("echo a", "sleep 0.3; echo b", "echo c; sleep 0.1", "exit 3")]
    children[3].process.wait()  # seen to have ended before anyone listens
    assert listen(children, time.monotonic() + 20, lambda: False)
    assert sorted(b"".join(heard).split()) == [b"a", b"b", b"c"]
    assert [child.process.returncode for child in children] == [0, 0, 0, 3]
    for child in children:
        for pipe in (child.process.stdin, child.process.stdout, child.process.stderr):
            pipe.close()
