import re

import msgspec
import pytest

from benchmarker.api.precision import PRECISIONS
from benchmarker.machine.vendor_peaks import Peak, peak, peaks

# As drivers and frameworks report them.
NAMES = {
    "Tesla V100-SXM2-16GB": "NVIDIA V100 SXM2",
    "Tesla V100-SXM2-32GB": "NVIDIA V100 SXM2",
    "Tesla V100-PCIE-32GB": "NVIDIA V100 PCIe",
    "Tesla T4": "NVIDIA T4",
    "NVIDIA A10": "NVIDIA A10",
    "NVIDIA A30": "NVIDIA A30",
    "NVIDIA A40": "NVIDIA A40",
    "A100-SXM4-40GB": "NVIDIA A100 SXM 40GB",
    "NVIDIA A100-SXM4-40GB": "NVIDIA A100 SXM 40GB",
    "NVIDIA A100-SXM4-80GB": "NVIDIA A100 SXM 80GB",
    "NVIDIA A100-PCIE-40GB": "NVIDIA A100 PCIe 40GB",
    "NVIDIA A100 80GB PCIe": "NVIDIA A100 PCIe 80GB",
    "NVIDIA L4": "NVIDIA L4",
    "NVIDIA L40S": "NVIDIA L40S",
    "NVIDIA GeForce RTX 3090": "NVIDIA GeForce RTX 3090",
    "NVIDIA GeForce RTX 4090": "NVIDIA GeForce RTX 4090",
    "NVIDIA RTX 6000 Ada Generation": "NVIDIA RTX 6000 Ada",
    "NVIDIA H100 80GB HBM3": "NVIDIA H100 SXM 80GB",
    "NVIDIA H100 PCIe": "NVIDIA H100 PCIe 80GB",
    "NVIDIA H100 NVL": "NVIDIA H100 NVL",
    "NVIDIA H200": "NVIDIA H200 SXM",
    "NVIDIA H200 NVL": "NVIDIA H200 NVL",
    "NVIDIA GH200 480GB": "NVIDIA GH200 96GB",
    "NVIDIA B200": "NVIDIA B200",
    "AMD Instinct MI100": "AMD Instinct MI100",
    "AMD Instinct MI210": "AMD Instinct MI210",
    "AMD Instinct MI250X": "AMD Instinct MI250X (one of two dies)",
    "AMD Instinct MI300X": "AMD Instinct MI300X",
    "AMD Instinct MI300X OAM": "AMD Instinct MI300X",
    "AMD Instinct MI300A": "AMD Instinct MI300A",
    "AMD Instinct MI325X": "AMD Instinct MI325X",
    "AMD Instinct MI355X": "AMD Instinct MI355X",
}

UNKNOWN = [
    "",
    "cpu",
    "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz",
    "NVIDIA A10G",
    "NVIDIA A100-SXM4-80GB MIG 1g.10gb",
    "NVIDIA GeForce RTX 3090 Ti",
    "NVIDIA GeForce RTX 4090 D",
    "NVIDIA GeForce RTX 4090 Laptop GPU",
    "NVIDIA L40",
    "NVIDIA RTX 6000",
    "NVIDIA H20",
    "NVIDIA H800",
    "NVIDIA GB200",
    "NVIDIA B200\n",
    "AMD Instinct MI250X / MI250",
    "AMD Instinct MI308X",
    "AMD Radeon Graphics",
]


def test_every_name_that_devices_go_by_is_found_once():
    for device_name, expected in NAMES.items():
        for name in (device_name, expected):
            assert [each.name for each in peaks() if each.matches(name)] == [expected], name
        found = peak(device_name)
        assert found
        assert found.name == expected
    assert set(NAMES.values()) == {each.name for each in peaks()}


@pytest.mark.parametrize("device_name", UNKNOWN, ids=ascii)
def test_what_is_not_known_has_no_peak(device_name):
    assert peak(device_name) is None


# Units, MHz of the vector units and of the tensor or matrix cores, and FLOP per clock and unit of both in fp32 and
# fp16 (sums in fp32): white papers of the architectures, product briefs for the clocks of cards.
UNITS = {
    "NVIDIA V100 SXM2": (80, 1530, 1530, 128, 1024),
    "NVIDIA V100 PCIe": (80, 1380, 1380, 128, 1024),
    "NVIDIA T4": (40, 1590, 1590, 128, 1024),
    "NVIDIA A10": (72, 1695, 1695, 256, 1024),
    "NVIDIA A30": (56, 1440, 1440, 128, 2048),
    "NVIDIA A40": (84, 1740, 1740, 256, 1024),
    "NVIDIA A100 SXM 80GB": (108, 1410, 1410, 128, 2048),
    "NVIDIA L4": (58, 2040, 2040, 256, 1024),
    "NVIDIA L40S": (142, 2520, 2520, 256, 1024),
    "NVIDIA GeForce RTX 3090": (82, 1695, 1695, 256, 512),
    "NVIDIA GeForce RTX 4090": (128, 2520, 2520, 256, 512),
    "NVIDIA RTX 6000 Ada": (142, 2505, 2505, 256, 1024),
    "NVIDIA H100 SXM 80GB": (132, 1980, 1830, 256, 4096),
    "NVIDIA H100 PCIe 80GB": (114, 1755, 1620, 256, 4096),
    "NVIDIA H200 SXM": (132, 1980, 1830, 256, 4096),
    "AMD Instinct MI100": (120, 1502, 1502, 128, 1024),
    "AMD Instinct MI210": (104, 1700, 1700, 128, 1024),
    "AMD Instinct MI250X (one of two dies)": (110, 1700, 1700, 128, 1024),
    "AMD Instinct MI300X": (304, 2100, 2100, 256, 2048),
    "AMD Instinct MI300A": (228, 2100, 2100, 256, 2048),
    "AMD Instinct MI325X": (304, 2100, 2100, 256, 2048),
    "AMD Instinct MI355X": (256, 2400, 2400, 256, 4096),
}

# Width of the memory in bits, and Gbit/s of each.
MEMORY = {
    "NVIDIA V100 SXM2": (4096, 1.754),
    "NVIDIA T4": (256, 10),
    "NVIDIA A10": (384, 12.5),
    "NVIDIA A30": (3072, 2.43),
    "NVIDIA A40": (384, 14.5),
    "NVIDIA A100 SXM 40GB": (5120, 2.43),
    "NVIDIA A100 SXM 80GB": (5120, 3.186),
    "NVIDIA A100 PCIe 80GB": (5120, 3.024),
    "NVIDIA L4": (192, 12.5),
    "NVIDIA L40S": (384, 18),
    "NVIDIA GeForce RTX 3090": (384, 19.5),
    "NVIDIA GeForce RTX 4090": (384, 21),
    "NVIDIA RTX 6000 Ada": (384, 20),
    "NVIDIA H100 SXM 80GB": (5120, 5.238),
    "NVIDIA H100 PCIe 80GB": (5120, 3.186),
    "AMD Instinct MI100": (4096, 2.4),
    "AMD Instinct MI210": (4096, 3.2),
    "AMD Instinct MI250X (one of two dies)": (4096, 3.2),
    "AMD Instinct MI300X": (8192, 5.2),
    "AMD Instinct MI300A": (8192, 5.2),
}


def named(name: str) -> Peak:
    (found,) = (each for each in peaks() if each.name == name)
    return found


@pytest.mark.parametrize("name", UNITS)
def test_rates_are_units_times_clock_times_operations_a_clock(name):
    units, vector_MHz, matrix_MHz, fp32, fp16 = UNITS[name]
    rates = named(name).flop_per_s
    assert rates["fp32"] == pytest.approx(units * vector_MHz * 1e6 * fp32, rel=0.01)
    assert rates["fp16"] == pytest.approx(units * matrix_MHz * 1e6 * fp16, rel=0.01)


@pytest.mark.parametrize("name", MEMORY)
def test_bandwidth_is_width_times_rate(name):
    bits, gbit_per_s = MEMORY[name]
    assert named(name).bytes_per_s == pytest.approx(bits / 8 * gbit_per_s * 1e9, rel=0.01)


def test_formats_stand_in_the_relations_of_their_hardware():
    for each in peaks():
        rates = each.flop_per_s
        geforce = "GeForce" in each.name
        if "tf32" in rates:
            assert rates["bf16"] / rates["tf32"] == pytest.approx(2, rel=0.02), each.name
        if "bf16" in rates and each.name != "AMD Instinct MI100":
            assert rates["bf16"] == rates["fp16"], each.name
        if "int8" in rates and not each.name.startswith("AMD Instinct MI1"):
            same = "MI2" in each.name
            assert rates["int8"] / rates["fp16"] == pytest.approx(4 if geforce else 1 if same else 2, rel=0.02), each
        if "fp8" in rates:
            assert rates["fp8"] / rates["fp16"] == pytest.approx(2, rel=0.02), each.name
        if "fp64_matrix" in rates:
            assert rates["fp64_matrix"] / rates["fp64"] == pytest.approx(2, rel=0.03), each.name


def test_figures_are_in_flop_per_s_bytes_per_s_and_watts():
    for each in peaks():
        assert all(5e11 < rate < 1e16 for rate in each.flop_per_s.values()), each.name
        assert each.bytes_per_s is None or 1e11 < each.bytes_per_s < 1e13, each.name
        assert each.memory_bytes is None or 10e9 < each.memory_bytes < 1e12, each.name
        size = re.search(r"(\d+)GB", each.name)
        assert size is None or each.memory_bytes == int(size[1]) * 1e9, each.name
        assert each.tdp_W is None or 50 < each.tdp_W < 2000, each.name
        assert re.search(r"20[12]\d", each.source), each.name


def test_products_take_the_units_that_are_fastest():
    a100, mi100 = peak("NVIDIA A100-SXM4-80GB"), peak("AMD Instinct MI100")
    assert a100
    assert mi100
    assert a100.products_per_s("fp64") == 19.5e12
    assert a100.products_per_s("fp32") == 19.5e12
    assert a100.products_per_s("mixed_bf16") == 312e12
    assert mi100.products_per_s("fp32") == 46.1e12
    assert mi100.products_per_s("tf32") is None
    assert peak("NVIDIA H200").products_per_s("fp8_e4m3_row") == peak("NVIDIA H200").products_per_s("fp8") == 1979e12
    assert a100.products_per_s("fp64_int8x8") == a100.products_per_s("int8")
    assert all(each.products_per_s(name) != 0 for each in peaks() for name in PRECISIONS)


def test_a_peak_cannot_be_changed_or_hold_what_it_does_not_know():
    found = peak("NVIDIA H200")
    assert found
    with pytest.raises(AttributeError):
        found.tdp_W = 1.0
    fields = msgspec.to_builtins(found)
    for wrong in ({"flop_per_s": {"fp16_sparse": 1.0}}, {"tdp_W": 0}, {"names": []}, {"more": 1}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(fields | wrong, Peak)
