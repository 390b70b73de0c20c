"""`serve-load --framework`: an engine in a worker, checked, loaded, and ended."""

import os
import signal
from itertools import pairwise

import pytest

from benchmarker.records import load as loads
from benchmarker.serving.engine import EngineServer

CHAT = ("--framework=toy", "--problem=chat", "--first-ms=2", "--gap-ms=1")
QUICK = ("--prompt-len=3", "--new-tokens=4", "--seconds=0.4s", "--seed=1")


@pytest.fixture
def serve(cli):
    return lambda *options: cli("serve-load", *CHAT, *QUICK, *options)


def stored(tmp_path):
    (path,) = (tmp_path / "results").glob("*/load.json")
    return path, loads.read(path)


def test_an_engine_answers_every_request_with_a_time_for_each_token(serve, cli, tmp_path):
    done = serve("--rate=40", "--slots=3")
    path, load = stored(tmp_path)
    (step,) = load.steps
    assert (done.returncode, len(step.outcomes)) == (0, step.planned)
    assert all(len(each.chunks_s) == each.answer_tokens == 4 and not each.failure for each in step.outcomes)
    assert all(each.chunks_s[0] - each.arrival_s >= 0.002 for each in step.outcomes)
    assert all(each.chunks_s[-1] - each.arrival_s >= 0.005 for each in step.outcomes)
    assert load.endpoint is None
    assert (load.engine.slots, load.engine.positions, load.engine.check.ok) == (3, 7, True)
    assert load.engine.case.params["slots"] == 3
    lines = done.stdout.splitlines()
    assert lines[0].startswith("chat first_ms=2 gap_ms=1 in toy eager, fp32, 3 slots, on toy: 3 prompt tokens, 4 new")
    assert lines[-1] == "doubt: client and engine shared one machine, and may have slowed each other"
    assert cli("show", str(path)).stdout == done.stdout


def test_a_single_slot_serves_one_request_after_the_other(serve, tmp_path):
    assert serve("--rate=40", "--slots=1", "--arrivals=bursts").returncode == 0
    outcomes = stored(tmp_path)[1].steps[0].outcomes
    spans = sorted((each.chunks_s[0], each.chunks_s[-1]) for each in outcomes)
    assert len(spans) >= 8
    assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))


def test_wrong_tokens_are_refused_before_any_request(serve, tmp_path):
    done = serve("--rate=40", "--is-wrong")
    assert done.returncode == 2
    assert "wrong tokens: in the float64 reference, a chosen token is " in done.stderr
    assert not (tmp_path / "results").exists()


def test_an_engine_that_dies_leaves_what_was_measured(serve, tmp_path):
    done = serve("--rate=40,50", "--slots=1", "--last-words=8")  # some of these are of the warm-up
    load = stored(tmp_path)[1]
    kinds = {each.failure.kind for step in load.steps for each in step.outcomes if each.failure}
    assert "cut" in kinds
    assert kinds <= {"cut", "refused"}
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "benchmarker: error: the engine has ended at 50 requests/s; start it again"
    assert "x the worker ended with status 7" in done.stdout


def test_an_engine_that_never_starts_is_one_line(serve):
    done = serve("--rate=40", "--last-words=1", "--slots=1")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "benchmarker: error: the worker ended with status 7"


def test_an_interrupt_leaves_what_was_measured_and_no_process(serve, tmp_path, monkeypatch):
    servers, take = [], EngineServer._take

    def interrupted(self, numbers, now):
        servers.append(self)
        if len(servers) == 20:
            os.kill(os.getpid(), signal.SIGINT)
        take(self, numbers, now)

    monkeypatch.setattr(EngineServer, "_take", interrupted)
    done = serve("--rate=40,41", "--seconds=20s")
    (step,) = stored(tmp_path)[1].steps
    assert done.returncode == 130
    assert 0 < len(step.outcomes) <= 20
    assert f"doubt: interrupted: only {len(step.outcomes)} of {step.planned} requests finished" in done.stdout
    assert not servers[0]._thread.is_alive()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--framework=toy"], "an engine needs a language model; give --problem=llama"),
        (["--framework=toy", "--problem=nap"], "this problem generates no text; serve-load needs a language model"),
        (["--framework=toy", "--problem=gemm"], "this problem generates no text; serve-load needs a language model"),
        (["--framework=numpy", "--problem=llama"], "llama in numpy does not support --phase=decode"),
        (["--framework=toy,torch", "--problem=chat"], "torch has no implementation of chat"),
        (["--framework=toy", "--problem=chat", "--endpoint=http://127.0.0.1:9"], "leave --endpoint out"),
        (["--framework=toy", "--problem=chat", "--prompts=words"], "leave --prompts out"),
        (["--framework=toy", "--problem=chat", "--positions=9"], "No such option '--positions'"),
        (["--endpoint=http://127.0.0.1:9", "--slots=2"], "a server has its own model; leave --slots out"),
        (["--endpoint=http://127.0.0.1:9", "--problem=chat"], "a server has its own model; leave --problem out"),
    ],
)
def test_options_that_make_no_engine_are_one_line(cli, options, words):
    done = cli("serve-load", "--rate=30", *options)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert words in line
