import pytest

from benchmarker import UserError
from benchmarker.machine import gpus

SMI = """#!/bin/sh
case "$1" in
  --query-gpu=*)
    echo "0, NVIDIA H200, GPU-aaaa, 580.95, 9.0, 143771, 700.00, Enabled, Disabled"
    echo "1, NVIDIA H200, GPU-bbbb, 580.95, 9.0, 143771, [N/A], [N/A], [N/A]" ;;
  *) echo "GPU-bbbb"; echo "GPU-bbbb" ;;
esac
"""


@pytest.fixture
def two_gpus(tmp_path, monkeypatch):
    tool = tmp_path / "nvidia-smi"
    tool.write_text(SMI)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return gpus.list_gpus()


def test_gpus_are_read_with_their_units_and_what_is_not_known_is_none(two_gpus):
    first, second = two_gpus
    assert (first.index, first.name, first.uuid, first.compute_capability) == (0, "NVIDIA H200", "GPU-aaaa", "9.0")
    assert first.memory_bytes == 143771 * 2**20
    assert (first.power_limit_W, first.processes) == (700.0, 0)
    assert (second.power_limit_W, second.ecc, second.processes) == (None, None, 2)


@pytest.mark.parametrize(
    ("index", "variables", "uuid"),
    [
        (0, {}, "GPU-aaaa"),
        (1, {}, "GPU-bbbb"),
        (0, {"CUDA_VISIBLE_DEVICES": "1,0"}, "GPU-bbbb"),
        (0, {"CUDA_VISIBLE_DEVICES": "GPU-bbbb"}, "GPU-bbbb"),
        (None, {}, "GPU-aaaa"),
        (None, {"CUDA_VISIBLE_DEVICES": "1"}, "GPU-bbbb"),
        (1, {"CUDA_VISIBLE_DEVICES": "GPU-b, GPU-a"}, "GPU-aaaa"),
    ],
)
def test_a_visible_index_is_matched_by_uuid(two_gpus, index, variables, uuid):
    assert gpus.environment(index, variables) == {"CUDA_VISIBLE_DEVICES": uuid}


def test_a_process_group_sees_as_many_gpus_as_it_asks_for_if_there_are_so_many(two_gpus):
    assert gpus.environment(None, {}, 2) == {"CUDA_VISIBLE_DEVICES": "GPU-aaaa,GPU-bbbb"}
    assert gpus.environment(None, {"CUDA_VISIBLE_DEVICES": "1,0"}, 4) == {"CUDA_VISIBLE_DEVICES": "GPU-bbbb,GPU-aaaa"}


@pytest.mark.parametrize("listed", ["", "-1", "MIG-cccc", "GPU-", "7,0"])
def test_what_is_not_known_ends_the_list_of_visible_gpus(two_gpus, listed):
    assert gpus.environment(None, {"CUDA_VISIBLE_DEVICES": listed}) == {}


def test_an_index_that_is_not_visible_is_refused(two_gpus):
    with pytest.raises(UserError, match=r"--gpus=2: no such GPU \(2 visible\)"):
        gpus.environment(2, {})
    with pytest.raises(UserError, match=r"--gpus=1: no such GPU \(1 visible\)"):
        gpus.environment(1, {"CUDA_VISIBLE_DEVICES": "0"})


def test_without_the_tool_there_is_no_gpu(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpus.list_gpus() == []
    assert gpus.environment(None, {}) == {}
    with pytest.raises(UserError, match="nvidia-smi finds none"):
        gpus.environment(0, {})


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("cuda", {"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"}, {"CUDA_VISIBLE_DEVICES": "GPU-b"}),
        ("cuda", {}, {"CUDA_VISIBLE_DEVICES": "1"}),
        ("rocm", {"HIP_VISIBLE_DEVICES": "3,5"}, {"HIP_VISIBLE_DEVICES": "5"}),
        ("rocm", {"CUDA_VISIBLE_DEVICES": "0"}, {"HIP_VISIBLE_DEVICES": "1"}),
        ("cpu", {"CUDA_VISIBLE_DEVICES": "0,1"}, {}),
    ],
)
def test_one_gpu_of_the_visible_ones_is_shown(platform, variables, expected):
    assert gpus.one_of(platform, 1, variables) == expected
