"""Ladders, run in real processes."""

import json

import pytest

SHORT = ("--power=none", "--blocks=3", "--warmup-steps=1", "--trials=2")


def test_a_problem_without_pieces_is_measured_by_itself_and_shown_again(cli, tmp_path):
    done = cli("ladder", "--problem=nap", "--framework=toy", *SHORT[1:], "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    (piece,) = found["pieces"]
    (rung,) = piece["rungs"]
    assert (rung["place"], rung["framework"], rung["trials"], rung["below"]) == ("alone", "toy", 2, None)
    assert rung["time_s"] >= 1e-3
    assert found["steps"] == found["losses"] == []
    again = cli("ladder", *map(str, (tmp_path / "results").glob("*")), "--json")
    assert json.loads(again.stdout) == found
    assert "leave --trials out" in cli("ladder", str(tmp_path / "results"), "--trials=3").stderr
    assert "no step that was measured beside its pieces" in cli("predict", str(tmp_path / "results")).stderr
    assert "leave --mode out" in cli("predict", str(tmp_path / "results"), "--mode=training").stderr


@pytest.mark.slow
def test_the_pieces_of_a_model_alone_and_within_it(cli, tmp_path):
    model = ("--problem=gpt2", "--n-layer=2", "--d-model=32", "--n-head=2", "--vocab-size=64", "--seq-len=16")
    done = cli("ladder", *model, "--framework=numpy,torch", *SHORT[1:], "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    counts = {" ".join(piece["scopes"]): piece["count"] for piece in found["pieces"]}
    assert counts == {
        "attn_qkv": 2,
        "attn_q_k attn_softmax attn_att_v": 2,
        "attn_proj": 2,
        "mlp_fc": 2,
        "mlp_proj": 2,
        "lm_head": 1,
    }
    for piece in found["pieces"]:
        rungs = [(rung["framework"], rung["place"]) for rung in piece["rungs"]]
        assert sorted(rungs) == [("numpy", "alone"), ("torch", "alone"), ("torch", "in step")]
    assert [(step["framework"], step["below"]) for step in found["steps"]] == [
        ("numpy", "pieces alone"),
        ("torch", "pieces alone"),
    ]
    assert "numpy: no time of a piece in the step is known: it has no profiler" in " ".join(found["notes"])

    done = cli("predict", *map(str, (tmp_path / "results").glob("*")), "--json")
    assert done.returncode == 0, done.stderr
    steps = json.loads(done.stdout)["steps"]
    assert [(step["framework"], step["trials"], step["own_s"] > 0) for step in steps] == [
        ("numpy", 2, True),
        ("torch", 2, True),
    ]
    assert [bool(step["parts"]) for step in steps] == [False, True]


def test_records_of_several_ladders_are_refused(cli, tmp_path):
    done = cli("sweep", "--problem=nap", "--framework=toy", "--axis=precision=fp32,fp64", *SHORT[:3], "--trials=1")
    assert done.returncode == 0, done.stderr
    done = cli("ladder", str(tmp_path / "results"))
    assert done.returncode == 2
    assert "several ladders, which differ in precision; name the run of one" in done.stderr


def test_functions_of_a_file_are_measured_by_themselves(cli, tmp_path):
    """Their work is not known, so neither are rates and roofs."""
    (tmp_path / "double.py").write_text(
        "import numpy as np\ndef inputs(): return np.ones(9)\ndef one(x): return x + x\ndef other(x): return 2 * x\n"
    )
    done = cli("ladder", "double.py", *SHORT[1:], "--json")
    assert done.returncode == 0, done.stderr
    pieces = json.loads(done.stdout)["pieces"]
    assert [piece["title"] for piece in pieces] == ["double.py:one", "double.py:other"]
    assert all(piece["flops"] is piece["roof_s"] is None and len(piece["rungs"]) == 1 for piece in pieces)


def test_wrong_words_are_refused_before_anything_runs(cli):
    for words, text in (
        (("--problem=nap", "--framework=nothing"), "nothing"),
        (("--problem=nap", "--framework=toy", "--ms=x"), "--ms=x"),
        ((), "no options were given"),
    ):
        done = cli("ladder", *words)
        assert done.returncode == 2
        assert text in done.stderr
