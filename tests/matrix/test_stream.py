import numpy as np
import pytest

from benchmarker.hooks import registry

problem = registry.problem("stream")


@pytest.mark.parametrize(("op", "flops", "arrays"), [("copy", 0, 2), ("triad", 2, 3)])
@pytest.mark.parametrize(("precision", "item"), [("fp64", 8), ("fp32", 4), ("bf16", 2)])
def test_cost_is_that_of_stream(op, flops, arrays, precision, item):
    cost = problem(op=op, n=1000).cost("inference", precision)
    assert (cost.flops, cost.bytes, cost.samples) == (flops * 1000, arrays * 1000 * item, 1)


def test_batches_differ_and_are_windows_of_one_array():
    data = problem(n=100).data("fp32", np.random.default_rng(0), 4)
    assert len(data.batches) == 4
    assert all(batch["b"].shape == (100,) and batch["b"].dtype == np.float32 for batch in data.batches)
    assert data.batches[0]["b"][1] == data.batches[1]["b"][0]
    assert not np.array_equal(data.batches[0]["b"], data.batches[1]["b"])
    assert data.batches[0]["b"].base is data.batches[3]["b"].base


def test_reference_by_hand():
    data = problem(n=3).data("fp64", np.random.default_rng(0), 1)
    b, c = data.batches[0]["b"], data.batches[0]["c"]
    (triad,) = problem(n=3).reference(data, "inference")
    (copy,) = problem(op="copy", n=3).reference(data, "inference")
    assert triad["a"].tolist() == [x + 3 * y for x, y in zip(b, c, strict=True)]
    assert copy["a"].tolist() == b.tolist()


@pytest.mark.parametrize("framework", ["jax", "torch", "tensorflow", "numpy", "blas"])
def test_each_set_of_inputs_has_the_same_memory_to_write_to_whenever_it_has_its_turn(framework):
    """Memory taken anew for each step would be timed as well."""
    hooks = registry.load(
        [f"framework.{framework}", "problem.stream", f"workload.stream.{framework}"],
    ).hook
    from benchmarker import Case

    params = problem(op="copy", n=1 << 20)
    case = Case(problem="stream", framework=framework, device="cpu", params={"op": "copy", "n": params.n})
    opened = hooks.make_framework(device="cpu", precision="fp32", threads=None, profiling="no", devices=1)
    data = params.data("fp32", np.random.default_rng(0), 2)
    step = hooks.build_workload(framework=opened, problem=params, case=case, data=data).step
    places = []
    for _ in range(6):
        result = step()
        opened.synchronize(result)
        places.append(place(framework, result))
    assert places[0] != places[1]
    assert places == places[:2] * 3


def place(framework, result):
    """Where in memory the result of a step lies."""
    if framework in ("jax", "torch"):
        return result.unsafe_buffer_pointer() if framework == "jax" else result.data_ptr()
    if framework == "tensorflow":
        return np.asarray(memoryview(result.read_value())).ctypes.data
    return (result["a"] if framework == "blas" else result).ctypes.data
