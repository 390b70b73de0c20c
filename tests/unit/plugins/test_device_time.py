"""PyTorch's device timer on a GPU that is played: a host and a device, each with a time of its own."""

import time
from collections import deque

import pytest
import torch

from benchmarker.records.record import DeviceTime
from benchmarker.worker import timing
from benchmarker_plugins.frameworks.torch import TorchFramework

QUEUE = 40
"""Launches that the played device holds; the host waits to add another one."""


class Gpu:
    """Runs what the host launches in order, on each stream; `now_s` is the host's time, and a launch takes it 10 us."""

    def __init__(self, monkeypatch):
        self.now_s = 0.0
        self.end_s = dict.fromkeys(("current", "other"), 0.0)
        self.queued = deque()
        gpu = self

        class Event:
            def __init__(self, enable_timing):
                assert enable_timing

            def record(self):
                self.at_s = max(gpu.now_s, gpu.end_s["current"])

            def query(self):
                return self.at_s <= gpu.now_s

            def elapsed_time(self, end):
                assert self.query()
                assert end.query()
                return 1e3 * (end.at_s - self.at_s)

        monkeypatch.setattr(torch.cuda, "Event", Event)
        monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: self.launch(cycles / 1.5e9))
        monkeypatch.setattr(torch.cuda, "synchronize", self.synchronize)
        monkeypatch.setattr(time, "perf_counter", lambda: self.now_s)

    def launch(self, seconds, stream="current"):
        while self.queued and self.queued[0] <= self.now_s:
            self.queued.popleft()
        if len(self.queued) >= QUEUE:
            self.now_s = max(self.now_s, self.queued.popleft())
        self.now_s += 1e-5
        self.end_s[stream] = max(self.now_s, self.end_s[stream]) + seconds
        self.queued.append(self.end_s[stream])

    def synchronize(self):
        self.now_s = max(self.now_s, *self.end_s.values())

    def sleep(self, seconds):
        self.now_s += seconds


@pytest.fixture
def gpu(monkeypatch):
    return Gpu(monkeypatch)


@pytest.fixture
def timer():
    return TorchFramework(torch.device("cuda")).device_timer()


def test_a_cpu_has_no_timer():
    assert TorchFramework(torch.device("cpu")).device_timer() is None


def test_work_that_keeps_the_device_busy_is_all_of_its_time(gpu, timer):
    assert timer(lambda: gpu.launch(2e-3), 5) == pytest.approx(10e6, abs=1)


def test_waiting_for_launches_is_not_in_it(gpu, timer):
    """The steps of 100 us are launched only every millisecond."""

    def step():
        gpu.sleep(1e-3)
        gpu.launch(1e-4)

    start_s = gpu.now_s
    assert timer(step, 20) == pytest.approx(2e6, abs=1)
    assert gpu.now_s - start_s > 0.04


def test_a_step_that_waits_for_its_result_cannot_be_timed(gpu, timer):
    def step():
        gpu.launch(1e-4)
        gpu.synchronize()

    assert timer(step, 1) is None
    assert timing.device_time(timer, step, 16) is None


def test_steps_that_the_queue_does_not_hold_cannot_be_timed_together(gpu, timer):
    """A step has 16 launches, and the queue holds 40 with that of the sleeping kernel: two steps of the eight."""

    def step():
        for _ in range(16):
            gpu.launch(1e-6)

    assert timer(step, 8) is None
    assert timing.device_time(timer, step, 8) == DeviceTime(2, [32_000] * timing.DEVICE_BLOCKS)


def test_a_step_that_launches_nothing_takes_no_less_than_a_nanosecond(gpu, timer):
    assert timer(lambda: None, 1) == 1


def test_work_on_another_stream_is_not_in_it(gpu, timer):
    """As docs/measuring.md says: only the synchronisation after the steps waits for it."""

    def step():
        gpu.launch(1e-3, stream="other")
        gpu.launch(1e-4)

    assert timer(step, 4) == pytest.approx(4e5, abs=1)


def test_blocks_of_long_steps_end_with_their_time(gpu, timer):
    times = timing.device_time(timer, lambda: gpu.launch(0.6), 1)
    assert times.duration_ns == pytest.approx([600_000_000] * 2, abs=1)


def test_a_block_that_was_not_held_is_left_out():
    taken = iter([None, 7, None, *[7] * 99])
    assert timing.device_time(lambda *_: next(taken), int, 4) == DeviceTime(2, [7] * 9)
