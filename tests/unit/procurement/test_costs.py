"""Costs: by hand, with units, and refused where the file makes no sense."""

import msgspec
import pytest
from support.records import make_energy, make_record

from benchmarker import UserError
from benchmarker.hooks.metrics import load_metrics
from benchmarker.procurement.costs import basis, cost_notes, with_costs
from benchmarker.procurement.costs import read as read_costs
from benchmarker.records.record import CostPart

SIDE = """
price = 31536
lifetime_years = 5
utilisation = 0.5
electricity_price_per_kWh = 0.36
pue = 1.25
"""


def read(tmp_path, text):
    path = tmp_path / "cost.toml"
    path.write_text(text)
    return read_costs(path)


def with_energy(joules, **total):
    energy = msgspec.structs.replace(make_energy(joules), **total)
    return make_record(0.02, energy=energy)


def test_the_cost_of_a_second_by_hand(tmp_path):
    costs = read(tmp_path, f'currency = "EUR"\n[side.baseline]{SIDE}')
    # 31536 EUR / (5 a * 365 d * 86400 s * 0.5) = 31536 / 78840000 s = 0.0004 EUR/s
    # 800 W * 1.25 = 1 kW; 1 kW * 0.36 EUR/kWh = 0.36 EUR/h = 0.0001 EUR/s
    assert costs.of("baseline", "old").per_s(800) == pytest.approx(0.0005)


def test_a_side_may_have_its_path_but_not_its_name_as_well(tmp_path):
    called = {"offers/2026/a": "a", "offers/2026/b": "b"}
    path = tmp_path / "cost.toml"
    path.write_text(f'currency = "EUR"\n[side."offers/2026/a"]{SIDE}[side.b]{SIDE}')
    assert [*read_costs(path, called).sides] == ["a", "b"]
    path.write_text(f'currency = "EUR"\n[side."offers/2026/a"]{SIDE}[side.a]{SIDE}')
    with pytest.raises(UserError, match=r'two of the tables \[side."offers/2026/a"\], \[side.a\] are of one side'):
        read_costs(path, called)


def test_samples_for_money_go_by_the_power_of_all_that_is_seen(tmp_path):
    inputs = read(tmp_path, f'currency = "EUR"\n[side.baseline]{SIDE}').of("baseline", "")
    record = with_energy(8_000.0, total_J=32_000.0)  # in 40 s: 800 W in all, 200 W of them the card's
    derived = with_costs(load_metrics(), {record.trial_id: inputs}, "EUR")(record)
    assert derived["samples_per_s"].value == pytest.approx(100)  # 2 samples in 20 ms
    assert derived["samples_per_cost"].value == pytest.approx(100 / 0.0005)
    assert derived["samples_per_cost"].unit == "1/EUR"
    assert derived["mean_power_W"].value == pytest.approx(200)


def test_the_cost_of_output_tokens_by_hand(tmp_path):
    inputs = read(tmp_path, f'currency = "EUR"\n[side.baseline]{SIDE}power_W = 800').of("baseline", "")
    text, image = make_record(0.02, cost=CostPart(1000, 0, 8, 2, 50, 30, 20)), make_record(0.02, trial=1)
    derive = with_costs(load_metrics(), dict.fromkeys((text.trial_id, image.trial_id), inputs), "EUR")
    metric = derive(text)["cost_per_million_output_tokens"]  # 1000 tokens/s for 0.0005 EUR/s
    assert (metric.value, metric.unit, metric.better) == (pytest.approx(0.5), "EUR", "lower")
    assert derive(image)["cost_per_million_output_tokens"].reason == "its steps generate no text"


def test_without_energy_the_power_of_the_file_stands_in_or_there_is_none(tmp_path):
    plain = make_record(0.02)
    plain = msgspec.structs.replace(plain, reasons={**plain.reasons, "energy": "no sensor"})
    lacking = read(tmp_path, f'currency = "EUR"\n[side.baseline]{SIDE}').of("baseline", "")
    metric = with_costs(load_metrics(), {plain.trial_id: lacking}, "EUR")(plain)["samples_per_cost"]
    assert metric.value is None
    assert metric.reason == "no sensor; set power_W in the cost file to use a fixed power"
    given = read(tmp_path, f'currency = "EUR"\n[side.baseline]{SIDE}power_W = 800').of("baseline", "")
    metric = with_costs(load_metrics(), {plain.trial_id: given}, "EUR")(plain)["samples_per_cost"]
    assert metric.value == pytest.approx(100 / 0.0005)
    found = basis("old", given, [plain, with_energy(1.0, total_J=16_000.0)])
    assert (found.trials, found.measured, found.used_power_W) == (2, 1, 600)  # 800 W by the file, 400 W measured
    assert found.cost_per_hour == pytest.approx(3600 * (0.0004 + 0.0001 * 600 / 800))


def test_powers_of_unlike_parts_are_told():
    card, both = with_energy(1.0), with_energy(1.0, total_domains=["package", "gpu"])
    assert cost_notes([[card], [card, make_record()]]) == []
    assert cost_notes([[card], [both]]) == [
        "the powers cover different parts of the machine: some gpu, others gpu and package"
    ]


def test_keys_at_the_top_hold_for_each_side_unless_it_says_otherwise(tmp_path):
    costs = read(tmp_path, f'currency = "EUR"{SIDE}[side.baseline]\n[side."results/new"]\nprice = 0\npue = 1.0')
    assert costs.of("baseline", "x").price == 31536
    new = costs.of("contender", "results/new")
    assert (new.price, new.pue, new.utilisation) == (0, 1, 0.5)


def test_a_side_goes_by_its_role_its_name_or_its_value(tmp_path):
    costs = read(tmp_path, f'currency = "EUR"{SIDE}[side.jax]\npue = 1.1\n[side.baseline]\npue = 1.2')
    for name in ("framework=jax", "framework=jax execution=jitted"):
        assert costs.of("contender", name).pue == 1.1
    with pytest.raises(
        UserError, match=r"names the baseline \(framework=jax\) twice, as baseline and jax; leave one out"
    ):
        costs.of("baseline", "framework=jax")
    with pytest.raises(
        UserError, match=r'toml has no costs for the contender \(a b\); add \[side.contender\] or \[side."a b"\]'
    ):
        costs.of("contender", "a b")
    with pytest.raises(UserError, match=r"toml has no costs for jax 2; add \[side.\"jax 2\"\]"):
        costs.of(None, "jax 2")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[side.baseline]", "it needs currency"),
        ('currency = ""\n[side.a]', 'currency="": must not be empty'),
        ('currency = "EUR"', "it has no table [side.NAME]"),
        ('currency = "EUR"\nprices = 3\n[side.a]', "there is no key prices; there are: currency, side, price"),
        (
            'currency = "EUR"\n[side.a]\nprice = 1',
            "side.a needs lifetime_years, utilisation, electricity_price_per_kWh, pue",
        ),
        ('currency = "EUR"\n[side.a]\nprices = 1', "side.a has no key prices; there are: price, lifetime_years"),
        (f'currency = "EUR"{SIDE}[side.a]\nprice = -1', "side.a.price=-1: must be at least 0"),
        (f'currency = "EUR"{SIDE}[side.a]\nprice = nan', "side.a.price=nan: not a finite number"),
        (f'currency = "EUR"{SIDE}[side.a]\nprice = inf', "side.a.price=inf: not a finite number"),
        (f'currency = "EUR"{SIDE}[side.a]\nprice = "1"', 'side.a.price="1": not a number'),
        (f'currency = "EUR"{SIDE}[side.a]\nlifetime_years = 0', "side.a.lifetime_years=0: must be at least 0.001"),
        (f'currency = "EUR"{SIDE}[side.a]\nutilisation = 5e-324', "side.a.utilisation=5e-324: must be at least 0.001"),
        (f'currency = "EUR"{SIDE}[side.a]\nutilisation = 70', "side.a.utilisation=70: must be at most 1"),
        (f'currency = "EUR"{SIDE}[side.a]\npue = 0.9', "side.a.pue=0.9: must be at least 1"),
        (f'currency = "EUR"{SIDE}[side.a]\npower_W = 0', "side.a.power_W=0: must be at least 0.001"),
        (f'currency = "EUR"{SIDE}[side.a]\nprice = 1e308', "side.a.price=1e+308: must be at most 1e+15"),
        (f'currency = "EUR"{SIDE}[side.a]\nprice = 1{"0" * 400}', "side.a.price=1000"),
        (f'currency = "EUR"{SIDE}[side."a b"]\nprice = 0\nelectricity_price_per_kWh = 0', 'side."a b": price and'),
        ("currency = ", "not TOML: "),
    ],
)
def test_what_makes_no_sense_is_refused_by_file_and_key(tmp_path, text, message):
    with pytest.raises(UserError) as caught:
        read(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'cost.toml'}: ")
    assert message in str(caught.value)
