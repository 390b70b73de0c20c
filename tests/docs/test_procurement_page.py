"""docs/procurement.md: its TOML is read by the readers, and every key that they take stands on it."""

import re
import shlex
from pathlib import Path

import msgspec
import pytest
from support.records import QUIET, make_energy, make_record
from support.shown import holds

from benchmarker.files import atomic
from benchmarker.planning import suites
from benchmarker.procurement import reference, weights
from benchmarker.procurement.costs import Inputs
from benchmarker.procurement.costs import read as read_costs

PAGE = (Path(__file__).parents[2] / "docs/procurement.md").read_text()
BLOCKS = re.findall(r"^```toml\n(.*?)^```", PAGE, re.M | re.S)


@pytest.fixture
def block(tmp_path):
    """Writes the TOML block of a number to a file."""

    def write(number):
        path = tmp_path / f"{number}.toml"
        path.write_text(BLOCKS[number])
        return path

    return write


def keys(struct):
    return [field.name for field in msgspec.structs.fields(struct)]


def test_the_files_on_the_page_are_read(block):
    assert [each.weight for each in weights.read(block(0)).entries] == [3, 0.5]
    costs = read_costs(block(1))
    assert costs.of("baseline", "offers/a").power_W is None
    assert costs.of("contender", "offers/b").pue == 1.3
    first, second = reference.read(block(2))
    assert (first.low, first.high, first.trials) == (410, None, 6)
    assert (second.low, second.high) == pytest.approx((5.1e13 * 0.95, 5.1e13 * 1.05))
    assert len(BLOCKS) == 3


def test_every_key_stands_on_the_page():
    named = set(re.findall(r"`(\w+)`", "\n".join(line for line in PAGE.splitlines() if line.startswith("| `"))))
    for known in (keys(weights.Weight), keys(Inputs), keys(reference.Table), ["currency", "format_version"]):
        assert set(known) <= named


def test_every_suite_stands_on_the_page():
    of_tables = set(re.findall(r"lm-[a-z]+", (Path(__file__).parents[2] / "docs/tables.md").read_text()))
    of_tables = {f"{name.removesuffix('-quick')}{end}" for name in of_tables for end in ("", "-quick")}
    assert set(suites.names()) == of_tables | set(re.findall(r"^\| `((?:procurement|zoo|node)[\w-]*)`", PAGE, re.M))


EXAMPLE = PAGE.partition("## Example")[2].partition("\n## ")[0]
COSTS = re.findall(r"^```toml\n(.*?)^```", PAGE, re.M | re.S)[1]
CASES = (("gemm", {"m": 1024, "n": 1024, "k": 1024}), ("attention", {"seq_len": 512}), ("gpt2", {"seq_len": 64}))
SCATTER = (1.0, 1.012, 0.99, 1.008, 0.985, 1.004, 0.996, 1.01)
BUSY = msgspec.structs.replace(QUIET, other_busy_cores=11.8)


def offer(folder, steps_ms, *, usable=64, precision="fp32", interference=QUIET, power_W=500.0, run="1", several=False):
    """Write a run of the three cases, with these step times, by a machine of 64 cores."""
    folder.mkdir(parents=True)
    machine = make_record().machine
    cpu = msgspec.structs.replace(machine.cpu, model="processor", logical_cores=64, usable_cores=usable)
    machine = msgspec.structs.replace(machine, host=f"host-{folder.name}", cpu=cpu, cpu_quota_cores=None)
    for number, ((problem, params), step_ms) in enumerate(zip(CASES, steps_ms, strict=True)):
        for trial, factor in enumerate(SCATTER[number:] + SCATTER[:number]):
            record = make_record(
                step_ms * factor / 1e3,
                run=f"{folder.name}{run}",
                trial=trial,
                case={"problem": problem, "framework": "torch", "precision": precision},
                design={"case_number": number, "session": trial // 3 if several else 0},
                interference=interference,
                machine=machine,
                energy=make_energy(power_W * 40 * factor, id=f"GPU-{folder.name}"),
            )
            software = msgspec.structs.replace(record.software, threads=usable, commit="1a2b3c4d5e6f")
            case = msgspec.structs.replace(record.case, params=params)
            record = msgspec.structs.replace(record, software=software, case=case)
            (folder / f"{record.trial_id}.json").write_bytes(atomic.encode(record))


@pytest.fixture
def handed_in(tmp_path):
    """The offers as first handed in: one as asked for, one on half of its cores beside other work, one in bf16."""
    offer(tmp_path / "offers/a", [10.0, 20.0, 40.0])
    offer(tmp_path / "offers/b", [9.0, 18.0, 34.0], usable=32, interference=BUSY)
    offer(tmp_path / "offers/c", [5.0, 11.0, 24.0], precision="bf16")


@pytest.fixture
def measured_again(tmp_path):
    """The offers after the second and the third were measured as asked for."""
    offer(tmp_path / "offers/a", [10.0, 20.0, 40.0], run="2", several=True)
    offer(tmp_path / "offers/b", [7.0, 14.5, 26.0], power_W=650.0, run="2", several=True)
    offer(tmp_path / "offers/c", [9.98, 20.1, 40.2], run="2", several=True)
    (tmp_path / "cost.toml").write_text(COSTS)


def shown():
    """Each command in the example, with the text below it."""
    for block in re.findall(r"^```console\n(.*?)^```", EXAMPLE, re.M | re.S):
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            line, _, text = part.partition("\n")
            yield line.removeprefix("python -m benchmarker "), text


def check(command, words, text):
    done = command(*shlex.split(words))
    assert holds(text, done.stdout + done.stderr), f"benchmarker {words} now prints:\n{done.stdout}{done.stderr}"
    assert all(len(line) <= 80 for line in text.splitlines() if re.match(r"rank|metric|case| +\d ", line))
    return done


def test_an_offer_of_another_precision_is_refused_and_one_on_half_its_cores_is_provisional(command, handed_in):
    (refused, error), (pair, text), (status, number) = list(shown())[:3]
    assert check(command, refused, error).returncode == 2
    assert (check(command, pair, text).returncode, status) == (int(number), "echo $?")


def test_offers_that_were_measured_as_asked_are_ranked(command, measured_again):
    ((words, text),) = list(shown())[3:]
    assert check(command, words, text).returncode == 0


def test_a_pass_near_its_bound_is_shown_as_it_is_printed(command, tmp_path):
    (shown,) = re.findall(r"^```\n(PASS .*?)```", PAGE, re.M | re.S)
    for trial, rate in enumerate((395, 405, 413, 417, 425, 431)):
        record = make_record(2 / rate, trial=trial)
        (tmp_path / f"{record.trial_id}.json").write_bytes(atomic.encode(record))
    (tmp_path / "reference.toml").write_text(
        'format_version = 1\n[[case]]\nname = "GPT-2 small"\nmatch = {}\nmin = 410\n'
    )
    done = command("suite", "accept", ".", "--reference=reference.toml")
    assert done.returncode == 0
    assert shown in done.stdout
