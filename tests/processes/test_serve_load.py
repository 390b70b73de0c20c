"""`serve-load` against a server on the loopback interface, in the test's process."""

import asyncio
import itertools
import json
import os
import signal
import socket
import sys
import threading
from functools import partial

import pytest
from support.raw_server import ANSWER, END, HEAD, TOKEN, answering
from support.serving import PatientLoop, openai

from benchmarker.records import load as loads
from benchmarker.records.load import Lengths
from benchmarker.serving.arrivals import draw

QUICK = ("--prompt-len=4", "--new-tokens=3", "--seconds=0.4s", "--seed=1")


@pytest.fixture
def toy():
    with openai() as made:
        yield made


@pytest.fixture
def serve(command, toy):
    return lambda *options: command("serve-load", f"--endpoint={toy.url}", *QUICK, *options)


def stored(tmp_path):
    (path,) = (tmp_path / "results").glob("*/load.json")
    return path, loads.read(path)


def test_one_rate_shows_percentiles_goodput_and_doubts(serve, toy, tmp_path):
    done = serve("--rate=50", "--slo=ttft=30s,tpot=10s")
    path, load = stored(tmp_path)
    (step,) = load.steps
    assert (done.returncode, load.model, step.planned) == (0, "toy", len(toy.bodies) - 1)
    assert all(len(each.chunks_s) == each.answer_tokens == 3 for each in step.outcomes)
    lines = done.stdout.splitlines()
    assert lines[0] == (
        f"toy at {toy.url}: 4 prompt tokens, 3 new tokens, Poisson arrivals; SLO: TTFT ≤ 30 s, TPOT ≤ 10 s"
    )
    assert lines[1].startswith(f"50 requests/s for 0.4 s: {step.planned} of {step.planned} requests answered")
    assert "100.0%" in lines[2]
    assert [line.split()[0] for line in lines[4:21:4]] == ["TTFT", "ITL", "TPOT", "end", "lateness"]
    assert lines[-1] == "doubt: client and server shared one machine, and may have slowed each other"
    assert str(path.relative_to(tmp_path)) in done.stderr


def test_requests_are_what_was_asked_for_and_never_repeat(serve, toy):
    assert serve("--rate=30").returncode == 0
    body = toy.bodies[0]
    assert {name: body[name] for name in body if name != "prompt"} == {
        "model": "toy",
        "max_tokens": 3,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
    }
    assert [len(each["prompt"]) for each in toy.bodies] == [4] * len(toy.bodies)
    assert len({tuple(each["prompt"]) for each in toy.bodies}) == len(toy.bodies)


def test_servers_without_ids_and_extensions_get_words(serve, toy):
    assert serve("--rate=30", "--prompts=words", "--stop-at-eos").returncode == 0
    assert all(len(each["prompt"].split()) == 4 and "ignore_eos" not in each for each in toy.bodies)


def test_several_rates_are_a_table_and_json_has_the_same(serve, command, tmp_path):
    done = serve("--rate=40,20", "--slo=e2e=30s")
    rows = [line.split() for line in done.stdout.splitlines() if line.strip().startswith(("20", "40"))]
    assert [row[0] for row in rows] == ["20", "40"]
    shown = json.loads(command("show", str(stored(tmp_path)[0]), "--json").stdout)
    assert [step["rate_per_s"] for step in shown["steps"]] == [20.0, 40.0]
    assert {step["met"]["value"] for step in shown["steps"]} == {1.0}
    assert set(shown["steps"][0]["latencies"]["ttft_s"]) == {"p50", "p90", "p95", "p99"}
    assert shown["highest"] is None


def test_a_search_ends_at_its_limits(serve, toy):
    done = serve("--rate=20..60", "--slo=ttft=30s", "--json")
    shown = json.loads(done.stdout)
    assert (done.returncode, shown["highest"]["rate"], shown["highest"]["is_bounded"]) == (0, 60.0, False)
    toy.token_s = 0.01
    failed = serve("--rate=20..60", "--slo=ttft=5ms")
    assert failed.returncode == 1
    assert "no rate holds the SLO for 90% of requests: the lowest tried, 20 requests/s, does not" in failed.stdout


def test_a_trace_gives_arrivals_and_lengths(command, toy, tmp_path):
    (tmp_path / "trace.csv").write_text("arrival_s,prompt_len,new_tokens\n0.1,5,2\n0,7,4\n")
    done = command("serve-load", f"--endpoint={toy.url}", "--trace=trace.csv")
    assert done.returncode == 0
    assert [(len(each["prompt"]), each["max_tokens"]) for each in toy.bodies] == [(7, 4), (7, 4), (5, 2)]
    assert stored(tmp_path)[1].steps[0].rate_per_s is None
    assert "arrivals of a trace file" in done.stdout


def test_single_failures_are_counted_and_shown(serve, toy, tmp_path):
    toy.fails, toy.cuts = {2}, {3, 4}
    done = serve("--rate=60")
    assert done.returncode == 0
    planned = stored(tmp_path)[1].steps[0].planned
    assert f"3 of {planned} requests failed (2 cut, 1 status); they count as slower than all others:" in done.stdout
    assert "  2 x the connection ended before the answer did" in done.stdout
    assert '  1 x HTTP 503: {"error": "overloaded"}' in done.stdout
    assert "failed" in next(line for line in done.stdout.splitlines() if line.split()[:1] == ["p99"])


def test_overload_ends_the_load_is_told_first_and_fails(serve, toy, command, tmp_path, monkeypatch):
    """The requests of the first rate are answered, then none: of 22, 6 are enough (at most 89.3% are answered)."""
    answered = 1 + len(draw(20.0, 0.4, Lengths(4, 4), Lengths(3, 3), seed=1))
    ended = threading.Event()
    toy.heard = lambda number: number < answered or ended.wait(30)
    loop = partial(PatientLoop, lambda connections: connections == len(toy.bodies) - answered)

    def run(work):
        with asyncio.Runner(loop_factory=loop) as runner:
            return runner.run(work)

    with monkeypatch.context() as patched:
        patched.setattr(asyncio, "run", run)
        done = serve("--rate=20,60,90", "--timeout=300ms")
    ended.set()
    path, load = stored(tmp_path)
    kept, ended = load.steps
    kinds = [each.failure.kind for each in ended.outcomes]
    assert (done.returncode, kept.rate_per_s, ended.rate_per_s) == (1, 20.0, 60.0)
    assert (ended.planned, kinds.count("timeout"), set(kinds)) == (22, 6, {"timeout", "dropped"})
    assert done.stdout.splitlines()[0] == (
        "overloaded at 60 requests/s: 6 of 22 requests timed out after 300 ms, then the load was ended; "
        "highest rate kept: 20 requests/s"
    )
    assert "90 requests/s: not tried, because a lower rate was too high" in done.stderr
    again = command("show", str(path), "--json")
    assert again.returncode == 1
    assert [each["overloaded"] for each in json.loads(again.stdout)["steps"]] == [False, True]


def test_a_server_that_answers_none_after_the_first_is_a_failed_check(serve, toy):
    toy.cuts = range(1, 1000)
    assert serve("--rate=30").returncode == 1


def test_several_tokens_in_a_chunk_and_a_missing_count_are_told(serve, toy):
    toy.tokens_per_chunk = 3
    assert "fewer chunks than tokens (3 tokens a chunk): ITL is the gap between chunks" in serve("--rate=30").stdout
    toy.has_usage = False
    assert "came without a count of tokens: chunks were counted" in serve("--rate=30").stdout


def test_an_interrupt_leaves_what_was_measured(serve, toy, tmp_path):
    toy.heard = lambda number: number == 12 and os.kill(os.getpid(), signal.SIGINT)
    done = serve("--rate=20,21", "--seconds=20s")
    path, load = stored(tmp_path)
    (step,) = load.steps
    assert done.returncode == 130
    assert 0 < len(step.outcomes) <= 12
    assert step.seconds < 20.0
    assert f"doubt: interrupted: only {len(step.outcomes)} of {step.planned} requests finished" in done.stdout
    assert path.name in done.stderr


def test_a_search_ends_when_the_server_is_gone(serve, toy, tmp_path):
    last = len(draw(20.0, 0.4, Lengths(4, 4), Lengths(3, 3), seed=1))  # the first request is not measured
    toy.heard = lambda number: number == last and toy.close()
    done = serve("--rate=20..60", "--slo=ttft=30s")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        "benchmarker: error: the server is gone: no connection at 60 requests/s; start it again"
    )
    assert [each.rate_per_s for each in stored(tmp_path)[1].steps] == [20.0, 60.0]
    assert "20 requests/s hold the SLO for 90% of requests" in done.stdout


def test_what_cannot_be_stored_is_shown_nevertheless(serve):
    done = serve("--rate=30", "--results=/dev/null/results")
    assert done.returncode == 2
    assert "30 requests/s for 0.4 s" in done.stdout
    assert done.stderr.splitlines()[-1].endswith("name another folder with --results")


def test_a_stored_load_is_shown_again(serve, command, tmp_path):
    first = serve("--rate=30")
    path, _ = stored(tmp_path)
    assert command("show", str(path)).stdout == first.stdout
    assert command("show", str(path.parent)).stdout == first.stdout
    assert "is a load, which has no trials and no metrics" in command("show", str(path), "--trials").stderr


HOSTILE = {
    HEAD + b'\r\ndata: {"usage": {"completion_tokens": -5}}\n\n' + TOKEN + END: "Expected `int` >= 0",
    HEAD + b'\r\ndata: {"usage": {"prompt_tokens": %d}}\n\n' % 2**63 + TOKEN + END: "Expected `int` <= ",
    HEAD + b'\r\ndata: {"usage": {"prompt_tokens": %d}}\n\n' % 10**400 + TOKEN + END: "Expected `int` <= ",
    HEAD + b'\r\ndata: {"choices": [{"text": "\xff"}]}\n\n' + END: "'utf-8' codec",
    HEAD + b"\r\n" + TOKEN * 100 + END: "more than 16 chunks for each requested token",
    HEAD + b"\r\n" + b"x" * 2**20: "an event is longer than 256 KiB",
    b"HTTP/1.1 200 OK\r\nContent-Type: text/\xff\x1b[2J\r\n\r\n": r"the answer is text/\xdcff\x1b[2J",
    b"HTTP/1.1 500 no\r\n\r\n" + b"\x1b[2J\n" * 2**18: r"HTTP 500: \x1b[2J",
    b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 2**16: "headers",
}


def test_whatever_a_server_sends_the_load_is_stored_and_can_be_read(command, tmp_path):
    answers = itertools.chain([ANSWER], itertools.cycle(HOSTILE))
    with answering(lambda _: [next(answers)]) as url:
        done = command("serve-load", f"--endpoint={url}", "--model=toy", *QUICK, "--rate=60", "--timeout=20s")
    path, load = stored(tmp_path)
    messages = [each.failure.message for each in load.steps[0].outcomes]
    assert done.returncode == 1
    assert all(any(words in message for message in messages) for words in HOSTILE.values())
    assert all(message.isprintable() and len(message) < 400 for message in messages)
    assert command("show", str(path)).stdout == done.stdout


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.mark.parametrize("model", [(), ("--model=toy",)])
def test_no_server_is_one_line_that_names_the_remedy(command, model):
    url = f"http://127.0.0.1:{free_port()}"
    done = command("serve-load", f"--endpoint={url}", "--rate=1", *model)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"benchmarker: error: no server answers at {url}/v1: ")
    assert line.endswith("; start one there, or name another with --endpoint")


def test_a_server_that_refuses_the_first_request_is_one_line(serve, toy):
    toy.fails = range(1000)
    done = serve("--rate=30")
    assert done.returncode == 2
    assert done.stderr == (
        f'benchmarker: error: {toy.url} does not answer a request: HTTP 503: {{"error": "overloaded"}}\n'
    )


@pytest.mark.parametrize(("models", "words"), [([], "offers no model"), (["a", "b"], "offers a, b")])
def test_a_server_of_several_models_is_asked_for_a_named_one(serve, toy, models, words):
    toy.models = models
    assert f"{words}; name one with --model" in serve("--rate=30").stderr
    assert serve("--rate=30", "--model=b").returncode == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "no rate is given; write --rate=4"),
        (["--rate=1..20"], "give one: --slo=ttft=500ms"),
        (["--rate=1", "--slo=speed=1"], "'speed=1' is not a latency with its limit"),
        (["--rate=1", "--trace=x.csv"], "--trace provides arrivals and lengths; leave --rate out"),
        (["--rate=1", "--burst-size=3"], "there are no bursts without --arrivals=bursts; leave --burst-size out"),
        (["--rate=1", "--rate-precision=1%"], "there is no range of rates to search; leave --rate-precision out"),
        (["--rate=0.001"], "no request arrives within"),
    ],
)
def test_options_that_make_no_load_are_refused_before_any_request(command, toy, options, words):
    done = command("serve-load", f"--endpoint={toy.url}", "--seed=1", *options)
    assert (done.returncode, toy.bodies) == (2, [])
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_an_endpoint_is_needed_and_a_wrong_one_refused(command):
    assert "no server is named; give --endpoint=http://127.0.0.1:8000/v1" in command("serve-load", "--rate=1").stderr
    done = command("serve-load", "--endpoint=localhost:8000", "--rate=1")
    assert "--endpoint=localhost:8000 is no address of a server" in done.stderr


def test_without_its_library_the_message_has_the_command_that_installs_it(command, monkeypatch):
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    monkeypatch.delitem(sys.modules, "benchmarker.serving.openai", raising=False)
    monkeypatch.delattr("benchmarker.serving.openai", raising=False)
    done = command("serve-load", "--endpoint=http://127.0.0.1:8000", "--rate=1")
    assert "a load on an endpoint needs the module 'aiohttp'; pip install " in done.stderr
    assert "[serve]" in done.stderr
