import pytest
from support.models import problem_of

from benchmarker import UserError
from benchmarker.hooks import parameters

problem = problem_of("llama")


def test_cost_by_hand():
    given = problem(
        n_layer=2, d_model=8, n_head=4, n_kv_head=2, d_ff=5, vocab_size=11, seq_len=3, batch_size=2, tied_head=False
    )
    tokens = 6
    block = 8 * 8 + 2 * 8 * 4 + 8 * 8 + 3 * 8 * 5  # q, k and v, output, MLP
    scores = 2 * 2 * 2 * 4 * 3 * 3 * 2  # two products, two sequences, four heads, 3·3 scores of width 2
    forward = given.cost("inference", "fp32")
    assert forward.flops == 2 * (2 * tokens * block + scores) + 2 * tokens * 8 * 11
    assert given.cost("training", "fp32").flops == 3 * forward.flops
    assert given.parameter_count() == 2 * 11 * 8 + 2 * (block + 2 * 8) + 8
    # Rows of an untied embedding that no token selects are not read.
    assert forward.bytes == 4 * (given.parameter_count() - (11 - 6) * 8) + 4 * tokens + 4 * tokens * 11
    tied = problem(n_layer=2, d_model=8, n_head=4, n_kv_head=2, d_ff=5, vocab_size=11, tied_head=True)
    assert tied.parameter_count() == given.parameter_count() - 11 * 8


def test_forward_flops_of_published_sizes():
    """2 × tokens × parameters without the embedding, and attention on top: Llama-3.1-8B at 512 tokens by hand."""
    given = problem(size="llama-3.1-8b", seq_len=512)
    products = 8_030_261_248 - 128_256 * 4096 - (2 * 32 + 1) * 4096
    assert given.cost("inference", "bf16").flops == 2 * 512 * products + 32 * 4 * 512**2 * 4096
    assert given.cost("inference", "bf16").flops == pytest.approx(7.822e12, rel=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"d_model": 100, "n_head": 12, "n_kv_head": 12}, "d_model=100 is not an even multiple of n_head=12"),
        ({"n_head": 12, "n_kv_head": 5}, "n_head=12 is not a multiple of n_kv_head=5"),
        ({"rope_theta": 0}, "--rope-theta=0"),
        ({"size": "llama-9"}, "--size=llama-9"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        parameters.convert(problem, options)


def test_titles_name_what_differs_from_a_published_size():
    assert problem(size="llama-3.1-8b").title("training") == "llama-3.1-8b training, B=1 T=128"
    changed = problem(size="llama-3.2-1b", tied_head=False, impl="fused", batch_size=4)
    assert changed.title("inference") == "llama-3.2-1b untied inference, B=4 T=128 fused"
    own = problem(n_layer=3, vocab_size=99)
    assert own.title("forward_backward") == "Llama L=3 d=768 H=12/12 d_ff=3072 V=99 fwd+bwd, B=1 T=128"
