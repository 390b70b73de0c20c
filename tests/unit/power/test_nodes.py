"""The energy of several nodes, from what was read on each."""

import msgspec
import pytest

from benchmarker.api.meter import Channel, Unavailable
from benchmarker.power.energy import Timed, compute_energy, sum_over_nodes
from benchmarker.power.sampler import Sample
from benchmarker.power.samplers import Sampled

S = 1_000_000_000
NAMES = ("left", "right")
TIMED = Timed("cpu", None, None, steps=400, samples=800, step_s=0.1)
DENIED = Unavailable("package-0", "permission", "for root alone")


def rapl(watts, *, ahead_s=0, seconds=40.0, marks=("begin", "end"), lost_after_s=99.0):
    """What a package reads that draws this power: a rest of 2 s, and a timed part from 5 s on."""
    times = {round(at * 0.05 * S): "" for at in range(round((seconds + 7) * 20))}
    times |= dict(zip((5 * S, round((5 + seconds) * S)), marks, strict=False))
    samples = [
        Sample(at + ahead_s * S, 0, mark, (watts * at / S if at / S < lost_after_s else "lost",))
        for at, mark in sorted(times.items())
    ]
    return Sampled("rapl", (Channel(id="package-0", domain="package", quantity="energy_J"),), (), samples)


def account(*sampled, timed=TIMED, ahead_s=0):
    return compute_energy(sampled, timed, (ahead_s * S, (ahead_s + 2) * S), 0.05)


def test_energies_and_idle_powers_are_sums_each_in_its_own_window():
    found = sum_over_nodes(NAMES, [account(rapl(100.0)), account(rapl(300.0, seconds=40.5))])
    energy = found.energy
    assert energy.energy_J == pytest.approx(100 * 40 + 300 * 40.5)
    assert energy.total_J == pytest.approx(energy.energy_J)
    assert energy.idle_W == pytest.approx(400)
    assert energy.total_idle_W == pytest.approx(400)
    assert (energy.duration_s, energy.steps, energy.samples) == (40.5, 400, 800)
    assert (energy.domains, energy.flags) == (["package"], [])
    assert [(each.id, each.node) for each in energy.sensors] == [("package-0", 0), ("package-0", 1)]
    assert [(each.meter, each.node) for each in found.meters] == [("rapl", 0), ("rapl", 1)]


def test_clocks_of_nodes_are_never_compared():
    near = sum_over_nodes(NAMES, [account(rapl(100.0)), account(rapl(300.0))])
    far = sum_over_nodes(NAMES, [account(rapl(100.0)), account(rapl(300.0, ahead_s=10**6), ahead_s=10**6)])
    first, second = far.energy.sensors
    assert second.begin_ns - first.begin_ns == 10**6 * S
    back = msgspec.structs.replace(second, begin_ns=first.begin_ns, end_ns=first.end_ns)
    assert msgspec.structs.replace(far.energy, sensors=[first, back]) == near.energy


def test_a_sum_needs_every_node_and_its_reason_names_those_without():
    silent = Sampled("rapl", (), (DENIED,), [])
    found = sum_over_nodes(
        (*NAMES, "top"), [account(rapl(100.0)), account(silent), account(rapl(1.0, lost_after_s=20.0))]
    )
    energy = found.energy
    assert (energy.energy_J, energy.total_J) == (None, None)
    assert found.reasons["energy.energy_J"] == (
        "node right: rapl: package-0: permission: for root alone; "
        "node top: package-0: lost: the counter gave no reading at an edge"
    )
    assert found.reasons["energy.idle_W"] == "node right: rapl: package-0: permission: for root alone"
    assert [(each.node, each.energy_J is None) for each in energy.sensors] == [(0, False), (2, True)]
    assert found.reasons["energy.sensors[1].energy_J"] == "lost: the counter gave no reading at an edge"
    assert "energy.sensors[0].energy_J" not in found.reasons
    assert energy.duration_s == 40.0


def test_a_reason_that_all_nodes_have_names_none():
    silent = Sampled("rapl", (), (DENIED,), [])
    found = sum_over_nodes(NAMES, [account(silent), account(silent)])
    assert found.energy is None
    assert found.reasons == {"energy": "rapl: package-0: permission: for root alone"}
    assert sum_over_nodes(NAMES, [account(silent, timed=None)] * 2).reasons == {"energy": "nothing was timed"}


def test_flags_are_those_of_any_node():
    suspect = Channel(id="package-0", domain="package", quantity="power_instant_W")
    counted = rapl(100.0, seconds=40.0)
    channels = (*counted.channels, suspect)
    samples = [Sample(each.time_ns, 0, each.mark, (*each.readings, 150.0)) for each in counted.samples]
    found = sum_over_nodes(NAMES, [account(rapl(100.0, seconds=20.0)), account(Sampled("rapl", channels, (), samples))])
    assert found.energy.flags == ["energy_short", "counter_suspect"]
