"""HLO programs made by hand: members, FLOPs and bytes."""

import math

import pytest
from support.profiles import field, instruction, message, shape
from support.profiles import hlo as proto

from benchmarker.traces.formats import hlo
from benchmarker.traces.formats.wire import WireError


def parse(*instructions, **computations):
    return hlo.parse(memoryview(proto("jit_f", 14, **(computations or {"main": instructions}))))


def dimensions(contracting: bytes):
    """DotDimensionNumbers with packed contracting dimensions of the first operand."""
    return 30, message((1, contracting))


def convolution(feature: int):
    """ConvolutionDimensionNumbers with the kernel's output feature dimension."""
    return 16, message((3, 2), (4, feature))


def flops(*instructions, of: str = "x") -> float:
    found = parse(*instructions)
    return found.flops(found.instructions[of])


def test_instructions_say_what_they_are():
    found = parse(
        instruction("a", "parameter", 1, shape(2, 3)),
        instruction(
            "x", "custom-call", 2, shape(4, of=16), [1], [], "jit(f)/attn/dot;jit(f)/mlp/dot", (28, "__cublas$gemm")
        ),
    )
    assert (found.name, found.id) == ("jit_f", 14)
    x = found.instructions["x"]
    assert (x.opcode, x.target, x.source) == ("custom-call", "__cublas$gemm", "model.py:12")
    assert x.paths == ("jit(f)/attn/dot", "jit(f)/mlp/dot")
    assert (x.shape.dimensions, x.shape.bits, x.shape.bytes) == ((4,), 16, 8)
    assert found.members(x) == [x]


@pytest.mark.parametrize(
    ("of", "bytes_"),
    [
        (shape(), 4),
        (shape(5, of=30), 1),  # 5 bits of a predicate of one bit round up
        (shape(3, of=21), 2),  # 3 numbers of 4 bits
        (shape(7, of=18), 7 * 16),
        (shape(0, 5), 0),
        (shape(5, of=13), 0),  # a tuple's own type has no size
        (shape(of=13, parts=[shape(2, 3), shape(5, of=12)]), 24 + 40),
        (shape(2, of=99), 0),
    ],
)
def test_bytes_of_shapes(of, bytes_):
    assert parse(instruction("x", "add", 1, of)).instructions["x"].shape.bytes == bytes_


def test_products_are_counted_as_two_for_each_multiplication_and_addition():
    # [2,3]·[3,4]: 2·(2·4)·3
    a, b = instruction("a", "parameter", 1, shape(2, 3)), instruction("b", "parameter", 2, shape(3, 4))
    assert flops(a, b, instruction("x", "dot", 3, shape(2, 4), [1, 2], (), "", dimensions(b"\1"))) == 48
    # batch 5: [5,2,3,7]·[5,3,7,4] over two axes: 2·(5·2·4)·(3·7)
    a, b = instruction("a", "parameter", 1, shape(5, 2, 3, 7)), instruction("b", "parameter", 2, shape(5, 3, 7, 4))
    assert flops(a, b, instruction("x", "dot", 3, shape(5, 2, 4), [1, 2], (), "", dimensions(b"\2\3"))) == 1680
    # not packed
    fields = (30, message((1, 2), (1, 3)))
    assert flops(a, b, instruction("x", "dot", 3, shape(5, 2, 4), [1, 2], (), "", fields)) == 1680
    assert flops(a, b, instruction("x", "dot", 3, shape(5, 2, 4), [1, 2], (), "", dimensions(b"\4"))) == 0
    assert flops(a, b, instruction("x", "dot", 3, shape(5, 2, 4), [1], (), "", dimensions(b"\2"))) == 0
    assert flops(a, b, instruction("x", "dot", 3, shape(5, 2, 4), [1, 77], (), "", dimensions(b"\2"))) == 0
    assert flops(a, b, instruction("x", "add", 3, shape(5, 2, 4), [1, 2])) == 0


def test_convolutions():
    # NHWC image [1,8,8,3], kernel HWIO [3,3,3,16], output [1,6,6,16]: 2·(6·6·16)·(3·3·3)
    image, kernel = (
        instruction("i", "parameter", 1, shape(1, 8, 8, 3)),
        instruction("k", "parameter", 2, shape(3, 3, 3, 16)),
    )
    one = [1, 2], (), ""
    assert flops(image, kernel, instruction("x", "convolution", 3, shape(1, 6, 6, 16), *one, convolution(3))) == 31104
    # grouped by 3: the kernel has 1 input feature, HWIO [3,3,1,12]: 2·(6·6·12)·9
    kernel = instruction("k", "parameter", 2, shape(3, 3, 1, 12))
    assert flops(image, kernel, instruction("x", "convolution", 3, shape(1, 6, 6, 12), *one, convolution(3))) == 7776
    for odd in (4, (1 << 64) - 1):
        assert flops(image, kernel, instruction("x", "convolution", 3, shape(1, 6, 6, 12), *one, convolution(odd))) == 0
    text = (16, message((4, b"x")))
    assert flops(image, kernel, instruction("x", "convolution", 3, shape(1, 6, 6, 12), *one, text)) >= 0


def test_the_two_instructions_of_an_asynchronous_operation_are_counted_as_one():
    """256 bytes are read and 512 written by an all-gather; by a copy 256 of each; sends write nothing here."""
    small, large, flag = shape(64), shape(128), shape(of=8)
    found = parse(
        main=[
            instruction("p", "parameter", 1, small),
            instruction("copy", "copy-start", 2, shape(of=13, parts=[small, small, flag]), [1]),
            instruction("copied", "copy-done", 3, small, [2]),
            instruction("gather", "all-gather-start", 4, shape(of=13, parts=[small, large]), [1]),
            instruction("gathered", "all-gather-done", 5, large, [4]),
            instruction("send", "send", 6, shape(of=13, parts=[small, flag]), [1]),
            instruction("sent", "send-done", 7, shape(of=17), [6]),
            instruction("wrapped", "async-start", 8, shape(of=13, parts=[small, small, flag]), [1], [2]),
            instruction("updated", "async-update", 9, shape(of=13, parts=[small, small, flag]), [8]),
            instruction("unwrapped", "async-done", 10, small, [9], [2]),
            instruction("alone", "copy-start", 11, shape(of=13, parts=[small, small, flag]), [1]),
        ],
        inner=[
            instruction("q", "parameter", 21, small),
            instruction("scattered", "reduce-scatter", 22, small, [21]),
        ],
    )
    counted = {name: found.bytes(each) for name, each in found.instructions.items()}
    begun = {"copy": 512.0, "gather": 768.0, "send": 256.0, "wrapped": 512.0}
    assert {name: counted[name] for name in begun} == begun
    assert all(math.isnan(counted[name]) for name in ("copied", "gathered", "sent", "updated", "unwrapped", "alone"))
    assert [each.name for each in found.members(found.instructions["wrapped"])] == ["scattered"]


CUBLAS = '{"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":%s}}}'


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (CUBLAS % '["1"]', 48),
        (CUBLAS % "[1]", 48),
        (CUBLAS % '["2"]', 0),
        (CUBLAS % '["-1"]', 0),
        (CUBLAS % '["-7"]', 0),
        (CUBLAS % "[1e999]", 0),
        (CUBLAS % "[]", 0),
        (CUBLAS % "[null]", 0),
        (CUBLAS % "{}", 0),
        (CUBLAS % '["x"]', 0),
        ("", 0),
        ("[]", 0),
        ("5", 0),
        ("[" * 100_000, 0),
        ('{"gemm_backend_config":[]}', 0),
    ],
)
def test_products_of_a_library_are_in_its_configuration(config, expected):
    a, b = instruction("a", "parameter", 1, shape(2, 3)), instruction("b", "parameter", 2, shape(3, 4))
    result = shape(of=13, parts=[shape(2, 4), shape(100, of=6)])  # the second is a workspace
    x = instruction("x", "custom-call", 3, result, [1, 2], (), "", (28, "__cublas$gemm"), (43, config))
    assert flops(a, b, x) == expected


def ordered(*dims: int, order: bytes, of: int = 11) -> bytes:
    """A ShapeProto with its layout: the axes from the one with adjacent elements to the outermost."""
    return shape(*dims, of=of) + field(5, message((1, order)))


def axes(left: bytes, right: bytes, left_batch: bytes = b"", right_batch: bytes = b""):
    """DotDimensionNumbers."""
    return 30, message((1, left), (2, right), (3, left_batch), (4, right_batch))


@pytest.mark.parametrize(
    ("a", "b", "of", "numbers", "expected"),
    [
        (ordered(8, 64, order=b"\1\0"), ordered(64, 32, order=b"\1\0"), shape(8, 32), (b"\1", b"\0"), "NN"),
        (ordered(8, 64, order=b"\0\1"), ordered(64, 32, order=b"\0\1"), shape(8, 32), (b"\1", b"\0"), "TT"),
        (ordered(64, 8, order=b"\1\0"), ordered(32, 64, order=b"\1\0"), shape(8, 32), (b"\0", b"\1"), "TT"),
        (ordered(64, 8, order=b"\0\1"), ordered(32, 64, order=b"\0\1"), shape(8, 32), (b"\0", b"\1"), "NN"),
        (shape(8, 64), ordered(64, 32, order=b"\1\0"), shape(8, 32), (b"\1", b"\0"), "-N"),
    ],
)
def test_a_product_in_hlo(a, b, of, numbers, expected):
    dot = instruction("x", "dot", 3, of, [1, 2], (), "", axes(*numbers))
    found = parse(instruction("a", "parameter", 1, a), instruction("b", "parameter", 2, b), dot)
    x = found.instructions["x"]
    assert str(found.gemm(x)) == f"f32 m=8 n=32 k=64 batch=1 {expected}"
    assert found.flops(x) == 2 * 8 * 32 * 64
    assert found.inputs(x) == f"{found.instructions['a'].shape} {found.instructions['b'].shape}"


def test_a_batched_product_of_several_free_axes():
    """a[B=5, i=2, K=7, j=3] · b[K=7, l=4, B=5]: M = 2 · 3, N = 4."""
    a, b = ordered(5, 2, 7, 3, order=b"\2\3\1\0", of=16), ordered(7, 4, 5, order=b"\2\1\0", of=20)
    dot = instruction("x", "dot", 3, shape(5, 2, 3, 4), [1, 2], (), "", axes(b"\2", b"\0", b"\0", b"\2"))
    found = parse(instruction("a", "parameter", 1, a), instruction("b", "parameter", 2, b), dot)
    assert str(found.gemm(found.instructions["x"])) == "bf16/f8e4m3fn m=6 n=4 k=7 batch=5 NN"
    assert found.flops(found.instructions["x"]) == 2 * 6 * 4 * 7 * 5
    assert found.inputs(found.instructions["x"]) == "bf16[5,2,7,3] f8e4m3fn[7,4,5]"


def test_a_product_of_a_library():
    config = (
        '{"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["2"],'
        '"rhs_contracting_dimensions":["1"],"lhs_batch_dimensions":["0"],"rhs_batch_dimensions":["0"]}}}'
    )
    a, b = instruction("a", "parameter", 1, shape(5, 8, 64)), instruction("b", "parameter", 2, shape(5, 64, 32))
    result = shape(of=13, parts=[shape(5, 8, 32), shape(100, of=6)])
    found = parse(a, b, instruction("x", "custom-call", 3, result, [1, 2], (), "", (28, "__cublas$gemm"), (43, config)))
    assert str(found.gemm(found.instructions["x"])) == "f32 m=8 n=32 k=64 batch=5 --"
    assert found.flops(found.instructions["x"]) == 2 * 8 * 32 * 64 * 5


@pytest.mark.parametrize(
    "numbers",
    [(b"\1", b"\5"), (b"\1", b"\1"), (b"\1\1", b"\0"), (b"\1", b"\0", b"\1", b""), (b"\1", b"\0", b"\0", b"\1")],
)
def test_axes_that_do_not_fit_are_no_product(numbers):
    dot = instruction("x", "dot", 3, shape(8, 32), [1, 2], (), "", axes(*numbers))
    found = parse(instruction("a", "parameter", 1, shape(8, 64)), instruction("b", "parameter", 2, shape(64, 32)), dot)
    assert found.gemm(found.instructions["x"]) is None


def test_two_products_in_a_fusion_are_no_single_product():
    numbers = axes(b"\1", b"\0")
    found = parse(
        fused=[
            instruction("p", "parameter", 1, shape(4, 4)),
            instruction("one", "dot", 2, shape(4, 4), [1, 1], (), "", numbers),
            instruction("two", "dot", 3, shape(4, 4), [2, 1], (), "", numbers),
        ],
        main=[
            instruction("tuple", "parameter", 4, shape(of=13, parts=[shape(4, 4), shape(of=5)])),
            instruction("x", "fusion", 5, shape(4, 4), [4], [1]),
        ],
    )
    x = found.instructions["x"]
    assert found.gemm(x) is None
    assert found.flops(x) == 2 * 2 * 4**3
    assert found.inputs(x) == "(f32[4,4],s64[])"


def test_members_of_fusions():
    found = parse(
        inner=[
            instruction("p", "parameter", 1, shape(2)),
            instruction("exp", "exponential", 2, shape(2), [1], (), "jit(f)/b/exp"),
        ],
        outer=[
            instruction("c", "constant", 3, shape()),
            instruction("f", "fusion", 4, shape(2), [3], [1]),
            instruction("add", "add", 5, shape(2), [4, 4]),
        ],
        main=[instruction("x", "fusion", 6, shape(2), [], [2]), instruction("w", "while", 7, shape(2), [], [1])],
    )
    assert [each.name for each in found.members(found.instructions["x"])] == ["exp", "add"]
    assert [each.name for each in found.members(found.instructions["w"])] == ["w"]


def test_flops_of_a_fusion_are_those_of_its_members_and_bytes_those_of_its_operands():
    found = parse(
        fused=[
            instruction("p", "parameter", 1, shape(2, 3)),
            instruction("q", "parameter", 2, shape(3, 4)),
            instruction("dot", "dot", 3, shape(2, 4), [1, 2], (), "", dimensions(b"\1")),
            instruction("add", "add", 4, shape(2, 4), [3, 3]),
        ],
        main=[
            instruction("a", "parameter", 11, shape(2, 3)),
            instruction("b", "parameter", 12, shape(3, 4)),
            instruction("x", "fusion", 13, shape(2, 4), [11, 12], [1]),
            instruction("w", "while", 14, shape(2, 4), [13], [1]),
        ],
    )
    assert found.flops(found.instructions["x"]) == 48
    assert found.bytes(found.instructions["x"]) == 4 * (6 + 12 + 8)
    assert math.isnan(found.bytes(found.instructions["w"]))


@pytest.mark.parametrize("dims", [(-1, 3), (1 << 50, 3), (1 << 39,) * 40])
def test_a_dimension_that_is_not_known_gives_no_cost(dims):
    x = instruction("x", "dot", 3, shape(2, 4), [1, 2], (), "", dimensions(b"\0"))
    found = parse(instruction("a", "parameter", 1, shape(*dims)), instruction("b", "parameter", 2, shape(3, 4)), x)
    assert math.isnan(found.bytes(found.instructions["x"]))
    wide = instruction("x", "dot", 3, shape(*dims), [1, 2], (), "", dimensions(b"\0"))
    found = parse(instruction("a", "parameter", 1, shape(2, 3)), instruction("b", "parameter", 2, shape(3, 4)), wide)
    assert math.isnan(found.flops(found.instructions["x"]))


def test_fusions_that_could_not_be_are_refused():
    with pytest.raises(WireError, match="nest too deep"):
        parse(a=[instruction("x", "fusion", 1, shape(2), [], [1])])
    chain = {f"c{n}": [instruction(f"x{n}", "fusion", n, shape(2), [], [n + 2])] for n in range(30)}
    with pytest.raises(WireError, match="nest too deep"):
        parse(**chain)
    with pytest.raises(WireError, match="nest too deep"):
        parse(**dict(reversed(chain.items())))
    wide = {
        f"c{n}": [instruction(f"x{n}.{k}", "fusion", n, shape(2), [], [n + 2]) for k in range(40)] for n in range(8)
    }
    with pytest.raises(WireError, match="contain too many instructions"):
        parse(**wide)
    few = {f"c{n}": [instruction(f"x{n}", "call", n, shape(2), [], [n + 2])] for n in range(10)}
    assert parse(**few).members(parse(**few).instructions["x0"]) == []


@pytest.mark.parametrize("content", [b"", message((2, "x")), message((1, 5)), message((1, b"\x0b"))])
def test_what_is_no_program_is_refused(content):
    with pytest.raises(WireError):
        hlo.parse(memoryview(content))


def test_a_rewritten_convolution_left_its_path_on_the_transposition():
    path = "jit(f)/transpose(jvp(conv1))/conv_general_dilated"
    x, y = instruction("x", "convolution", 1, shape(2)), instruction("y", "convolution", 2, shape(2))
    direct = parse(x, instruction("t", "bitcast", 3, shape(2), [1], [], path))
    assert direct.path_of_result(direct.instructions["x"]) == path
    # Through a copy without a path, into a fusion that has the transposition among its members.
    fused = parse(
        main=[x, instruction("c", "copy", 3, shape(2), [1]), instruction("f", "fusion", 4, shape(2), [3], [2])],
        inner=[instruction("t", "transpose", 5, shape(2), [], [], path)],
    )
    assert fused.path_of_result(fused.instructions["x"]) == path
    # A convolution that follows has a path of its own, which is not that of the first.
    other = parse(x, instruction("z", "convolution", 3, shape(2), [1], [], path))
    assert other.path_of_result(other.instructions["x"]) == ""
    norm = parse(y, instruction("n", "add", 3, shape(2), [2], [], "jit(f)/norm1/add"))
    assert norm.path_of_result(norm.instructions["y"]) == ""


def test_a_rewritten_product_with_a_single_row_left_its_path_on_what_follows():
    path = "jit(f)/attn_qkv/dot_general"
    x = instruction("x", "dot", 1, shape(2))
    fused = parse(
        main=[x, instruction("f", "fusion", 4, shape(2), [1], [2])],
        inner=[
            instruction("b", "bitcast", 5, shape(2), [], [], path),
            instruction("a", "add", 6, shape(2), [5], [], "jit(f)/attn_qkv/add"),
        ],
    )
    assert fused.path_of_result(fused.instructions["x"]) == path
    # TensorFlow's paths end in any name, and it tells the type of the op.
    named = "gradient_tape/attn_q_k/product/MatMul_1"
    for of, found in (("BatchMatMulV2", named), ("Einsum", named), ("Mul", "")):
        made = (7, message((1, of), (2, named)))
        batched = parse(x, instruction("b", "bitcast", 3, shape(2), [1], [], "", made))
        assert batched.path_of_result(batched.instructions["x"]) == found
    # Another op of the result says nothing of the product.
    added = parse(x, instruction("a", "add", 3, shape(2), [1], [], "jit(f)/attn_qkv/add"))
    assert added.path_of_result(added.instructions["x"]) == ""
