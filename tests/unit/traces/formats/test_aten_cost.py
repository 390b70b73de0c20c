"""FLOPs against PyTorch's own counter, from what its profiler records; bytes and refusals by hand."""

import json

import pytest

from benchmarker.traces.formats.aten_cost import aten_cost

F32 = "float"
BF16 = "c10::BFloat16"
FP8 = "c10::Float8_e4m3fn"


def conv2d(torch, **options):
    x, w, b = torch.randn(2, 4, 9, 10), torch.randn(6, 4 // options.get("groups", 1), 3, 2), torch.randn(6)
    return lambda: torch.nn.functional.conv2d(x, w, b, **options)


def conv1d(torch):
    x, w = torch.randn(3, 4, 17), torch.randn(5, 4, 4)
    return lambda: torch.nn.functional.conv1d(x, w, stride=3)


def conv3d(torch):
    x, w = torch.randn(1, 2, 5, 6, 7), torch.randn(3, 2, 2, 3, 2)
    return lambda: torch.nn.functional.conv3d(x, w, padding=1)


def unbatched(torch):
    x, w = torch.randn(4, 9, 9), torch.randn(6, 4, 3, 3)
    return lambda: torch.nn.functional.conv2d(x, w)


def conv_transpose2d(torch):
    x, w = torch.randn(2, 4, 9, 9), torch.randn(4, 3, 3, 3)
    return lambda: torch.nn.functional.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1, groups=2)


def convolution(torch):
    x, w = torch.randn(2, 4, 9, 9), torch.randn(6, 4, 3, 3)
    return lambda: torch.convolution(x, w, None, [2], [1], [1], False, [0], 1)


def convolution_backward(torch, mask=(True, True, True), transposed=False):
    x, w = torch.randn(2, 4, 9, 9), torch.randn(*((4, 6) if transposed else (6, 4)), 3, 3)
    rest = ([2, 2], [1, 1], [1, 1], transposed, [0, 0], 1)
    grad = torch.randn(torch.convolution(x, w, None, *rest).shape)
    return lambda: torch.ops.aten.convolution_backward(grad, x, w, [6], *rest, list(mask))


def attention(torch, *, is_causal=False, has_mask=False):
    q, k, v = torch.randn(2, 4, 16, 8), torch.randn(2, 4, 24, 8), torch.randn(2, 4, 24, 8)
    mask = torch.zeros(16, 24) if has_mask else None
    function = torch.nn.functional.scaled_dot_product_attention
    return lambda: function(q, k, v, attn_mask=mask, is_causal=is_causal)


def attention_backward(torch):
    q, k, v = (torch.randn(2, 4, 16, 8, requires_grad=True) for _ in range(3))
    grad = torch.randn(2, 4, 16, 8)
    function = torch.nn.functional.scaled_dot_product_attention
    return lambda: torch.autograd.grad(function(q, k, v), (q, k, v), grad)


def scaled_mm(torch):
    a, b = torch.ones(32, 64).to(torch.float8_e4m3fn), torch.ones(48, 64).to(torch.float8_e4m3fn).t()
    one = torch.tensor(1.0)
    return lambda: torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16)


def products(torch):
    a, b, n = torch.randn(5, 6), torch.randn(6, 7), torch.randn(7)
    return {
        "mm": lambda: a @ b,
        "addmm": lambda: torch.addmm(n, a, b),
        "_addmm_activation": lambda: torch._addmm_activation(n, a, b),
        "bmm": lambda: torch.bmm(a.expand(3, 5, 6), b.expand(3, 6, 7)),
        "baddbmm": lambda: torch.baddbmm(n, a.expand(3, 5, 6), b.expand(3, 6, 7)),
    }


CASES = {
    **{
        op: (op, lambda torch, op=op: products(torch)[op])
        for op in ("mm", "addmm", "_addmm_activation", "bmm", "baddbmm")
    },
    "scaled_mm": ("_scaled_mm", scaled_mm),
    "conv2d": ("conv2d", lambda torch: conv2d(torch, stride=2, padding=(1, 0))),
    "conv2d groups, dilated": ("conv2d", lambda torch: conv2d(torch, groups=2, dilation=2)),
    "conv1d": ("conv1d", conv1d),
    "conv3d": ("conv3d", conv3d),
    "unbatched": ("conv2d", unbatched),
    "conv_transpose2d": ("conv_transpose2d", conv_transpose2d),
    "convolution": ("convolution", convolution),
    "_convolution": ("_convolution", convolution),
    "mkldnn_convolution": ("mkldnn_convolution", convolution),
    "convolution_backward": ("convolution_backward", convolution_backward),
    "of the weight only": (
        "convolution_backward",
        lambda torch: convolution_backward(torch, mask=(False, True, False)),
    ),
    "transposed backward": ("convolution_backward", lambda torch: convolution_backward(torch, transposed=True)),
    "attention": ("_scaled_dot_product_flash_attention_for_cpu", attention),
    "causal": ("_scaled_dot_product_flash_attention_for_cpu", lambda torch: attention(torch, is_causal=True)),
    "masked": ("_scaled_dot_product_flash_attention_for_cpu", lambda torch: attention(torch, has_mask=True)),
    "attention backward": ("_scaled_dot_product_flash_attention_for_cpu_backward", attention_backward),
}


UNCOUNTED = {"_addmm_activation": 420}
"""FLOPs by hand of what PyTorch's counter leaves out."""
SHARE = {"attention backward": 5 / 6}
"""Unfused attention is two products forward and four backward; the fused backward pass alone is five."""


@pytest.mark.parametrize("case", CASES)
def test_flops_are_those_of_pytorchs_counter(case, tmp_path):
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    op, make = CASES[case]
    run = make(torch)
    unfused = torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)  # the fused is not counted on CPU
    with unfused, FlopCounterMode(display=False) as counter:
        run()
    with torch.profiler.profile(record_shapes=True, activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        run()
    profile.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    calls = [event["args"] for event in events if event.get("name") == f"aten::{op}"]
    assert len(calls) == 1
    (call,) = calls
    cost = aten_cost(f"aten::{op}", call["Input Dims"], call["Input type"], call["Concrete Inputs"], "full")
    assert cost is not None
    assert cost[0] == UNCOUNTED.get(op, counter.get_total_flops() * SHARE.get(case, 1))
    assert cost[1] > 0


def test_bytes_are_each_operand_and_the_result_once():
    assert aten_cost("aten::mm", [[5, 6], [6, 7]], [BF16, BF16]) == (420, 2 * (30 + 42 + 35))
    assert aten_cost("aten::_int_mm", [[5, 6], [6, 7]], ["signed char"] * 2) == (420, 30 + 42 + 4 * 35)
    assert aten_cost("aten::addmm", [[7], [5, 6], [6, 7], [], []], [F32] * 3) == (420, 4 * (7 + 30 + 42 + 35))
    assert aten_cost("aten::baddbmm", [[1, 5, 7], [3, 5, 6], [3, 6, 7]], [F32] * 3) == (1260, 4 * (35 + 3 * 107))
    assert aten_cost("aten::dot", [[6], [6]], ["double"] * 2) == (12, 8 * 13)
    assert aten_cost("aten::mv", [[5, 6], [6]], [F32] * 2) == (60, 4 * 41)
    assert aten_cost("aten::addmv", [[5], [5, 6], [6]], [F32] * 3) == (60, 4 * 46)


def test_a_scaled_product_is_of_the_type_asked_for_else_of_its_operands():
    dims = [[32, 64], [64, 48], [32, 1], [1, 48], [48], [], [], []]
    types = [FP8, FP8, F32, F32, BF16, "", "Scalar", "Scalar"]
    read = 32 * 64 + 64 * 48 + 4 * 80 + 2 * 48
    assert aten_cost("aten::_scaled_mm", dims, types, [*[""] * 6, "15", "False"]) == (
        2 * 32 * 64 * 48,
        read + 2 * 32 * 48,
    )
    assert aten_cost("aten::_scaled_mm", dims, types) == (2 * 32 * 64 * 48, read + 32 * 48)


def test_convolutions_of_libraries_have_their_own_order_of_arguments():
    """Output 5 x 5 from 9 x 9 with stride 2 and padding 1; a wrong order gives another size."""
    flops, moved = 2 * 2 * 25 * 6 * 4 * 9, 2 * (2 * 4 * 81 + 6 * 4 * 9 + 2 * 6 * 25)
    image, kernel = [2, 4, 9, 9], [6, 4, 3, 3]
    types = [BF16, BF16, BF16]
    miopen = ["", "", "", "[1, 1]", "[2, 2]", "[1, 1]", "1", "False", "False"]
    assert aten_cost("aten::miopen_convolution", [image, kernel, [6]], types, miopen) == (flops, moved + 12)
    cudnn = ["", "", "[1, 1]", "[2, 2]", "[1, 1]", "1", "False", "False", "True"]
    assert aten_cost("aten::cudnn_convolution", [image, kernel, [], [], []], types, cudnn) == (flops, moved)
    general = ["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]
    assert aten_cost("aten::convolution_overrideable", [image, kernel, []], types, general) == (flops, moved)
    transposed = ["", "", "[1, 1]", "[1, 1]", "[2, 2]", "[1, 1]", "1"]
    flops, moved = 2 * 2 * 25 * 6 * 4 * 9, 2 * (2 * 6 * 25 + 6 * 4 * 9 + 2 * 4 * 100)
    assert aten_cost("aten::cudnn_convolution_transpose", [[2, 6, 5, 5], kernel], types, transposed) == (flops, moved)


def test_a_convolutions_gradients_cost_by_those_asked_for():
    """With groups too, which PyTorch's counter takes for dense in the weight's gradient."""
    dims = [[2, 6, 5, 5], [2, 4, 9, 9], [6, 2, 3, 3]]
    rest = ["", "", "", "[6]", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "2"]
    one = 2 * 2 * 25 * 6 * 2 * 9
    grad, image, kernel = 300, 648, 108

    def cost(mask):
        return aten_cost("aten::convolution_backward", dims, [F32] * 3, [*rest, mask])

    assert cost("[True, True, True]") == (2 * one, 4 * (grad + 2 * (image + kernel) + 6))
    assert cost("[False, True, False]") == (one, 4 * (grad + image + kernel))
    assert cost("[1, 0, 0]") == (one, 4 * (grad + image + kernel))
    assert cost("") is None


CAUSAL = {
    "_scaled_dot_product_flash_attention": (4, 0),
    "_scaled_dot_product_flash_attention_for_cpu": (4, 0),
    "_scaled_dot_product_efficient_attention": (6, 0),
    "_scaled_dot_product_cudnn_attention": (6, 0),
    "_flash_attention_forward": (8, 0),
    "_efficient_attention_forward": (9, 0),
    "_scaled_dot_product_flash_attention_backward": (11, 1),
    "_scaled_dot_product_flash_attention_for_cpu_backward": (7, 1),
    "_scaled_dot_product_efficient_attention_backward": (11, 1),
    "_scaled_dot_product_cudnn_attention_backward": (14, 1),
}
"""Positions of the argument that makes the mask causal, and of the query."""


@pytest.mark.parametrize("op", CAUSAL)
def test_causal_attention_counts_half_the_products_unless_all_are_wanted(op):
    place, query = CAUSAL[op]
    dims = [[2, 16, 16, 64]] * query + [[2, 16, 16, 64]] * 3 + [[]] * 2
    dims += [[2, 16, 16, 64]] * (3 - len(dims) + 4) if query else []
    types = [BF16] * len(dims)
    for true in ("True", "1") if op == "_efficient_attention_forward" else ("True",):
        concrete = [""] * place + [true]
        half, full = (aten_cost(f"aten::{op}", dims, types, concrete, causal) for causal in ("half", "full"))
        assert (half[0], half[1]) == (full[0] / 2, full[1])
        assert aten_cost(f"aten::{op}", dims, types, [""] * place + ["False"]) == full
        assert aten_cost(f"aten::{op}", dims, types, []) == full


@pytest.mark.parametrize("op", CAUSAL)
def test_the_argument_that_makes_a_mask_causal_is_where_pytorch_has_it(op):
    torch = pytest.importorskip("torch")
    names = [each.name for each in getattr(torch.ops.aten, op).default._schema.arguments]
    assert names[CAUSAL[op][0]] in ("is_causal", "custom_mask_type")


@pytest.mark.parametrize(
    ("op", "kind", "queries", "keys", "pairs"),
    [
        ("aten::_scaled_dot_product_efficient_attention", "True", 4, 6, 8),
        ("aten::_scaled_dot_product_efficient_attention", "True", 6, 4, 8 + 2 * 4),
        ("aten::_flash_attention_forward", "True", 4, 6, 8 + 2 * 4),
        ("aten::_flash_attention_forward", "True", 1, 1024, 0.5 + 1023),
        ("aten::_flash_attention_forward", "True", 6, 4, 8),
        ("aten::_efficient_attention_forward", "1", 4, 6, 8),
        ("aten::_efficient_attention_forward", "2", 4, 6, 8 + 2 * 4),
    ],
)
def test_a_causal_mask_begins_at_the_first_or_ends_at_the_last(op, kind, queries, keys, pairs):
    """The pairs of a query and a key that the mask keeps, those on the diagonal by half."""
    packed = "forward" in op
    q, k = ([1, queries, 1, 8], [1, keys, 1, 8]) if packed else ([1, 1, queries, 8], [1, 1, keys, 8])
    place = CAUSAL[op.removeprefix("aten::")][0]
    cost = aten_cost(op, [q, k, k, [], [], []], [BF16] * 3, [""] * place + [kind])
    assert cost[0] == 2 * pairs * 16


def test_attention_counts_its_products():
    q, k, v = [2, 8, 16, 64], [2, 2, 24, 64], [2, 2, 24, 32]
    scores = 2 * 8 * 16 * 24
    forward = 2 * scores * 96, 2 * (2 * 8 * 16 * 64 + 2 * 2 * 24 * 96 + 2 * 8 * 16 * 32)
    for kind in ("flash", "efficient", "cudnn"):
        name = f"aten::_scaled_dot_product_{kind}_attention"
        assert aten_cost(name, [q, k, v, [], []], [BF16] * 3, ["", "", "", "0.", "False"]) == forward
    biased = aten_cost("aten::_scaled_dot_product_efficient_attention", [q, k, v, [2, 8, 16, 24]], [BF16] * 4)
    assert biased == (forward[0], forward[1] + 2 * scores)

    out, logsumexp = [2, 8, 16, 32], [2, 8, 16]
    moved = 2 * (2 * 2 * 8 * 16 * 32 + 2 * (2 * 8 * 16 * 64 + 2 * 2 * 24 * 96))
    backward = 2 * scores * (3 * 64 + 2 * 32), moved
    for kind in ("flash", "cudnn"):
        name = f"aten::_scaled_dot_product_{kind}_attention_backward"
        assert aten_cost(name, [out, q, k, v, out, logsumexp], [BF16] * 5 + [F32]) == backward
    name = "aten::_scaled_dot_product_efficient_attention_backward"
    assert aten_cost(name, [out, q, k, v, [], out, logsumexp], [BF16] * 4 + ["", BF16, F32]) == backward
    biased = aten_cost(name, [out, q, k, v, [16, 24], out, logsumexp], [BF16] * 6 + [F32])
    assert biased == (backward[0], backward[1] + 2 * 16 * 24)


@pytest.mark.parametrize("op", ["aten::_flash_attention_forward", "aten::_efficient_attention_forward"])
def test_packed_sequences_have_no_known_cost(op):
    q, k = [2, 16, 8, 64], [2, 24, 8, 64]
    assert aten_cost(op, [q, k, k, [], [], []], [BF16] * 3) == (
        4 * 2 * 8 * 16 * 24 * 64,
        2 * 2 * 8 * 64 * (16 + 24 + 24 + 16),
    )
    assert aten_cost(op, [q, k, k, [], [3], [3]], [BF16] * 3 + ["", "int", "int"]) is None


GENERAL = ["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]


@pytest.mark.parametrize(
    ("op", "dims", "types", "concrete"),
    [
        ("aten::relu", [[3]], [F32], []),
        (None, [[3]], [F32], []),
        (["aten::mm"], [[3]], [F32], []),
        ("aten::mm", None, [F32], []),
        ("aten::mm", [[5, 6], [6, 7]], None, []),
        ("aten::mm", [[5, 6], [6, 7]], [F32, F32], None),
        ("aten::mm", [], [], []),
        ("aten::mm", [[5, 6]], [F32, F32], []),
        ("aten::mm", [[5, 6], [7, 6]], [F32, F32], []),
        ("aten::mm", [[5, 6], [6]], [F32, F32], []),
        ("aten::mm", [[5, 6], [6, -7]], [F32, F32], []),
        ("aten::mm", [[5, 6], [6, 7.0]], [F32, F32], []),
        ("aten::mm", [[5, 6], [6, True]], [F32, F32], []),
        ("aten::mm", [[5, 6], [6, "7"]], [F32, F32], []),
        ("aten::mm", [[5, 6], [6, 10**400]], [F32, F32], []),
        ("aten::mm", [[5, 6], [[6], 7]], [F32, F32], []),
        ("aten::mm", ["ab", {"a": 1}], [F32, F32], []),
        ("aten::mm", [[5, 6], [6, 7]], [F32, "void"], []),
        ("aten::mm", [[5, 6], [6, 7]], [F32, []], []),
        ("aten::bmm", [[3, 5, 6], [2, 6, 7]], [F32, F32], []),
        ("aten::dot", [[5], [6]], [F32, F32], []),
        ("aten::mv", [[5, 6], [5]], [F32, F32], []),
        ("aten::conv2d", [[2, 4, 9, 9], [6, 4, 3, 3]], [F32] * 2, []),
        ("aten::convolution", [[2, 5, 9, 9], [6, 4, 3, 3]], [F32] * 2, GENERAL),
        ("aten::convolution", [[2, 4, 1, 1], [6, 4, 9, 9]], [F32] * 2, GENERAL),
        ("aten::convolution", [[2, 4, 9, 9], [6, 4, 0, 3]], [F32] * 2, GENERAL),
        ("aten::convolution", [[2, 4, 9, 9], [6, 4, 3, 3]], [F32] * 2, [*GENERAL[:3], "[0, 0]", *GENERAL[4:]]),
        ("aten::convolution", [[2, 4, 9, 9], [6, 4, 3, 3]], [F32] * 2, [*GENERAL[:3], "[1, 1, 1]", *GENERAL[4:]]),
        ("aten::convolution", [[2, 4, 9, 9], [6, 4, 3, 3]], [F32] * 2, [*GENERAL[:8], "9" * 9999]),
        ("aten::convolution", [[2, 4, 9, 9], [6, 4, 3, 3]], [F32] * 2, [*GENERAL[:8], "0"]),
        ("aten::convolution", [[2, 4, 9, 9], [6, 4, 3, 3]], [F32] * 2, [*GENERAL[:8], 1]),
        (
            "aten::convolution_backward",
            [[2, 6, 9, 9], [2, 4, 9, 9], [6, 4, 3, 3]],
            [F32] * 3,
            ["", *GENERAL, "[1, 1, 1]"],
        ),
        ("aten::_scaled_dot_product_flash_attention", [[2, 3, 16, 8], [2, 2, 16, 8], [2, 2, 16, 8]], [F32] * 3, []),
        ("aten::_scaled_dot_product_flash_attention", [[2, 3, 16, 8], [2, 0, 16, 8], [2, 0, 16, 8]], [F32] * 3, []),
        ("aten::_scaled_dot_product_flash_attention", [[2, 3, 16, 8]] * 2, [F32] * 3, []),
    ],
)
def test_what_does_not_fit_has_no_cost_and_raises_nothing(op, dims, types, concrete):
    assert aten_cost(op, dims, types, concrete) is None


def test_the_largest_believed_shape_has_a_finite_cost():
    huge = 1 << 40
    cost = aten_cost("aten::mm", [[huge, huge], [huge, huge]], [F32] * 2)
    assert cost == (2.0 * huge**3, 12.0 * huge**2)
    dims = [[huge] * 5, [huge] * 5]
    concrete = ["", "", "", "999999999", "0", "1", "True", "0", "1"]
    assert aten_cost("aten::convolution", dims, [F32] * 2, concrete) is not None
