import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import benchmarker
from benchmarker.api.errors import UserError
from benchmarker.api.meter import Channel
from benchmarker.power import telemetry
from benchmarker.power.sampler import Sample
from benchmarker.power.samplers import Sampled
from benchmarker.running import run

CARD = Channel(id="GPU-<b>é", domain="gpu", quantity="energy_J")
HEAT = Channel(id="GPU-<b>é", domain="gpu", quantity="throttle_time_s", what="thermal")
BOTH = [
    Sampled("nvml", (CARD, HEAT), (), [Sample(20, 1, "", (5.0, "lost")), Sample(30, 0, "end", (6.0, 1.0))]),
    Sampled("rapl", (Channel(id="package-0", domain="package", quantity="energy_J"),), (), [Sample(10, 0, "", (1.0,))]),
    Sampled("hwmon", (), (), []),
]


def test_every_reading_comes_back_in_order_of_time(tmp_path):
    (tmp_path / "t.parquet").write_bytes(telemetry.encode(BOTH))
    line = telemetry.read(tmp_path / "t.parquet")
    assert line.channels == [{one.meter: one.channels for one in BOTH[:2]}]
    found = line.readings
    assert tuple(found.columns) == telemetry.COLUMNS
    assert found["time_ns"].tolist() == [10, 20, 20, 30, 30]
    assert found["meter"].tolist() == ["rapl", *["nvml"] * 4]
    assert found["id"].tolist()[1] == "GPU-<b>é"
    assert found["value"].fillna(-1).tolist() == [1.0, 5.0, -1, 6.0, 1.0]
    assert found["reason"].tolist() == ["", "", "lost", "", ""]
    assert found["mark"].tolist() == ["", "", "", "end", "end"]
    assert found["what"].tolist() == ["", "", "thermal", "", "thermal"]


def test_readings_of_several_nodes_are_by_node_and_its_own_time(tmp_path):
    """The clock of the second node is behind; its sensor has the same name."""
    other = Sampled("nvml", (HEAT, CARD), (), [Sample(3, 0, "begin", (0.0, 8.0)), Sample(4, 0, "", (0.0, 9.0))])
    (tmp_path / "t.parquet").write_bytes(telemetry.encode(BOTH, [], [other]))
    line = telemetry.read(tmp_path / "t.parquet")
    assert line.channels == [{one.meter: one.channels for one in BOTH[:2]}, {}, {"nvml": (HEAT, CARD)}]
    assert line.readings["node"].tolist() == [0] * 5 + [2] * 4
    assert line.readings["time_ns"].tolist() == [10, 20, 20, 30, 30, 3, 3, 4, 4]
    assert [round(each * 1e9) for each in line.seconds()] == [0, 10, 10, 20, 20, 0, 0, 1, 1]


def test_a_notebook_finds_it_beside_its_record(tmp_path):
    (tmp_path / "trial.telemetry.parquet").write_bytes(telemetry.encode(BOTH))
    for name in ("trial.json", "trial.telemetry.parquet"):
        assert len(benchmarker.load_telemetry(tmp_path / name)) == 5
    with pytest.raises(UserError, match=r"other\.telemetry\.parquet: not a time series"):
        benchmarker.load_telemetry(tmp_path / "other.json")


def test_what_is_no_time_series_is_told(tmp_path):
    whole = telemetry.encode(BOTH)
    other = io.BytesIO()
    pq.write_table(pa.table({name: ["x"] for name in telemetry.COLUMNS}), other)
    contents = {"cut": whole[:-20], "empty": b"", "text": b"hello", "other": other.getvalue()}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match="not a time series"):
            telemetry.read(tmp_path / name)
    with pytest.raises(UserError, match="not a time series"):
        telemetry.read(tmp_path / "nothing")


def test_what_stands_in_its_way_costs_the_time_series_alone(tmp_path):
    said = []
    (tmp_path / "taken").mkdir()
    run._save_telemetry(tmp_path / "taken", [BOTH], said.append)
    assert said[0].startswith("the trial has no time series: cannot write ")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
    run._save_telemetry(tmp_path / "t.parquet", [BOTH], said.append)
    assert len(telemetry.read(tmp_path / "t.parquet").readings) == 5
    run._save_telemetry(tmp_path / "none", [BOTH[2:], []], said.append)
    assert not (tmp_path / "none").exists()
