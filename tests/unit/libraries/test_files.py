"""Files of the user that a model is made from: what they give, their digests, and errors with the line."""

from importlib.util import find_spec

import numpy as np
import pytest

from benchmarker import UserError, open_bench
from benchmarker_problems.libraries import files

IMAGES = """
import numpy as np
import torch

def inputs(batch_size, seed, other=3):
    assert other == 3
    return {"x": torch.full((batch_size, 3, 64, 64), float(seed)), "labels": np.zeros(batch_size, int)}
"""


def of_timm(tmp_path, text, **options):
    if find_spec("timm") is None:
        pytest.skip("timm is not installed")
    file = tmp_path / "images.py"
    file.write_text(text)
    return open_bench("timm", "torch", "cpu", model="test_vit", batch_size=2, inputs=str(file), **options)


def test_a_file_gives_inputs_from_options_and_a_seed_for_each_set(tmp_path):
    bench = of_timm(tmp_path, IMAGES, image_size=64)
    data = bench.data(bench.problem, 2)
    one, two = (batch["x"] for batch in data.batches)
    assert one.shape == (2, 3, 64, 64) and len(np.unique(one)) == len(np.unique(two)) == 1
    assert one[0, 0, 0, 0] != two[0, 0, 0, 0]
    workload = bench.build(bench.problem, data)
    assert workload.outputs(workload.step())["0"].shape == (2, 1000)
    assert bench.problem.code_files == {str(tmp_path / "images.py")}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def inputs(:\n", r"images\.py:1: SyntaxError"),
        ("import none_such\n", r"images\.py:1: ModuleNotFoundError"),
        ("def inputs():\n    return {'x': 1 / 0}\n", r"images\.py:2: ZeroDivisionError: division by zero"),
        ("x = 1\n", "defines no function `inputs`"),
        ("def inputs(length): ...\n", "takes 'length', which is no option; it may take model, image_size, batch_size"),
        ("def inputs(): return [1]\n", "inputs returned list; return a dict of arguments by name"),
        (
            "import numpy as np\ndef inputs(): return {'y': np.zeros(2)}\n",
            "test_vit takes no argument 'y'; it takes x",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_said_in_a_line(tmp_path, text, says):
    bench = of_timm(tmp_path, text)
    with pytest.raises(UserError, match=says):
        bench.build(bench.problem, bench.data(bench.problem, 1))


def test_an_argument_that_cannot_be_made_is_given(tmp_path):
    pytest.importorskip("transformers")
    (tmp_path / "series.py").write_text(
        "import numpy as np\n"
        "def inputs(batch_size):\n"
        "    past = np.ones((batch_size, 2 + 7))\n"
        "    names = ('past_values', 'past_observed_mask')\n"
        "    return {**dict.fromkeys(names, past), 'past_time_features': past[..., None]}\n"
    )
    (tmp_path / "config.json").write_text('{"prediction_length": 2, "num_time_features": 1, "d_model": 8}')
    options = {"config": str(tmp_path / "config.json"), "inputs": str(tmp_path / "series.py"), "batch_size": 2}
    bench = open_bench("transformers", "torch", "cpu", model="TimeSeriesTransformerModel", **options)
    workload = bench.build(bench.problem, bench.data(bench.problem, 1))
    assert all(np.isfinite(array).all() for array in workload.outputs(workload.step()).values())


def test_the_digest_of_a_large_file_is_that_of_pieces_of_it(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "WHOLE", 1000)
    monkeypatch.setattr(files, "PIECE", 4)
    content = bytearray(1001)
    (tmp_path / "large").write_bytes(content)
    named = files.with_digest("weights", str(tmp_path / "large"))
    assert files.unchanged("weights", named) == tmp_path / "large"
    assert files.with_digest("weights", named) == named
    for at in (0, 500, 1000):
        (tmp_path / "large").write_bytes(content[:at] + b"1" + content[at + 1 :])
        if at == 500:  # between two pieces
            files.unchanged("weights", named)
            continue
        with pytest.raises(UserError, match="changed after the run was planned"):
            files.unchanged("weights", named)
