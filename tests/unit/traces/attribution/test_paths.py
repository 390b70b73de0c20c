"""Paths of instructions: scopes and phase, worked out by hand."""

import time

import pytest

from benchmarker.traces.attribution.instructions import ScopePath, leaf, scope_path, to_leaf


@pytest.mark.parametrize(
    ("path", "scopes", "phase"),
    [
        ("", (), "forward"),
        ("dot_general", (), "forward"),
        ("jit(f)/dot_general", (), "forward"),
        ("jit(f)/attn/dot_general", ("attn",), "forward"),
        ("jit(f)/jit(main)/h.0/attn_q_k/dot_general", ("h.0", "attn_q_k"), "forward"),
        ("jit(step)/jvp(Model)/h.0/attn/add", ("Model", "h.0", "attn"), "forward"),
        ("jit(step)/transpose(jvp(Model))/h.0/attn/dot", ("Model", "h.0", "attn"), "backward"),
        ("jit(f)/jvp(vmap(attn_q_k))/dot", ("attn_q_k",), "forward"),
        ("jit(f)/transpose(jvp(vmap(attn_q_k)))/dot", ("attn_q_k",), "backward"),
        ("jit(f)/vmap(transpose(jvp(x)))/dot", ("x",), "backward"),
        ("jit(f)/jvp()/attn/dot", ("attn",), "forward"),
        ("jit(f)/transpose(jvp())/attn/dot", ("attn",), "backward"),
        ("jit(f)/transpose(jvp(attn))/rematted_computation/mlp/dot", ("attn", "mlp"), "remat"),
        ("jit(f)/transpose(jvp(Model))/jvp(Model)/checkpoint/mlp/dot", ("Model", "mlp"), "backward"),
        ("jit(f)/attn/attn/dot", ("attn", "attn"), "forward"),
        ("jit(f)/remat/attn/dot", ("attn",), "forward"),
        ("jit(f)/transpose(jvp(checkpoint))/attn/dot", ("attn",), "backward"),
        ("jit(f)/remat2(attn)/dot", ("attn",), "remat"),
        ("jit(f)/while/body/attn/dot", ("attn",), "forward"),
        ("jit(f)/cond/branch_0_fun/attn/dot", ("attn",), "forward"),
        ("jit(f)/attn/jit(softmax)/exp", ("attn",), "forward"),
        ("jit(f)/attn/jvp(jit(softmax))/exp", ("attn",), "forward"),
        ("jit(f)/attn/custom_jvp_call(relu)/max", ("attn",), "forward"),
        ("jit(f)/shard_map/attn/psum", ("attn",), "forward"),
        ("jit(<lambda>)/attn/dot", ("attn",), "forward"),
        ("jit(f)/jvp(a/b)/dot", ("a/b",), "forward"),
        ("jit(f)/jvp(a/b)/c/dot", ("a/b", "c"), "forward"),
        ("jit(f)/q(k/v/dot", (), "forward"),
        ("jit(f)/q)/attn/dot", ("q)", "attn"), "forward"),
        ("jit(f)/name (with spaces)/dot", ("name (with spaces)",), "forward"),
        ("attn_q_k/MatMul", ("attn_q_k",), "forward"),
        ("gradient_tape/attn_q_k/MatMul/MatMul_1", ("attn_q_k", "MatMul"), "backward"),
        ("jit(f)/attn/", ("attn",), "forward"),
        ("//", (), "forward"),
        ("jit(f)/'; DROP TABLE x; --/<b>/dot", ("'; DROP TABLE x; --", "<b>"), "forward"),
    ],
)
def test_paths(path, scopes, phase):
    found = scope_path(path)
    assert (found.scopes, found.phase) == (scopes, phase)


@pytest.mark.parametrize(
    ("path", "counted", "within"),
    [
        ("jit(f)/lstm/while/body/dot", "lstm", True),
        ("jit(f)/transpose(jvp(lstm))/while/body/dot", "lstm", True),
        ("jit(f)/while/body/attn/dot", "attn", False),
        ("jit(f)/lstm/dot", "lstm", False),
        ("jit(f)/model/while/body/attn/dot", "model", True),
        ("jit(f)/model/while/body/attn/dot", "attn", False),
        ("jit(f)/a/while/body/b/while/body/dot", "b", True),
        ("jit(f)/a/while/body/a/dot", "a", False),
        ("jit(f)/a/while/body/dot", "", False),
    ],
)
def test_a_loop_within_the_scope_does_not_enter_it(path, counted, within):
    assert scope_path(path).is_in_loop_of(counted) == within


def test_the_leaf_is_the_innermost_or_the_innermost_that_is_known():
    assert leaf((), ()) == ""
    assert leaf(("a", "b"), ()) == "b"
    assert leaf(("a", "b", "c"), {"a", "b"}) == "b"
    assert leaf(("a", "b"), {"x"}) == ""
    assert to_leaf(("a", "b", "a", "c"), "a") == "a/b/a"
    assert to_leaf(("a", "b"), "") == "a/b"


def test_deep_and_long_paths_take_no_quadratic_time():
    start = time.process_time()
    deep = "transpose(" * 100_000 + "attn" + ")" * 100_000
    assert scope_path(f"jit(f)/{deep}/dot") == ScopePath(("attn",), "backward")
    assert scope_path("(" * 1_000_000) == ScopePath((), "forward")
    assert scope_path("a(" * 100_000 + "/x/y") == ScopePath((), "forward")
    assert scope_path("x" * 1_000_000 + "/dot") == ScopePath(("x" * 1_000_000,), "forward")
    assert len(scope_path("a/" * 100_000 + "dot").scopes) == 100_000
    assert time.process_time() - start < 10
