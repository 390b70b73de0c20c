"""Sets of inputs: how many there are, where they lie, and that steps take them in turns."""

from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from benchmarker.api.case import Measuring
from benchmarker.records.record import Inputs, sets_of_rotation
from benchmarker.worker import bench as module
from benchmarker.worker.bench import BATCHES, MOST_SETS, open_bench, with_sets
from benchmarker.worker.draws import drawn
from benchmarker.worker.process_group import Group, RankRunner

MIB = 2**20
PRODUCT_BYTES = 2 * 64 * 64 * 4
"""A and B."""


@pytest.fixture
def machine(monkeypatch):
    """Sets the last-level cache of the processor, and the memory that is available."""

    def is_so(cache_bytes, available=2**40):
        monkeypatch.setattr(module, "last_cache_bytes", lambda: cache_bytes)
        monkeypatch.setattr(module.psutil, "virtual_memory", lambda: SimpleNamespace(available=available))

    return is_so


def opened(problem, cache=None, framework="numpy", precision="fp32", **options):
    bench = open_bench(problem, framework, "cpu", precision=precision, **options)
    bench.case = msgspec.structs.replace(bench.case, measuring=Measuring(cache=cache))
    return bench


def product(cache=None, **options):
    return opened("gemm", cache, m=64, n=64, k=64, **options)


def test_a_rotation_fills_the_cache_five_times_before_a_set_has_its_turn_again():
    assert sets_of_rotation(32 * MIB, 48 * 1024) == 3415  # 5 · 32 MiB / 48 KiB = 3413.3
    assert sets_of_rotation(32 * MIB, 160 * MIB) == 2
    assert sets_of_rotation(32 * MIB, 2**40) == 2


def test_kernels_rotate_unless_they_are_to_stay_hot(machine):
    machine(MIB)
    assert product().draw()[1] == Inputs("rotate", 161, PRODUCT_BYTES)
    assert product("rotate").draw()[1] == product().draw()[1]
    assert product("hot").draw()[1] == Inputs("hot", 1, PRODUCT_BYTES)


def test_a_gradient_that_no_step_reads_is_not_counted(machine):
    machine(MIB)
    thin = opened("gemm", m=512, n=512, k=1)
    assert thin.draw()[1].set_bytes == 2 * 512 * 4  # not the MiB of the gradient, beside which one set would do
    both = opened("gemm", framework="torch", m=512, n=512, k=1)
    both.case = msgspec.structs.replace(both.case, mode="forward_backward")
    assert both.draw()[1].set_bytes == 2 * 512 * 4 + 512 * 512 * 4


def test_models_take_turns_with_the_batches_that_are_drawn(machine):
    machine(MIB)
    _, inputs = opened("lu", n=64).draw()
    assert (inputs.cache, inputs.sets) == (None, BATCHES)
    assert opened("lu", "rotate", n=1024).draw()[1].sets == sets_of_rotation(MIB, 1024 * 4)


@pytest.mark.parametrize(
    ("cache_bytes", "available", "sets", "limited_by"),
    [
        (MIB, 4 * 20 * PRODUCT_BYTES, 20, "memory"),
        (MIB, 0, 1, "memory"),
        (2**40, 2**60, MOST_SETS, "number"),
        (None, 2**40, BATCHES, "unknown_cache"),
    ],
)
def test_what_limits_a_rotation_is_recorded(machine, cache_bytes, available, sets, limited_by):
    machine(cache_bytes, available)
    assert product().draw()[1] == Inputs("rotate", sets, PRODUCT_BYTES, limited_by)


def test_bytes_are_those_on_the_device(machine):
    machine(MIB)
    assert product(framework="torch", precision="bf16").draw()[1].set_bytes == PRODUCT_BYTES // 2
    assert product(framework="torch", precision="int8").draw()[1].set_bytes == 2 * 64 * 64
    assert opened("fft", precision="fp64", nx=8, ny=8, nz=8).draw()[1].set_bytes == 8**3 * 16


def test_further_sets_are_copies_elsewhere_in_memory_and_the_first_are_what_they_were():
    bench = product()
    first = drawn(bench.problem, "fp32", 0, BATCHES).batches
    made = bench.draw()[0]
    data = with_sets(made, 10, bench.read(made))
    assert len({batch["a"].ctypes.data for batch in data.batches}) == 10
    for number, batch in enumerate(data.batches):
        for name, array in batch.items():
            np.testing.assert_array_equal(array, first[number % BATCHES][name])
    assert len({batch["dc"].ctypes.data for batch in data.batches}) == BATCHES  # inference reads no gradient
    assert len(with_sets(made, 2, bench.read(made)).batches) == 2


def test_all_ranks_have_as_many_sets_as_that_with_the_fewest(monkeypatch):
    calls = []

    def gather(self, method, *args):
        calls.append((method, args))
        return [Inputs("rotate", 7, 8), Inputs("rotate", 5, 8, "memory")] if method is RankRunner.draw else [1, 2]

    monkeypatch.setattr(Group, "gather", gather)
    assert object.__new__(Group).build() == (Inputs("rotate", 5, 8, "memory"), 3)
    assert calls[1:] == [(RankRunner.build, (5,))]
