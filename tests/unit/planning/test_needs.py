"""What a step of a case needs, held against figures that were worked out by hand."""

import pytest

from benchmarker import UserError
from benchmarker.api.case import CaseRequest
from benchmarker.api.framework import Device, FrameworkInfo
from benchmarker.api.problem import Support
from benchmarker.hooks import parameters, registry
from benchmarker.planning.cases import Ability
from benchmarker.planning.needs import describe_case, needs

LLAMA_8B = 8_030_261_248
GB = 10**9


def problem(name):
    return registry.problem(name)


def of(name, mode, precision="fp32", **given):
    made = problem(name)
    return needs(parameters.convert(made, given), mode, precision)


def ability(*devices, modes=("inference", "training")):
    info = FrameworkInfo("f", "1.0", devices, "always", {})
    return Ability(info, Support(dict.fromkeys(modes, ("fp32", "bf16"))))


CPU = Device("cpu", "a CPU", ("fp32", "bf16"), count=None)
CARD = Device("cuda", "a card", ("fp32", "bf16"), 80 * GB)


def described(able, mode="training", device="auto", **given):
    asked = CaseRequest(problem="llama", mode=mode, device=device, params=given)
    return describe_case(problem("llama"), asked, able)


def test_training_with_adamw_holds_weights_gradients_and_two_moments():
    found = of("llama", "training", size="llama-3.1-8b", batch_size=4, seq_len=2048)
    weights = 4 * LLAMA_8B
    assert (found.parameters, found.samples, found.tokens) == (LLAMA_8B, 4, 8192)
    assert found.memory == {"weights": weights, "gradients": weights, "optimizer state": 2 * weights}
    assert found.memory_bytes == 16 * LLAMA_8B
    # 6 FLOPs for each weight but the embedding and token, and attention's 12·T·d of each block and token
    products = 6 * (LLAMA_8B - 128_256 * 4096) * 8192
    assert found.flops == pytest.approx(products + 12 * 32 * 4096 * 2048 * 8192, rel=0.001)
    assert "activations" in found.left_out


def test_momentum_is_one_number_for_each_weight_and_sparse_sgd_none():
    resnet = of("resnet", "training")
    assert resnet.memory["optimizer state"] == resnet.memory["weights"]
    dlrm = of("dlrm", "training", batch_size=1)
    assert "optimizer state" not in dlrm.memory
    assert dlrm.memory["gradients"] < dlrm.memory["weights"] / 10


@pytest.mark.parametrize(("precision", "item"), [("fp32", 4), ("bf16", 2), ("mixed_bf16", 4), ("fp64", 8)])
def test_weights_have_the_type_in_which_they_are_kept(precision, item):
    found = of("gpt2", "forward_backward", precision)
    assert found.memory == {"weights": item * 124_439_808, "gradients": item * 124_439_808}


def test_inference_holds_inputs_and_results_or_a_cache():
    product = of("gemm", "inference", m=2, n=3, k=5)
    assert (product.parameters, product.memory) == (None, {"inputs and results": 4 * (2 * 5 + 5 * 3 + 2 * 3)})
    decode = of("gpt2", "inference", phase="decode", batch_size=2, depth=100, new_tokens=28, seq_len=128)
    assert set(decode.memory) == {"weights", "cache"}
    assert decode.memory["cache"] == 2 * 12 * 2 * 128 * 768 * 4


def test_memory_is_held_against_that_of_the_device_with_the_defaults_of_its_kind():
    case = described({"numpy": ability(CPU), "jax": ability(CARD, CPU), "torch": ability(CARD, CPU)})
    assert [(each.platform, each.name, each.memory_bytes) for each in case.devices] == [("cuda", "a card", 80 * GB)]
    assert case.devices[0].fits is (case.needs.memory_bytes <= 80 * GB)
    assert case.needs.params["seq_len"] == problem("llama").accelerator_defaults({})["seq_len"]
    assert case.frameworks == {
        "numpy": "f 1.0 reports no device 'cuda' here; it reports: cpu".replace("f 1.0", "numpy 1.0"),
        "jax": None,
        "torch": None,
    }
    large = described({"jax": ability(CARD)}, size="llama-3.1-8b")
    assert (large.devices[0].fits, large.needs.memory_bytes) == (False, 16 * LLAMA_8B)
    assert described({"jax": ability(CARD)}, size="llama-3.1-8b", mode="inference").devices[0].fits is True
    assert described({"jax": ability(CARD, CPU)}, device="cpu").devices[0].name == "this machine"


def test_a_device_of_unknown_memory_says_neither():
    unknown = Device("tpu", "a TPU", ("fp32",))
    assert described({"jax": ability(unknown)}).devices[0].fits is None


def test_a_case_that_no_framework_supports_is_refused_as_in_a_run():
    with pytest.raises(UserError, match="llama in jax does not support training; its modes are: inference"):
        described({"jax": ability(CPU, modes=("inference",))})
    with pytest.raises(UserError, match="reports no device 'tpu' here"):
        described({"jax": ability(CPU)}, device="tpu")
    with pytest.raises(UserError, match="--phase=decode needs --mode=inference"):
        described({"jax": ability(CPU)}, phase="decode")


def test_formulas_need_no_framework():
    case = described({"jax": UserError("jax is not installed")})
    assert case.frameworks == {"jax": "jax is not installed"}
    assert (case.devices, case.needs.parameters) == ([], 128_625_408)
