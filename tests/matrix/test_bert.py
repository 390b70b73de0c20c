import numpy as np
import pytest
from support.models import counted_flops, lowered, problem_of, torch_workload

from benchmarker import MODES, UserError
from benchmarker.hooks import parameters

problem = problem_of("bert")


def test_cost_by_hand():
    size = {"n_layer": 2, "d_model": 8, "n_head": 2, "d_ff": 5, "vocab_size": 11, "seq_len": 20, "batch_size": 3}
    given, masked = (problem(**size, head=head) for head in ("all", "masked"))
    tokens, found = 60, 9  # 15% of 20 tokens are 3 of each sequence
    block = 4 * 8 * 8 + 2 * 8 * 5
    scores = 2 * 2 * 3 * 2 * 20 * 20 * 4  # two products, three sequences, two heads, 20·20 scores of width 4
    head = 8 * 8 + 8 * 11
    forward = given.cost("inference", "fp32")
    assert forward.flops == 2 * (2 * tokens * block + scores) + 2 * tokens * head
    assert masked.cost("inference", "fp32").flops == 2 * (2 * tokens * block + scores) + 2 * found * head
    assert given.cost("training", "fp32").flops == 3 * forward.flops
    blocks = 2 * (block + (3 + 1 + 1) * 8 + 5 + 2 * 16)  # weights, biases, two LayerNorms
    count = (11 + 512 + 2) * 8 + 16 + blocks + (8 * 8 + 8) + 16 + 11
    assert given.parameter_count() == count
    assert forward.bytes == 4 * count + 4 * tokens + 4 * tokens * 11
    assert masked.cost("inference", "fp32").bytes == 4 * count + 4 * tokens + 4 * found + 4 * found * 11
    assert given.cost("training", "fp32").bytes == 7 * 4 * count + 4 * tokens + 8 * found


def test_roberta_has_two_positions_more_and_one_token_type():
    bert, roberta = (problem(size=size, vocab_size=100) for size in ("base", "roberta-base"))
    assert roberta.parameter_count() == bert.parameter_count() + (2 - 1) * 768
    longer = problem(size="roberta-base", vocab_size=100, seq_len=515)
    assert longer.parameter_count() == roberta.parameter_count() + 3 * 768
    small = problem(size="roberta-base").small()
    data = small.data("fp32", np.random.default_rng(0), 1)
    (found,) = small.reference(data, "forward_backward")
    used = np.flatnonzero(found["d_wpe"].any(axis=1))
    assert list(used) == list(range(2, 2 + small.seq_len))


def test_masked_tokens_are_those_published():
    given = problem(vocab_size=1000, seq_len=200, batch_size=50)
    plain = given.data("fp32", np.random.default_rng(3), 2)
    again = given.data("fp32", np.random.default_rng(3), 2)
    for batch, same in zip(plain.batches, again.batches, strict=True):
        tokens, masked, targets = (batch[name] for name in ("tokens", "masked", "targets"))
        np.testing.assert_array_equal(tokens, same["tokens"])
        assert (tokens.shape, masked.shape, targets.shape) == ((50, 200), (1500,), (1500,))
        assert (np.bincount(masked // 200, minlength=50) == 30).all()  # as many in each sequence
        assert (np.diff(masked) > 0).all()
        assert targets.max() < 999
        given_tokens = tokens.ravel()[masked]
        assert (given_tokens == 999).mean() == pytest.approx(0.8, abs=0.04)
        assert (given_tokens == targets).mean() == pytest.approx(0.1, abs=0.03)
        others = np.delete(tokens.ravel(), masked)
        assert (others != 999).all()
    assert not np.array_equal(plain.batches[0]["masked"], plain.batches[1]["masked"])


@pytest.mark.parametrize("size", ["base", "roberta-base"])
def test_logits_of_masked_positions_are_those_among_all(size):
    small = problem(size=size).small()
    fewer = problem(size=size, head="masked").small()
    data = small.data("fp64", np.random.default_rng(0), 1)
    for mode in ("inference", "forward_backward"):
        (of_all,), (of_masked,) = (each.reference(data, mode) for each in (small, fewer))
        if mode == "inference":
            of_all["logits"] = of_all["logits"].reshape(-1, small.vocab_size)[data.batches[0]["masked"]]
        for name, value in of_all.items():
            np.testing.assert_allclose(of_masked[name], value, rtol=1e-9, atol=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_the_head_on_masked_positions_does_less_work_in_both_frameworks(mode):
    pytest.importorskip("torch")
    pytest.importorskip("jax")

    small = problem(head="masked").small()
    workload = torch_workload("bert", small, mode)
    assert counted_flops(workload) == small.cost(mode, "fp32").flops
    wide = problem(n_layer=1, d_model=2048, n_head=8, batch_size=16, vocab_size=30000, head="masked")
    flops = lowered("bert", wide, mode).cost_analysis()["flops"]
    assert flops == pytest.approx(wide.cost(mode, "fp32").flops, rel=0.02)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"d_model": 100}, "d_model=100 is not a multiple of n_head=12"),
        ({"size": "huge"}, "--size=huge"),
        ({"head": "first"}, "--head=first"),
        ({"vocab_size": 1}, "--vocab-size=1"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        parameters.convert(problem, options)


def test_titles_name_what_differs_from_a_published_size():
    assert problem().title("training") == "BERT-base training, B=1 T=128"
    changed = problem(size="roberta-large", head="masked", impl="fused", vocab_size=99, d_ff=64)
    assert changed.title("inference") == "RoBERTa-large d_ff=64 V=99 inference, B=1 T=128 masked head fused"
    own = problem(size="large", n_layer=3, batch_size=4, recompute=True, microbatches=2)
    expected = "BERT L=3 d=1024 H=16 fwd+bwd, B=4 T=128 recompute in 2 parts"
    assert own.title("forward_backward") == expected
