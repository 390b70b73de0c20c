"""Records that were changed by hand in one place: each contradiction is named."""

import copy
import json
from pathlib import Path

import msgspec
import pytest
from support.records import make_record

from benchmarker.planning.cases import command_line
from benchmarker.records import consistency, reading
from benchmarker.records.agreement import contradictions_between, span
from benchmarker.records.record import DeviceTime, Local, Record, nulls

FIXTURES = Path(__file__).parents[2] / "fixtures/records"
NUMPY, *_, TORCH = sorted(FIXTURES.glob("v1/2*.json"), key=lambda path: "torch" in path.read_text())
SENSOR = {
    "meter": "nvml",
    "id": "GPU-a",
    "device": "Card",
    "domain": "gpu",
    "scope": "",
    "measured": True,
    "begin_ns": 5_000_000_000,
    "end_ns": 6_005_000_000,
    "energy_J": 100.5,
    "method": "counter",
    "polled_J": 201.0,
    "ratio": 0.5,
    "mean_W": 100.0,
    "p50_W": 99.0,
    "p95_W": 101.0,
    "peak_W": 103.0,
    "idle_W": 9.0,
    "update_ms": 1.0,
    "window_ms": 1.0,
    "observed_update_ms": 1.0,
    "accuracy_percent": 5.0,
    "n": 20,
    "coverage": 1.0,
    "gaps": 0,
    "wraps": 0,
    "flags": [],
}


@pytest.fixture
def fields():
    """The record of a trial that was timed for a second in 100 blocks of two steps, with energy and a profile."""
    found = json.loads(TORCH.read_text())
    found["case"]["measuring"] |= {"blocks": 100, "seconds": 30.0}
    found["blocks"] = {"steps_per_block": 2, "duration_ns": [9_900_000, 10_100_000] * 50, "stopped_by": "blocks"}
    found["interference"] |= {"duration_s": 1.01, "pressure_percent": 0.0, "steal_percent": 0.0}
    found["device"]["cache_bytes"] = 2**20
    found["harness"]["stages_s"] |= {"timed": 1.2, "tokens": 0.5}
    found["token_times"] = {"first_ns": [100_000_000] * 2, "gap_ns": [[50_000_000] * 2] * 2}
    found["harness"]["wall_s"] = sum(found["harness"]["stages_s"].values()) + 0.1
    found["energy"] = {
        "duration_s": 1.005,
        "steps": 200,
        "samples": 200 * found["cost"]["samples"],
        "domains": ["gpu"],
        "energy_J": 100.5,
        "idle_W": 9.0,
        "total_domains": ["gpu"],
        "total_J": 100.5,
        "total_idle_W": 9.0,
        "sensors": [SENSOR],
        "flags": [],
    }
    del found["reasons"]["energy"], found["reasons"]["token_times"]
    found["command"] = command_line(read(found).case)
    return copy.deepcopy(found)


def contradictions(record: Record) -> list[str]:
    return [each.text for each in consistency.contradictions(record)]


def read(fields) -> Record:
    return reading.read(json.dumps(fields).encode())


def tampered(fields, path: str, change) -> list[str]:
    *above, last = path.split(".")
    part = fields
    for name in above:
        part = part[int(name)] if isinstance(part, list) else part[name]
    key = int(last) if isinstance(part, list) else last
    part[key] = change(part[key]) if callable(change) else change
    return contradictions(read(fields))


def test_an_honest_record_contradicts_nothing(fields):
    assert contradictions(read(fields)) == []


def test_the_records_of_a_run_contradict_neither_themselves_nor_each_other():
    records = [reading.read(path.read_bytes()) for path in FIXTURES.glob("v1/2*.json")]
    assert [contradictions(record) for record in records] == [[]] * 4
    spans = [span(record) for record in records]
    assert all(spans)
    assert contradictions_between(spans) == []


def halved(times):
    return [time // 2 for time in times]


CHANGES = [
    ("blocks.duration_ns", halved, "its blocks take only 500 ms of the timed part of 1.01 s"),
    (
        "blocks.duration_ns",
        lambda times: [2 * time for time in times],
        "its blocks take 2 s, but the timed part 1.01 s",
    ),
    ("blocks.duration_ns", lambda times: times[:90], "its blocks ended by 'blocks', but there are 90 of 100"),
    ("blocks.steps_per_block", 4, "its energy is of 200 steps, but 100 blocks of 4 steps were timed"),
    ("blocks.stopped_by", "seconds", "its blocks ended by 'seconds', but there are 100 of 100"),
    ("blocks.stopped_by", "median_precision", "its blocks ended by 'median_precision', but none was requested"),
    ("blocks.stopped_by", "power_min", "its blocks ended by 'power_min', but no power was requested"),
    ("blocks.stopped_by", "failure", "its blocks ended by 'failure', but the trial did not fail"),
    ("case.measuring.seconds", 0.5, "its blocks ended by 'blocks' after 989.9 ms, but the limit is 500 ms"),
    ("harness.wall_s", 1.0, "but the whole process 1 s"),
    ("harness.stages_s.timed", 0.9, "interference.duration_s is 1.01 s, but the stage 'timed' takes 900 ms"),
    ("build_s", 99.0, "build_s is 99 s, but the stage 'build' takes"),
    ("compile_s", 99.0, "compile_s is 99 s, but the stage 'compile' takes"),
    ("preheat.duration_s", 99.0, "preheat.duration_s is 99 s, but the stage 'preheat' takes"),
    (
        "token_times.first_ns",
        lambda times: [2 * time for time in times],
        "the sum of token_times is 600 ms, but the stage 'tokens' takes 500 ms",
    ),
    ("preheat.steps", 4, "its warm-up has 4 steps, but 3 were requested"),
    ("preheat.outcome", "plateau", "its preheat is 'plateau', but preheat=false"),
    ("case.measuring.cache", "hot", "its inputs are None, but cache=hot was requested"),
    ("inputs.cache", "hot", "its inputs are 'hot', but there are 4 sets"),
    (
        "inputs",
        {"cache": "rotate", "sets": 4, "set_bytes": 2**16},
        "its inputs rotate through 4 sets, but it takes 81 to leave the cache",
    ),
    ("interference.duration_s", 0.5, "its blocks take 1 s, but the timed part 500 ms"),
    ("check.error", 1.0, "its check is ok, but the error is 1 of"),
    ("check.ok", False, "it succeeded, but its check did not"),
    (
        "check.componentwise",
        {"error": 1.0, "output": "c", "bound": 0.5},
        "and 1 of 0.5",
    ),
    ("design.partner", "another", "its design is 'rounds', but its partner is another"),
    ("design.partner_first", [True], "the order of 1 pairs of blocks is known, but there are 0"),
    ("run_id", "20991231T235959.000000-00000000", "its trial_id is older than its run_id"),
    ("started_at", "2026-01-01T00:00:00Z", "it started before its trial_id was made"),
    ("started_at", "yesterday", "started_at is 'yesterday', which is not a time in UTC"),
    ("device.platform", "cuda", "its device is 'cuda', but 'cpu' was requested"),
    ("case.threads", 64, "threads, but 64 were requested"),
    ("energy.steps", 100, "its energy is of 100 steps, but 100 blocks of 2 steps were timed"),
    ("energy.samples", 7, "its energy is of 7 samples, but 200 steps have 1 each"),
    ("energy.duration_s", 2.0, "its energy is of 2 s, but no sensor was read for that long"),
    ("energy.energy_J", 50.0, "energy.energy_J is 50 J, but its sensors measured 100.5 J"),
    ("energy.total_J", 300.0, "energy.total_J is 300 J, but its sensors measured 100.5 J"),
    ("energy.sensors.0.mean_W", 50.0, "the sensor GPU-a gpu: 50 W for 1.005 s are not 100.5 J"),
    ("energy.sensors.0.ratio", 1.0, "the sensor GPU-a gpu: the ratio of 100.5 J and 201 J is not 1"),
    ("energy.sensors.0.method", "polled", "the sensor GPU-a gpu: 100.5 J were polled, but also 201 J"),
    ("energy.sensors.0.peak_W", 10.0, "the sensor GPU-a gpu: its percentiles do not ascend"),
    ("trace.busy_ns", lambda value: value // 2, "trace.busy_ns is not the sum over its devices"),
    ("trace.devices.0.idle_ns", lambda value: value + 1, "a device of its trace is not either busy or idle"),
    ("trace.step_ns", [1], "its trace has 2 steps, but 1 step times"),
    ("trace.complete", lambda value: not value, "its trace is complete and misses something, or neither"),
    ("scopes.0.root_ns", lambda value: value // 2, "its scopes take"),
    (
        "scopes.0.step_ns",
        lambda values: [2 * value for value in values],
        "a part of a scope takes longer than the scope",
    ),
    ("kernels.0.busy_ns", lambda value: 9 * value, "its kernels take longer than its trace"),
    ("kernels.0.mean_ns", lambda value: value / 2, "do not agree"),
    ("kernels.0.max_ns", 0, "do not agree"),
]


@pytest.mark.parametrize(
    ("path", "change", "message"), CHANGES, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_change_in_one_place_is_named(fields, path, change, message):
    assert [text for text in tampered(fields, path, change) if message in text]


def test_a_precision_that_was_not_reached_is_named(fields):
    fields["case"]["measuring"]["median_precision"] = 0.001
    fields["blocks"]["duration_ns"] = [*fields["blocks"]["duration_ns"][:99], 10_000_000]
    fields["case"]["measuring"]["blocks"] = 1000
    (text,) = tampered(fields, "blocks.stopped_by", "median_precision")
    assert text == (
        "its blocks ended by 'median_precision', but the interval is ±0.0101 of the median, and ±0.001 was requested"
    )
    fields["case"]["measuring"]["median_precision"] = 0.02
    assert contradictions(read(fields)) == []


def test_a_time_limit_that_was_not_reached_is_named(fields):
    fields["blocks"] |= {"stopped_by": "seconds", "duration_ns": [10_000_000] * 99}
    fields["energy"] |= {"steps": 198, "samples": 198 * fields["cost"]["samples"]}
    (text,) = contradictions(read(fields))
    assert text == "its blocks ended by 'seconds', but they take 990 ms instead of 30 s"


def test_a_preheat_that_its_rates_do_not_allow_is_named(fields):
    fields["case"]["measuring"]["preheat"] = True
    fields["preheat"] = {"outcome": "plateau", "duration_s": 0.002, "steps": 200, "window_steps_per_s": [90.0, 100.0]}
    fields["harness"]["stages_s"]["preheat"] = 2.2
    fields["harness"]["wall_s"] += 2.2
    assert "its preheat has 200 steps in 2 ms, more than its rates allow" in contradictions(read(fields))
    fields["preheat"]["duration_s"] = 2.1
    assert contradictions(read(fields)) == []
    fields["preheat"]["outcome"] = "timeout"
    assert contradictions(read(fields)) == ["its preheat timed out after 2.1 s of 60 s"]


def test_the_energy_of_several_nodes_has_a_sensor_of_each(fields):
    fields["case"] |= {"devices": 2, "nodes": 2}
    fields["machines"] = [fields["machine"], fields["machine"]]
    fields["reasons"] |= dict.fromkeys(nulls(fields), "")
    assert contradictions(read(fields)) == [
        "energy.energy_J is 100.5 J, but no sensor of node 1 was read",
        "energy.total_J is 100.5 J, but no sensor of node 1 was read",
    ]
    fields["energy"] |= {"sensors": [SENSOR, SENSOR | {"node": 1}], "energy_J": 201.0, "total_J": 201.0}
    assert contradictions(read(fields)) == []
    fields["machines"], fields["case"]["nodes"] = [], 1
    with pytest.raises(msgspec.ValidationError, match="the node of what meters read must be one of `machines`"):
        read(fields)


def test_a_skipped_trial_measures_nothing(fields):
    fields |= {"status": "failed", "error": {"kind": "skipped", "message": "", "stage": "start", "exit": None}}
    assert contradictions(read(fields)) == ["it was not started, but something was measured"]


def test_what_disturbs_a_trial_explains_time_outside_its_blocks(fields):
    """Of 1.01 s, up to 251 ms are outside the blocks, and twice as much if threads wait for a core all the time."""
    fields["blocks"]["duration_ns"] = [6_000_000] * 100
    fields["energy"] |= {"duration_s": 0.0, "energy_J": None, "total_J": None, "sensors": []}
    fields["reasons"] |= {"energy.energy_J": "", "energy.total_J": ""}
    assert len(contradictions(read(fields))) == 1
    for change in ({"pressure_percent": 80.0}, {"throttled_s": 0.4}, {"steal_percent": 80.0}):
        changed = copy.deepcopy(fields)
        changed["interference"] |= change
        assert contradictions(read(changed)) == []
    fields["interference"] |= {"pressure_percent": 40.0}
    assert len(contradictions(read(fields))) == 1


def at(fields, trial: str, second: int, **changes):
    made = json.loads(json.dumps(fields))
    made |= {"trial_id": trial, "started_at": f"2026-12-01T00:00:{second:02}Z"}
    made["harness"] = {"wall_s": 10.0, "stages_s": {"timed": 1.2}}
    for name, value in changes.items():
        made[name] |= value
    return span(read(made))


def test_trials_that_overlap_are_named(fields):
    one, two = at(fields, "a", 0), at(fields, "b", 10)
    assert contradictions_between([two, one]) == []
    assert contradictions_between([one, at(fields, "b", 3)]) == [("b", "it started before the trial a had ended")]


def test_the_blocks_of_a_duet_fit_its_one_timed_part(fields):
    fields["blocks"]["duration_ns"] = [5_000_000] * 100
    duet = {"kind": "duet", "partner_first": [True] * 100}
    one = at(fields, "a", 0, design={**duet, "partner": "b"})
    two = at(fields, "b", 0, design={**duet, "partner": "a"})
    assert contradictions_between([one, two]) == []
    short = at(fields, "b", 0, design={**duet, "partner": "a"}, blocks={"duration_ns": [100_000] * 100})
    text = "with its partner a, its blocks take 510 ms of 1.01 s"
    assert contradictions_between([one, short]) == [("b", text)]
    other = at(fields, "b", 0, design={**duet, "partner": "a"}, interference={"duration_s": 1.02})
    assert contradictions_between([one, other]) == [("b", "its partner a was not timed in the same process")]


def test_validate_names_a_record_whose_durations_were_halved(command, tmp_path, fields):
    (tmp_path / "r").mkdir()
    path = tmp_path / "r" / f"{fields['trial_id']}.json"
    path.write_text(json.dumps(fields))
    assert command("validate", "r").stdout == "1 valid, 0 faulty\n"
    fields["blocks"]["duration_ns"] = halved(fields["blocks"]["duration_ns"])
    path.write_text(json.dumps(fields))
    done = command("validate", "r")
    assert done.returncode == 1
    name = f"{fields['run_id']}/{path.name}"
    assert done.stdout == f"{name}: its blocks take only 500 ms of the timed part of 1.01 s\n0 valid, 1 faulty\n"
    found = json.loads(command("validate", "r", "--json").stdout)
    assert (found["valid"], found["faults"][0]["path"]) == (0, name)


def test_the_local_phase_is_within_its_stage():
    """Two turns of 100 + 90 + 60 ms."""
    local = Local(1, [[100_000_000] * 2] * 2, [[90_000_000, 80_000_000]] * 2, [0, 1], [60_000_000] * 2)
    record = make_record(1.0, case={"devices": 2, "ranks": 2}, local=local)

    def told(stage_s):
        stages = {**record.harness.stages_s, "local": stage_s}
        harness = msgspec.structs.replace(record.harness, wall_s=99.0, stages_s=stages)
        return [each for each in contradictions(msgspec.structs.replace(record, harness=harness)) if "local" in each]

    assert told(0.51) == []
    assert told(0.4) == ["the sum of local is 500 ms, but the stage 'local' takes 400 ms"]


def test_the_time_of_the_device_is_within_its_stage_and_of_no_more_steps():
    record = make_record(1.0, device_time=DeviceTime(1, [400_000_000] * 3))

    def told(stage_s, steps=1):
        stages = {**record.harness.stages_s, "device": stage_s}
        harness = msgspec.structs.replace(record.harness, wall_s=99.0, stages_s=stages)
        times = msgspec.structs.replace(record.device_time, steps_per_block=steps)
        changed = msgspec.structs.replace(record, harness=harness, device_time=times)
        return [each for each in contradictions(changed) if "device" in each]

    assert told(1.21) == []
    assert told(1.1) == ["the sum of device_time is 1.2 s, but the stage 'device' takes 1.1 s"]
    assert told(1.21, steps=2) == ["its blocks have 1 steps, but 2 on the device"]
