"""Event counters: those of this kernel against its other counts, and those of a played processor against its rates."""

import errno
import mmap
import os
import resource
import subprocess
import sys
import threading
import time

import pytest

from benchmarker import UserError
from benchmarker.machine import perf_events
from benchmarker.machine.perf_events import COUNTERS, Counters, Linux, Reading, totals
from benchmarker.records.record import EventCount

PAGES = 1000
HERE = perf_events.available()


def only_if(name):
    """Leave a test out where the system does not permit or have a counter."""
    return pytest.mark.skipif(bool(HERE[name]), reason=HERE[name])


def touch(pages=PAGES):
    """Use fresh pages, of which each is a page fault."""
    memory = mmap.mmap(-1, pages * mmap.PAGESIZE)
    for at in range(0, len(memory), mmap.PAGESIZE):
        memory[at] = 1
    memory.close()


def count(work, *names):
    """Return what is counted while something is done."""
    counters = Counters(names)
    try:
        counters.enable()
        work()
        counters.disable()
        touch()  # after its end, so it does not count
        return {reading.name: reading for reading in counters.read()}
    finally:
        counters.close()


@only_if("page_faults")
def test_page_faults_are_as_many_as_fresh_pages():
    found = count(touch, "page_faults")["page_faults"]
    assert PAGES <= found.value < 1.05 * PAGES
    assert found.enabled_ns == found.running_ns > 0


@only_if("page_faults")
@pytest.mark.parametrize("is_earlier", [True, False])
def test_all_threads_count(is_earlier):
    """One that runs before the counters are opened, and one that starts only then."""
    go = threading.Event()
    thread = threading.Thread(target=lambda: (go.wait(), touch()))

    def work():
        if not is_earlier:
            thread.start()
        go.set()
        thread.join()

    if is_earlier:
        thread.start()
    assert PAGES <= count(work, "page_faults")["page_faults"].value < 1.2 * PAGES


CHILD = """
import mmap
memory = mmap.mmap(-1, 20000 * mmap.PAGESIZE)
for at in range(0, len(memory), mmap.PAGESIZE): memory[at] = 1
"""


@only_if("page_faults")
def test_a_program_counts_as_the_system_says_of_it():
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    work = [sys.executable, "-S", "-c", CHILD]
    found = count(lambda: subprocess.run(work, check=True), "page_faults", "task_clock")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    faults = after.ru_minflt + after.ru_majflt - before.ru_minflt - before.ru_majflt
    busy_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert found["page_faults"].value == pytest.approx(faults, rel=0.05)
    assert found["task_clock"].value / 1e9 == pytest.approx(busy_s, rel=0.1, abs=0.02)
    assert all(reading.enabled_ns == reading.running_ns for reading in found.values())


@only_if("task_clock")
def test_the_task_clock_is_the_time_of_the_thread():
    start = end = 0

    def work():
        nonlocal start, end
        start = time.thread_time_ns()
        while time.thread_time_ns() < start + 50_000_000:
            pass
        end = time.thread_time_ns()

    assert count(work, "task_clock")["task_clock"].value == pytest.approx(end - start, rel=0.05)


@only_if("context_switches")
def test_a_thread_that_sleeps_is_switched_each_time():
    start = end = resource.getrusage(resource.RUSAGE_SELF)

    def work():
        nonlocal start, end
        start = resource.getrusage(resource.RUSAGE_SELF)
        for _ in range(20):
            time.sleep(0.001)
        end = resource.getrusage(resource.RUSAGE_SELF)

    found = count(work, "context_switches", "cpu_migrations")
    switches = end.ru_nvcsw + end.ru_nivcsw - start.ru_nvcsw - start.ru_nivcsw
    assert switches - 2 <= found["context_switches"].value <= switches + 5
    assert 0 <= found["cpu_migrations"].value <= switches + 5


@only_if("cpu_migrations")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core")
def test_a_thread_that_is_moved_migrates():
    cores = os.sched_getaffinity(0)
    one, other, *_ = cores

    def work():
        for _ in range(10):
            os.sched_setaffinity(0, {other})
            os.sched_setaffinity(0, {one})

    os.sched_setaffinity(0, {one})
    try:
        found = count(work, "cpu_migrations")["cpu_migrations"]
    finally:
        os.sched_setaffinity(0, cores)
    assert found.value == 20


class Played:
    """A processor with few registers, in a process whose threads run while events are enabled.

    Each thread has its own rate of each event, in events per ns. Events that are more than the registers take turns, so
    that each is counted for an equal part of the time.
    """

    def __init__(self, rates, registers=4, refused=(), most_files=1000, gone=()):
        self.rates, self.registers, self.most_files, self.gone = rates, registers, most_files, gone
        self.refused = dict(refused)
        self.files = {}
        self.is_on = False
        self.ran_ns = 0

    def threads(self):
        return [*self.rates, *self.gone]

    def open(self, event, thread):
        (name,) = (name for name, each in COUNTERS.items() if each == event)
        number = errno.ESRCH if thread in self.gone else self.refused.get(name, 0)
        if not number and len(self.files) >= self.most_files:
            number = errno.EMFILE
        if number:
            raise OSError(number, os.strerror(number))
        descriptor = 3 + len(self.files)
        self.files[descriptor] = name, thread
        return descriptor

    def enable(self):
        self.is_on = True

    def disable(self):
        self.is_on = False

    def run(self, duration_ns):
        self.ran_ns += duration_ns if self.is_on else 0

    def read(self, descriptor):
        name, thread = self.files[descriptor]
        opened = sum(each == thread for _, each in self.files.values())
        running_ns = self.ran_ns * min(self.registers, opened) // opened
        return round(self.rates[thread][name] * running_ns), self.ran_ns, running_ns

    def close(self, descriptor):
        del self.files[descriptor]


RATES = {7: {"cycles": 3.0, "instructions": 6.0, "llc_misses": 0.01}, 8: dict.fromkeys(COUNTERS, 1.0)}
NAMES = ["cycles", "instructions", "llc_misses"]
TRUE = {"cycles": 4_000_000, "instructions": 7_000_000, "llc_misses": 1_010_000}  # in 1 ms of each thread


def played(**options):
    """Return what a played processor counts of 1 ms in each thread, and what of it is still open."""
    kernel = Played(RATES, **options)
    counters = Counters(NAMES, kernel)
    kernel.run(500_000)  # not enabled
    counters.enable()
    kernel.run(1_000_000)
    counters.disable()
    kernel.run(500_000)
    readings = counters.read()
    counters.close()
    return readings, kernel.files


def test_events_that_fit_are_counted_all_the_time():
    readings, left_open = played()
    assert totals([readings]) == ([EventCount(name, TRUE[name], 1.0) for name in NAMES], {})
    assert left_open == {}


def test_events_that_take_turns_are_scaled():
    readings, _ = played(registers=2)
    assert [reading.value for reading in readings] == [2_666_664, 4_666_662, 673_333]  # two thirds
    counts, reasons = totals([readings])
    assert reasons == {}
    for each in counts:
        assert each.count == pytest.approx(TRUE[each.name], rel=1e-5)
        assert each.counted_share == pytest.approx(2 / 3, rel=1e-5)


def test_what_never_had_a_turn_is_not_a_zero():
    counts, reasons = totals([played(registers=0)[0]])
    assert counts == [EventCount(name, None, 0.0) for name in NAMES]
    assert set(reasons) == {f"counters[{at}].count" for at in range(3)}
    assert "no free register" in reasons["counters[0].count"]


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.ENOENT, "the processor has no such counter, or the virtual machine hides it"),
        (errno.EOPNOTSUPP, "the processor has no such counter, or the virtual machine hides it"),
        (errno.ENOSYS, "there are event counters only in Linux on x86_64, aarch64"),
        (errno.EIO, os.strerror(errno.EIO)),
    ],
)
def test_a_counter_that_the_system_refuses_has_a_reason_and_the_others_count(number, reason):
    readings, left_open = played(refused={"cycles": number})
    counts, reasons = totals([readings])
    assert [each.count for each in counts] == [None, TRUE["instructions"], TRUE["llc_misses"]]
    assert list(reasons) == ["counters[0].count"]
    assert reasons["counters[0].count"].startswith(reason)
    assert left_open == {}


@pytest.mark.parametrize(
    ("name", "paranoid", "remedy"),
    [
        ("cycles", 4, "kernel.perf_event_paranoid is 4; as root, `sysctl kernel.perf_event_paranoid=2` permits it"),
        ("context_switches", 2, "`sysctl kernel.perf_event_paranoid=1` permits it"),
        ("cycles", 2, "--cap-add=PERFMON"),
        ("page_faults", None, "--cap-add=PERFMON"),
    ],
)
def test_a_counter_that_is_not_permitted_names_the_remedy(monkeypatch, name, paranoid, remedy):
    monkeypatch.setattr(perf_events, "_paranoid", lambda: paranoid)
    (reading,) = Counters([name], Played(RATES, refused={name: errno.EACCES})).read()
    assert remedy in reading.reason


def test_too_many_open_files_lose_a_counter_and_leave_none_open():
    readings, left_open = played(most_files=5)
    counts, reasons = totals([readings])
    assert [each.count for each in counts] == [TRUE["cycles"], TRUE["instructions"], None]
    assert "ulimit -n" in reasons["counters[2].count"]
    assert left_open == {}


def test_a_thread_that_has_ended_meanwhile_is_left_out():
    readings, _ = played(gone=[9])
    assert [each.count for each in totals([readings])[0]] == list(TRUE.values())


def test_counts_of_ranks_are_added_unless_one_is_missing():
    ranks = [[Reading("cycles", 10, 100, 100)], [Reading("cycles", 20, 100, 50)]]
    assert totals(ranks) == ([EventCount("cycles", 40, 0.75)], {})
    lost = [*ranks, [Reading("cycles", reason="no such counter")]]
    assert totals(lost) == ([EventCount("cycles", None, 0.0)], {"counters[0].count": "no such counter"})


@pytest.mark.parametrize(("system", "machine"), [("darwin", "arm64"), ("linux", "s390x")])
def test_on_another_system_nothing_is_counted_and_nothing_fails(monkeypatch, system, machine):
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr("platform.machine", lambda: machine)
    counters = Counters(list(COUNTERS), Linux())
    counters.enable()
    counters.disable()
    assert {reading.reason.partition(" only in ")[0] for reading in counters.read()} == {"there are event counters"}


def test_names_are_those_that_there_are():
    assert perf_events.chosen("cycles, page_faults,cycles") == ["cycles", "page_faults"]
    assert perf_events.chosen("none") == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cycles,flops", "--counters: no counter is named 'flops'; there are: cycles, instructions"),
        ("", "--counters names no counter; there are: cycles"),
        ("none,cycles", "none cannot be combined with other names"),
    ],
)
def test_other_names_are_refused(text, message):
    with pytest.raises(UserError, match=message):
        perf_events.chosen(text)
