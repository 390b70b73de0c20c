"""The example in docs/procurement.md: three offers, and what the tool prints about them."""

import re
import shlex
from pathlib import Path

import msgspec
import pytest
from support.records import QUIET, make_energy, make_record

from benchmarker.files import atomic

PAGE = (Path(__file__).parents[2] / "docs/procurement.md").read_text()
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


def holds(text, printed):
    """Whether the parts of a text between lines `[...]` stand in what was printed, in this order."""
    for part in filter(None, text.split("[...]\n")):
        if part not in printed:
            return False
        printed = printed.partition(part)[2]
    return True


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
