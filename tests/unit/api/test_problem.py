"""What a problem has unless it says otherwise."""

from dataclasses import dataclass

import numpy as np
import pytest

from benchmarker import Cost, Data, HasParameters, IsExchange, Problem, Work
from benchmarker.api.problem import memory_of, parameter_count_of


@dataclass(frozen=True)
class Sums(Problem):
    """The running sum of batches, with scopes as it is told."""

    counts: tuple = (1,)

    def scopes(self, mode):
        return {f"scope_{number}": count for number, count in enumerate(self.counts)}

    def cost(self, mode, precision):
        return Cost(flops=10, bytes=80 if precision == "fp64" else 40, samples=1)

    def data(self, precision, rng, batches):
        raise NotImplementedError

    def small(self):
        return self


class Stepping(Sums):
    """One with a step."""

    def step(self, weights, batch, mode):
        weights["sum"] += batch["x"]
        return {"sum": weights["sum"].copy(), **batch}


class Exchange(IsExchange, Sums):
    """One that is an exchange."""


def test_the_only_scope_of_a_step_has_all_of_its_work():
    assert Sums().parts("inference", "fp32") == {"scope_0": Work(10, 40)}
    assert Sums().parts("inference", "fp64") == {"scope_0": Work(10, 80)}


@pytest.mark.parametrize("counts", [(1, 1), (2,), ()])
def test_other_scopes_have_no_formula(counts):
    assert Sums(counts).parts("inference", "fp32") == {}


def test_an_exchange_has_no_work_of_memory():
    assert Exchange().parts("inference", "fp32") == {}


def test_the_reference_takes_successive_steps_in_float64_and_leaves_the_data_alone():
    batches = tuple({"x": np.float32([value]), "z": np.complex64([1j]), "i": np.int32([7])} for value in (0.1, 0.2))
    data = Data({"sum": np.zeros(1, np.float32)}, batches)
    first, second = Stepping().reference(data, "training")
    assert {name: value.dtype for name, value in first.items()} == {
        "sum": np.float64,
        "x": np.float64,
        "z": np.complex128,
        "i": np.int32,
    }
    assert first["sum"] == np.float64(np.float32(0.1))
    assert second["sum"] == np.float64(np.float32(0.1)) + np.float64(np.float32(0.2))
    assert data.weights["sum"] == 0


def test_a_problem_without_a_step_and_a_reference_says_so():
    with pytest.raises(NotImplementedError, match="Sums has neither step nor reference"):
        next(Sums().reference(Data({}, ({},)), "inference"))


class Weighing(HasParameters, Sums):
    """One with five parameters."""

    optimizer_numbers = 3

    def parameter_count(self):
        return 5


def test_memory_follows_from_parameters():
    assert memory_of(Weighing(), "inference", "fp32") == {"weights": 20, "inputs and results": 20}
    assert memory_of(Weighing(), "training", "bf16") == {"weights": 10, "gradients": 10, "optimizer state": 30}
    assert parameter_count_of(Weighing()) == 5


def test_without_parameters_a_step_holds_its_inputs_and_results():
    assert memory_of(Sums(), "inference", "fp32") == {"inputs and results": 40}
    assert memory_of(Sums(), "training", "fp32") == {}
    assert parameter_count_of(Sums()) is None
