"""The plan files in examples/programs, with the programs that are installed here, and their patterns."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from benchmarker.hooks import parameters, registry
from benchmarker.planning import factors, plan_file
from benchmarker_problems.program.figures import declared

FOLDER = Path(__file__).parents[2] / "examples" / "programs"
PLANS = sorted(path.stem for path in FOLDER.glob("*.toml"))
NEEDED = {
    "hpcc": ("hpcc", "mpirun"),
    "steps": ("cc",),
    "stream": ("cc",),
    "sysbench": ("sysbench",),
    "stress-ng": ("stress-ng",),
    "fio": ("fio",),
    "iperf3": ("iperf3",),
}
"""The plan files that were tried, and the programs that they need."""
PRINTED = {
    "hpl": ("WR11C2R4         200    80     1     2               0.00              2.212e+00", 2.212e9),
    "hpcg": ("Final Summary::HPCG result is VALID with a GFLOP/s rating of=12.3456", 12.3456e9),
    "osu": ("# OSU MPI Latency Test v7.2\n# Size          Latency (us)\n8                       1.63", 1.63e-6),
    "nccl-tests": ("# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 235.5", 235.5e9),
}
"""What the others print, as their documentation shows it."""


@pytest.mark.slow
@pytest.mark.parametrize("name", NEEDED)
def test_a_plan_file_measures_what_is_installed(cli, tmp_path, monkeypatch, name):
    if missing := [program for program in NEEDED[name] if shutil.which(program) is None]:
        pytest.skip(f"{missing[0]} is not installed")
    text = (FOLDER / f"{name}.toml").read_text()
    text = re.sub(r"^trials = \d+", "trials = 1", text, flags=re.M).replace("n = 10000000", "n = 1000000")
    (tmp_path / "plan.toml").write_text(re.sub(r"^n = 1000$", "n = 200", text, flags=re.M))
    shutil.copy(FOLDER / "hpccinf.txt", tmp_path)
    if name in ("steps", "stream"):
        subprocess.run(["cc", "-O3", "-fopenmp", FOLDER / f"{name}.c", "-o", tmp_path / name, "-lm"], check=True)
    for variable in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):
        monkeypatch.setenv(variable, "1")
    done = cli("plan", "run", "plan.toml", "--json")
    assert done.returncode == 0, done.stderr
    for record in json.loads(done.stdout):
        figures = declared(record["case"]["params"]["figure"])
        assert figures or record["check"]["ok"]
        assert all(record["metrics"][figure.name]["value"] > 0 for figure in figures)


@pytest.mark.parametrize("name", PLANS)
def test_each_plan_file_is_read_and_its_patterns_fit(name):
    assert name in {**NEEDED, **PRINTED}
    text = (FOLDER / f"{name}.toml").read_text()
    assert ("not tried" in text.lower()) == (name not in NEEDED)
    first, *_ = factors.expand(plan_file.read(FOLDER / f"{name}.toml"))
    options = {key: value for key, value in first.items() if key not in ("problem", "device", factors.CASE_NAME)}
    parameters.resolve(registry.problem(first["problem"]), options, "cpu")
    if name in PRINTED:
        printed, value = PRINTED[name]
        (figure,) = declared(options["figure"])
        assert figure.found(printed) == [pytest.approx(value)]
        if name != "hpl" and "sanity" in options:
            assert re.search(options["sanity"], printed)
