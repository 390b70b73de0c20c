"""How a process is started, where an interrupt comes amid it."""

import signal
import subprocess
from contextlib import closing
from types import SimpleNamespace

import pytest

from benchmarker import guard
from benchmarker.agent.remote import Agents
from benchmarker.api.errors import TerminatedError, terminate
from benchmarker.fleet.links import run_links
from benchmarker.fleet.parent import run_stage
from benchmarker.hooks import launchers
from benchmarker.power import samplers


@pytest.fixture(params=[signal.SIGINT, signal.SIGTERM])
def begun(request, monkeypatch):
    """The processes that were started; an interrupt came before anybody knew of them."""
    found = []

    class Interrupted(subprocess.Popen):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            found.append(self)
            signal.raise_signal(request.param)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    before = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, terminate)
    yield found
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) is terminate
    for number, handler in before:
        signal.signal(number, handler)
    for process in found:
        process.kill()


def test_a_process_is_ended_though_its_start_was_interrupted(begun, request):
    expected = TerminatedError if request.node.callspec.params["begun"] == signal.SIGTERM else KeyboardInterrupt
    with pytest.raises(expected), guard.started("code", stdin=subprocess.PIPE):
        raise AssertionError("the interrupt was lost")
    (process,) = begun
    assert process.poll() is not None


def test_a_sampler_is_ended_though_its_start_was_interrupted(begun):
    with pytest.raises(KeyboardInterrupt):
        samplers.probe(["replay"], None, {})
    with pytest.raises(KeyboardInterrupt), samplers.Sampling(["replay"], None, 10.0, {}):
        raise AssertionError("the interrupt was lost")
    assert [process.poll() is not None for process in begun] == [True, True]


class Launcher:
    def command(self, nodes, program):
        return ["cat"]  # it ends when its input does, as an agent and a node of a fleet


def test_an_agent_is_ended_though_its_start_was_interrupted(begun):
    with (
        pytest.raises(KeyboardInterrupt),
        closing(Agents(Launcher(), None, None)) as agents,
        agents.on(("left", "right")),
    ):
        raise AssertionError("the interrupt was lost")
    (process,) = begun
    assert process.poll() is not None


def test_the_nodes_of_a_fleet_are_ended_though_their_start_was_interrupted(begun, tmp_path, monkeypatch):
    monkeypatch.setattr(launchers, "load_launcher", lambda _: Launcher())
    stages = [SimpleNamespace(nodes=["left", "right"])]
    with pytest.raises(KeyboardInterrupt):
        run_stage(tmp_path, SimpleNamespace(stages=stages, allocation=SimpleNamespace(launcher="")), 0, 1.0, None)
    (process,) = begun
    assert process.poll() is not None


def test_the_process_of_a_link_is_ended_though_its_start_was_interrupted(begun, tmp_path):
    stages = [SimpleNamespace(links=[("left", "right")])]
    with pytest.raises(KeyboardInterrupt):
        run_links(tmp_path, SimpleNamespace(link_stages=stages), 0, None, 1.0, None)
    (process,) = begun
    assert process.poll() is not None
