"""The work of models of libraries, as PyTorch counts it, is that of our own models by formula, at published sizes."""

from importlib.util import find_spec

import pytest
from support.models import problem_of

from benchmarker import open_bench

pytestmark = pytest.mark.slow

OURS = {
    "gpt2": {"seq_len": 64},
    "llama": {"size": "cs336-small", "seq_len": 64},
    "bert": {"seq_len": 64},
    "vit": {},
    "resnet": {"batch_size": 1},
}
"""Options of our models: published sizes, with few inputs."""


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize("name", OURS)
def test_the_work_is_that_of_our_model_within_one_percent(name, mode, tmp_path):
    needed = "torchvision" if name == "resnet" else "transformers"
    if find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed")
    from by_name import of_library

    ours = problem_of(name)(**OURS[name])
    library, options = of_library(name, ours, tmp_path)
    bench = open_bench(library, "torch", "cpu", mode=mode, **options)
    counted = bench.build(bench.problem, bench.data(bench.problem, 1)).counted
    assert counted.flops == pytest.approx(ours.cost(mode, "fp32").flops, rel=0.01)
