"""Series of strong and weak scaling, found from records."""

import itertools
import statistics

import msgspec
import pytest
from support.records import QUIET, make_record

from benchmarker import Allocation
from benchmarker.comparing.scaling import scalings
from benchmarker.comparing.scaling_results import labels, sentence, shared_notes, shown
from benchmarker.hooks.cases import Cases
from benchmarker.hooks.metrics import load_metrics
from benchmarker.records.record import CostPart, Failure, Local


def trials(step_s, devices=1, samples=8, run="run", **fields):
    """A trial of each step time, on so many devices; the batch is the number of samples.

    Several devices spend 80% of it on their own work, which takes 60% if one is alone; of two, one takes 90% of that.
    """
    case = {"devices": devices, "params": {"batch_size": samples, "ms": 1.0}} | fields.pop("case", {})
    number = fields.pop("number", devices * 100 + samples)
    return [
        make_record(
            each,
            run=run,
            trial=trial,
            case=case,
            design={"case_number": number},
            cost=CostPart(1000, 0, 8, samples, None),
            **({"local": local(each, devices, case.get("ranks", 1))} if devices > 1 else {}) | fields,
        )
        for trial, each in enumerate(step_s)
    ]


def local(step_s, devices, ranks=1):
    step_ns = round(step_s * 1e9)
    together = [step_ns * 8 // 10] * (devices - 1) + [step_ns * 72 // 100]
    alone = [step_ns * 6 // 10] * devices
    return Local(1, [[step_ns] * ranks] * devices, [together] * devices, list(range(devices)), alone)


def found(*several):
    return scalings(Cases.of([record for records in several for record in records]), load_metrics())


ONE = [1.0, 1.1, 0.9, 1.05, 1.2, 1.0]
TWO = [0.6, 0.6, 0.5, 0.55, 0.7, 0.65]


def test_strong_scaling_is_the_ratio_of_times_with_the_interval_of_the_rounds():
    (series,) = found(trials(ONE), trials(TWO, 2)).series
    assert (series.scaling, [point.devices for point in series.points]) == ("strong", [1, 2])
    ratios = [one / two for one, two in zip(ONE, TWO, strict=True)]
    walsh = [(a * b) ** 0.5 for a, b in itertools.combinations_with_replacement(ratios, 2)]
    one, two = series.points
    assert two.speedup.value == pytest.approx(statistics.median(walsh), rel=0.01)
    assert (two.speedup.low, two.speedup.high) == pytest.approx((min(ratios), max(ratios)))
    assert two.efficiency.value == two.speedup.value / 2
    assert (two.efficiency.low, two.efficiency.high) == pytest.approx((min(ratios) / 2, max(ratios) / 2))
    assert two.samples_per_s_per_device == pytest.approx(8 / 0.6 / 2)
    assert (one.speedup.value, one.efficiency.value, one.samples_per_s_per_device) == (1, 1, 8 / 1.025)


def test_weak_scaling_is_the_ratio_of_samples_in_the_same_time():
    (series,) = found(trials([1.0] * 6), trials([1.25] * 6, 4, 32)).series
    assert series.scaling == "weak"
    assert series.points[1].speedup.value == pytest.approx(4 / 1.25)
    assert series.points[1].efficiency.value == pytest.approx(0.8)


def test_one_device_is_the_baseline_of_both_kinds():
    several = found(trials(ONE), trials(TWO, 2), trials(ONE, 2, 16), trials(ONE, 4, 8), trials(ONE, 4, 32)).series
    assert {each.scaling: [point.devices for point in each.points] for each in several} == {
        "strong": [1, 2, 4],
        "weak": [1, 2, 4],
    }
    assert len({each.name for each in several}) == 1


def test_different_work_is_no_series():
    """Neither the same work nor that of each device: three times, or other parameters beside the batch."""
    cases = {"case": {"params": {"batch_size": 16, "ms": 2.0}}}
    made = found(trials(ONE), trials(ONE, 2, 24), trials(ONE, 2, 16, **cases, number=7))
    assert made.series == []
    assert all("no case of one device has the same work, or the work of each device" in why for why in made.left_out)
    assert len(made.left_out) == 2


def test_frameworks_and_hosts_have_series_of_their_own():
    plain = trials(ONE)[0].machine
    there = msgspec.structs.replace(plain, host="elsewhere")
    others = {"case": {"framework": "other"}, "number": 8}
    made = found(trials(ONE), trials(TWO, 2), trials(ONE, **others), trials(TWO, 2, machine=there, run="b", number=9))
    assert [[point.devices for point in each.points] for each in made.series] == [[1, 2]]
    (left_out,) = made.left_out
    assert "measure --devices=1 in the same run" in left_out


def test_several_nodes_are_scaled_by_one_device_of_another_job_on_an_equal_node():
    here = trials(ONE)[0].machine
    job = {"allocation": Allocation("slurm", "1", ["a"], 0)}
    unlike = {
        **job,
        "machine": msgspec.structs.replace(here, host="b", cpu=msgspec.structs.replace(here.cpu, model="?")),
    }
    there = {**job, "machine": msgspec.structs.replace(here, host="c"), "run": "two"}
    assert found(trials(ONE, **unlike), trials(TWO, 2, **there)).series == []
    (series,) = found(trials(ONE, **unlike), trials(ONE, **job), trials(TWO, 2, **there)).series
    assert [(point.devices, point.method) for point in series.points] == [(1, "none"), (2, "unpaired")]
    assert f"2 devices: one device was measured on another node, {here.host}" in "\n".join(series.notes)
    (series,) = found(trials(ONE, **job), trials(ONE, **there), trials(TWO, 2, **there)).series
    assert "another node" not in "\n".join(series.notes)


def test_one_device_alone_has_no_series():
    assert (found(trials(ONE)).series, found(trials(ONE)).left_out) == ([], [])


def test_failed_cases_are_left_out():
    failed = {"status": "failed", "error": Failure("exception", "told to", "timed")}
    made = found(trials(ONE), trials(TWO, 2), trials(TWO, 4, **failed))
    assert [point.devices for point in made.series[0].points] == [1, 2]
    (left_out,) = made.left_out
    assert left_out.endswith("4 devices: every trial failed")


def test_an_exchange_is_not_scaled():
    params = {"problem": "collective", "params": {"op": "all_reduce", "bytes": 1024}}
    records = [
        make_record(1.0, case={**params, "devices": devices}, design={"case_number": devices}) for devices in (1, 2)
    ]
    (left_out,) = found(records).left_out
    assert "2 devices: an exchange divides no work" in left_out


def test_doubts_are_told():
    busy = msgspec.structs.replace(QUIET, duration_s=2.0, other_busy_cores=1.5)
    cores = trials(ONE)[0].machine.cpu.usable_cores
    (series,) = found(trials([1.0], interference=busy), trials([0.5], 4 * cores, samples=8)).series
    notes = "\n".join(series.notes)
    assert "the devices are virtual, parts of one CPU" in notes
    assert f"{4 * cores} devices on {cores} core" in notes
    assert "a side has fewer than two processes" in notes
    assert "1 of 2 trials was disturbed, for instance: other processes kept 1.5 cores busy" in notes
    card = {"case": {"device": "cuda"}, "number": 4}
    quiet = found(trials(ONE, **card), trials(TWO, 2, case={"device": "cuda"})).series[0]
    assert quiet.notes == []
    few = found(trials(ONE[:3], **card), trials(TWO[:3], 2, case={"device": "cuda"})).series[0]
    assert few.notes == ["too few trials for an interval; --trials=6 or more give one"]


def test_unlike_means_of_exchange_are_told():
    processes = {"case": {"framework": "other", "ranks": 2}, "number": 8}
    one = {"case": {"framework": "other"}, "number": 9}
    made = found(trials(ONE), trials(TWO, 2), trials(ONE, **one), trials(TWO, 2, **processes))
    assert made.notes == [
        "on a CPU, data is exchanged between processes (other) or within one (toy), which also affects scaling"
    ]
    assert found(trials(ONE), trials(TWO, 2)).notes == []
    assert found(on_nodes(ONE, 1, 1, 2), on_nodes(TWO, 2, 1, 2), on_nodes(TWO, 4, 2, 2)).notes == []


def test_a_framework_that_exchanges_data_by_other_means_over_nodes_is_told():
    """JAX has one process for the devices of a node."""
    several = (on_nodes(ONE, 1, 1, 2), on_nodes(TWO, 2, 1, 2, ranks=1), on_nodes(TWO, 4, 2, 2, ranks=2))
    (note,) = found(*several).notes
    assert note.startswith("on a CPU, data is exchanged between processes (toy over nodes) or within one (toy), ")


def test_a_ratio_is_shown_with_its_interval_if_it_has_one():
    point = found(trials(ONE), trials(TWO, 2)).series[0].points[1]
    assert shown(point.speedup) == "1.75 [1.54, 1.91]"
    assert shown(point.efficiency, percent=True) == "87.4% [76.9, 95.5]"
    assert shown(point.speedup.__class__(1.0)) == "1"


def test_an_efficiency_is_split_into_factors_that_multiply_to_it():
    (series,) = found(trials([1.0] * 6), trials([0.625] * 6, 2)).series
    split = series.points[1].split
    assert series.points[1].efficiency.value == pytest.approx(0.8)
    assert split.size == pytest.approx(1 / 2 / (0.6 * 0.625))
    assert split.contention == pytest.approx(0.6 / 0.76)
    assert split.imbalance == pytest.approx(0.95)
    assert split.communication == pytest.approx(0.8)
    assert split.product == pytest.approx(0.8)
    assert (split.slowest, split.score) == (0, pytest.approx(0.9))
    assert series.points[0].split is None
    (weak,) = found(trials([1.0] * 6), trials([1.25] * 6, 4, 32)).series
    assert weak.points[1].split.size == pytest.approx(1 / (0.6 * 1.25))
    assert weak.points[1].split.product == pytest.approx(weak.points[1].efficiency.value)


def test_a_local_phase_unlike_the_timed_part_is_told():
    slower = {"local": local(1.0, 2)}
    notes = found(trials([1.0] * 6), trials([0.625] * 6, 2, **slower)).series[0].notes
    assert any("2 devices: the factors multiply to 50%, not to the efficiency: a step took" in note for note in notes)


def test_what_has_no_local_phase_says_why():
    without = {"local": None}
    notes = found(trials(ONE), trials(TWO, 2, **without)).series[0].notes
    assert "2 devices: the efficiency is not split into its factors: one device exchanges nothing" in notes


def test_devices_by_themselves_without_a_local_phase_say_why():
    left_out = found(trials(TWO, 2, case={"independent": True}, local=None)).left_out
    assert [text.partition(": ")[2] for text in left_out] == ["one device exchanges nothing"]


def test_each_strategy_is_a_series_of_its_own():
    def divided(strategy, number):
        return trials(TWO, 2, case={"parallel": strategy}, number=number)

    several = found(trials(ONE), divided("dp", 1), divided("tp", 2)).series
    assert [(each.scaling, each.parallel, len(each.points)) for each in several] == [
        ("strong", "dp", 2),
        ("strong", "tp", 2),
    ]
    assert sentence(several[1]).startswith("strong scaling (tp) to 2 devices: 1.75 ")
    assert labels(several)[0] == ["strong, dp", "strong, tp"]
    assert labels(found(trials(ONE), trials(TWO, 2)).series)[0] == ["strong"]


def test_more_than_ideal_is_doubted_in_the_headline_and_what_to_look_at_first_is_told():
    series = found(trials(ONE), trials([0.3] * 6, 2)).series[0]
    assert sentence(series).endswith("efficiency 173% [150, 200] (more than ideal)")
    assert [note for note in series.notes if "above 100%" in note] == [
        "2 devices: the efficiency is above 100%; look first at one device by itself again (was it slow?), then "
        "whether only a share of the work fits a cache"
    ]
    (few,) = found(trials(ONE), trials([0.45, 0.6, 0.44, 0.4, 0.6, 0.44], 2)).series
    assert few.points[1].efficiency.value > 1.05 > 1 > few.points[1].efficiency.low
    for usual in (few, *found(trials(ONE), trials(TWO, 2)).series):
        assert sentence(usual).endswith("]")
        assert not any("above 100%" in note for note in usual.notes)


def test_more_than_ideal_with_fewer_threads_on_one_device_is_told_by_them():
    software = make_record().software
    one = trials(ONE, software=msgspec.structs.replace(software, threads=1))
    both = trials([0.3] * 6, 2, case={"ranks": 2}, software=msgspec.structs.replace(software, threads=2))
    assert "look first at the threads, 1 of one device and 4 here; --threads sets them" in "".join(
        found(one, both).series[0].notes
    )


def test_a_speed_up_from_disturbed_trials_is_provisional_as_in_every_other_command():
    busy = {"interference": msgspec.structs.replace(QUIET, duration_s=2.0, other_busy_cores=1.5)}
    (series,) = found(trials([1.344], **busy), trials([0.06], 2)).series
    assert sentence(series) == (
        "strong scaling to 2 devices: 22.4 times the speed of one, efficiency 1120% "
        "(provisional, more than ideal, no interval)"
    )
    notes = "\n".join(series.notes)
    assert "2 devices: provisional: 1 of 1 trial of 1 device was disturbed" in notes
    assert "look first at the disturbed trials of one device: stop other work on the machine" in notes
    (apart,) = found(trials(ONE), trials(TWO, 2, run="other")).series
    assert sentence(apart).endswith("(provisional)")


def test_no_straggler_is_named_among_more_devices_than_cores():
    cores = make_record().machine.cpu.usable_cores
    for devices in (cores + 2, 2):
        together = [4] * (devices - 1) + [8]
        late = Local(1, [[10]] * devices, [together] * devices, list(range(devices)), [4] * devices)
        card = {"case": {"device": "cuda"}, "number": devices}
        for more, is_named in (({}, devices <= cores), (card, True)):
            one = {**more, "number": 1} if more else {}
            (series,) = found(trials(ONE, **one), trials(TWO, devices, local=late, **more)).series
            assert any("is a straggler: +100%" in note for note in series.notes) == is_named
            assert (series.points[1].split.slowest is not None) == is_named
        (case,) = found(trials(TWO, devices, case={"independent": True}, local=late)).devices
        assert case.slowest.endswith(", a straggler" if devices <= cores else "because they are more than the cores")


def test_frameworks_are_told_apart_by_labels_and_share_notes():
    other = {"case": {"framework": "other"}}
    several = found(
        trials(ONE), trials(TWO, 2), trials(ONE, **other, number=1), trials(TWO, 2, **other, number=2)
    ).series
    names, shared = labels(several)
    assert [name.split(", ")[0] for name in names] == ["strong", "strong"]
    assert {name.split(", ")[1] for name in names} == {"toy", "other"}
    assert "fp32 on cpu" in shared
    assert any("parts of one CPU" in note for note in shared_notes(several))
    assert shared_notes(several[:1]) == []


def on_nodes(step_s, devices, nodes, cores, ranks=None):
    """Trials on nodes with so many cores each."""
    plain = make_record().machine
    machine = msgspec.structs.replace(plain, cpu=msgspec.structs.replace(plain.cpu, usable_cores=cores))
    of_machine = {path: why for path, why in make_record().reasons.items() if path.startswith("machine.")}
    reasons = make_record().reasons | {
        path.replace("machine", f"machines[{at}]", 1): why for path, why in of_machine.items() for at in range(nodes)
    }
    machines = [machine] * nodes if nodes > 1 else []
    case = {"devices": devices, "nodes": nodes, "ranks": ranks or devices, "params": {"batch_size": 8, "ms": 1.0}}
    return trials(step_s, devices, case=case, machine=machine, machines=machines, reasons=reasons)


@pytest.mark.parametrize(("nodes", "is_crowded"), [(1, True), (2, False)])
def test_a_series_goes_on_over_nodes_whose_cores_all_count(nodes, is_crowded):
    several = [on_nodes(ONE, 1, 1, 2), on_nodes(TWO, 4, nodes, 2)]
    (series,) = found(*several).series
    assert [point.devices for point in series.points] == [1, 4]
    assert any("4 devices on 2 cores" in note for note in series.notes) == is_crowded
    assert any("parts of one CPU" in note for note in series.notes) == is_crowded
