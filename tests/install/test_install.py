"""The wheel in environments of their own, with no extra, each extra alone, and all: what each serves runs."""

import fcntl
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from support.environments import Environment
from support.serving import openai

from benchmarker.cli.commands import SECTIONS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TRACES = ROOT / "tests" / "fixtures" / "traces"
CONSTRAINTS = ROOT / "constraints.txt"
NOT_SHIPPED = shutil.ignore_patterns(".*", "build", "dist", "results", "*.egg-info", "__pycache__")
PLAN = """
problem = "gemm"
framework = "numpy"
m = 32
trials = 2
measuring.seconds = 0.05
axes.n = [16, 32]
"""
UNET_1D = "--model=UNet1DModel --config=unet.json --image-size=512"
UNET = '{"extra_in_channels": 64}'
GPT2 = '{"n_layer": 1, "n_embd": 48, "n_head": 3, "vocab_size": 101}'
SHORT = "--trials=1 --seconds=0.05 --power=none"
QUICK = f"--problem=gemm --m=48 --n=48 {SHORT}"
TRAINED = f"--problem=gpt2 --n-layer=1 --d-model=48 --vocab-size=101 --seq-len=16 --mode=training {SHORT}"
ON_H200 = "--roof=vendor --device='NVIDIA H200' --precision=fp32"

BASE = f"""
run --framework=numpy {QUICK} --results=a
run --framework=numpy {QUICK} --results=b
sweep --framework=numpy --problem=gemm --axis=m=16,32 --trials=1 --seconds=0.05 --results=swept
new begun.toml
plan show begun.toml
plan run plan.toml --results=planned
submit plan.toml --launcher=local --results=submitted
jobs submitted
check --framework=numpy --problem=gemm
ceilings --known
predict --problem=llama --phase=decode --roof=vendor --device='NVIDIA H200'
nodes show a b
ab --framework=numpy --problem=gemm --seconds=0.05 --a=--k=16 --b=--k=64 --max-rounds=2 --power=none
ladder --framework=numpy --problem=gemm --m=16 --seconds=0.05 --trials=1
compare a b
history a b
pareto a
table swept --rows=m
table swept --rows=m --format=html
table swept --rows=m --format=latex
suite list
suite run procurement-quick --framework=numpy --dry-run
suite score a b
suite check planned --suite=plan.toml
suite accept planned --write=reference.toml --anyway
suite accept planned --reference=reference.toml
bundle create a/* -o a.zip
bundle verify a.zip
bundle unpack a.zip --to=unpacked
archive add a --to=kept
show kept
profile import jax-dp.xplane.pb.gz -o tables
profile kernels tables/*.parquet
profile scopes tables/*.parquet
profile ops tables/*.parquet
profile gemms tables/*.parquet
profile ranks torch-dp.rank0.json.gz torch-dp.rank1.json.gz
profile idle tables/*.parquet
profile path tables/*.parquet
profile memory tables/*.parquet
profile export tables/*.parquet
roofline tables/*.parquet {ON_H200}
show a
validate a
list
describe gemm
env
power
"""
"""What runs with the base alone, in this order: later commands read what earlier ones wrote."""

REFUSED = {
    f"run --framework=jax {QUICK}": "jax",
    f"run --framework=torch {QUICK}": "torch",
    f"run --framework=onednn {QUICK}": "onednn",
    f"run --framework=tensorflow {QUICK}": "tensorflow",
    "report a": "report",
    "nodes show a -o page.html": "report",
    "history a -o page.html": "report",
    f"roofline tables/*.parquet {ON_H200} -o roof.svg": "plot",
    "serve-load --endpoint=http://127.0.0.1:9 --rate=1": "serve",
    "profile sql tables/*.parquet 'SELECT 1'": "trace",
    "query kept 'SELECT 1'": "trace",
    "profile sql jax-dp.xplane.pb.gz 'SELECT 1' --perfetto": "trace",
    "telemetry a/*/2*": None,  # nothing was measured
    "scaling a": None,  # nothing is scaled
    "fit a --over=m": None,  # there is one size
    "bisect --good=v1 -- run f.py": None,  # this is no git repository
    "card a": None,  # these are other problems
    "nodes run plan.toml": None,  # this machine is no fleet
}
"""What ends in one line, with the base alone after `BASE`, and the extra that the line tells how to install."""

FRAMEWORK = f"""
run --framework=FRAMEWORK {QUICK} --profile --results=profiled
profile kernels profiled/*/2*.json
profile ops profiled/*/2*.json
check --framework=FRAMEWORK --problem=mlp
"""
ENGINE = "serve-load --framework=torch --problem=llama --size=cs336-small --n-layer=1 --rate=4 --prompt-len=4"
MADE = f"run --framework=numpy {QUICK} --results=a"

SERVED = {
    "jax": f"""{FRAMEWORK.replace("FRAMEWORK", "jax")}
        run --framework=jax {TRAINED} --batch-size=2 --devices=1,2 --results=scaled
        scaling scaled""",
    "torch": f"""{FRAMEWORK.replace("FRAMEWORK", "torch")}
        run --framework=torch {TRAINED}
        {ENGINE} --new-tokens=3 --seconds=1s""",
    "onednn": f"""run --framework=onednn,blas,numpy {QUICK}
        check --framework=onednn --problem=gemm --precision=fp32""",
    "onnxruntime": f"run --framework=onnxruntime {QUICK}",
    "openvino": f"run --framework=openvino {QUICK}",
    "tensorflow": f"""run --framework=tensorflow {QUICK} --profile --results=profiled
        profile ops profiled/*/2*.json
        run --framework=tensorflow,numpy {QUICK}
        run --framework=tensorflow --problem=keras --model=MobileNet --image-size=32 {SHORT}
        check --framework=tensorflow --problem=mlp""",
    "plot": f"roofline jax-dp.xplane.pb.gz {ON_H200} -o roof.svg",
    "report": f"""{MADE}
        report a -o report.html
        history a -o history.html
        nodes show a -o nodes.html""",
    "serve": "serve-load --endpoint=URL --rate=20 --prompt-len=4 --new-tokens=3 --seconds=0.4s",
    "trace": f"""{MADE}
        archive add a --to=kept
        query kept 'SELECT count(*) FROM blocks'
        profile sql jax-dp.xplane.pb.gz 'SELECT count(*) FROM events'""",
    "pytest": "list",  # its test below measures with it too
    "transformers": f"""run --framework=torch --problem=transformers --config=gpt2.json --seq-len=8 {SHORT}
        list libraries""",
    "diffusers": f"run --framework=torch --problem=diffusers {UNET_1D} {SHORT}",
    "keras": f"""run --framework=jax,torch --problem=keras --model=MobileNet --image-size=32 {SHORT}
        list models --problem=keras""",
    "torchvision": f"run --framework=torch --problem=torchvision --model=squeezenet1_1 --image-size=32 {SHORT}",
    "timm": f"run --framework=torch --problem=timm --model=test_vit --image-size=32 {SHORT}",
    "nvidia": "power",
    "amd": "power",
}
"""What each extra serves beyond the base."""

CUDA = re.compile(r"jax\[cuda\d+\]")
"""The requirement of the extra `nvidia` that brings gigabytes, which a machine without a GPU has no use for."""


STARTS = {
    "base": ([], f"run --framework=numpy {QUICK}"),
    "torch": (["torch"], f"run --framework=torch {QUICK} --profile"),
}
"""What is installed once for all tests that need it, and a run that compiles what most of them import."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One worker at a time makes a folder that all share."""
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def shared(session_folder: Path) -> Iterator[Path]:
    """Where the workers share what they make, which is large: the last to leave removes it."""
    with (session_folder / "users.lock").open("w") as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        folder = session_folder / "shared"
        folder.mkdir(exist_ok=True)
        yield folder
        with suppress(BlockingIOError):
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)


@pytest.fixture(scope="session")
def wheel(shared: Path) -> Path:
    """The wheel, made from the source distribution, and this from a copy of the source."""
    folder = shared / "wheel"
    with locked(folder):
        if not folder.exists():
            shutil.copytree(ROOT, folder / "source", ignore=NOT_SHIPPED)
            words = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, folder / "source"]
            subprocess.run(words, check=True, capture_output=True)
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="session")
def start(shared: Path, wheel: Path) -> Callable[[str], Path]:
    """Makes, once for all workers, an environment that others start from: the `base` alone, or with PyTorch beside it.

    A first run compiles the modules that later ones import.
    """

    def make(name: str) -> Path:
        folder = shared / name
        with locked(folder):
            if not (folder / "ready").exists():
                shutil.rmtree(folder, ignore_errors=True)
                environment = Environment(folder, None if name == "base" else make("base"))
                environment.install("--constraint", CONSTRAINTS, wheel, *STARTS[name][0])
                environment.succeed(STARTS[name][1])
                (folder / "ready").touch()
        return folder

    return make


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[Callable[..., Environment]]:
    """Makes the test's environment, with files to work on, which is removed afterwards: it may be large."""

    def make(begun: Path | None = None) -> Environment:
        made = Environment(tmp_path, begun)
        shutil.copytree(TRACES, made.work, ignore=shutil.ignore_patterns("*.py", "__pycache__"), dirs_exist_ok=True)
        (made.work / "plan.toml").write_text(PLAN)
        (made.work / "gpt2.json").write_text(GPT2)
        (made.work / "unet.json").write_text(UNET)
        return made

    yield make
    shutil.rmtree(tmp_path)


@pytest.fixture
def installed(environment, start, wheel: Path) -> Callable[..., Environment]:
    """Installs the wheel with an extra, in the versions that the tests are known to pass with.

    An extra that asks for PyTorch starts from the base with PyTorch, the others from the base.
    """

    def install(extra: str) -> Environment:
        asked = PROJECT["optional-dependencies"].get(extra, ())
        fresh = environment(start("torch" if re.search(r"\btorch\b", " ".join(asked)) else "base"))
        fresh.install("--constraint", CONSTRAINTS, f"{wheel}[{extra}]" if extra else wheel)
        where = subprocess.run(
            [fresh.python, "-c", "import benchmarker_problems as p; print(p.__file__)"],
            cwd=fresh.work, env=fresh.variables, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert Path(where.stdout).is_relative_to(fresh.python.parents[1])
        return fresh

    return install


def test_every_command_is_tried_with_some_extra():
    lines = [*BASE.splitlines(), *REFUSED, *"\n".join(SERVED.values()).splitlines()]
    commands = [name for section in SECTIONS.values() for name in section]
    assert [
        name for name in commands if not any(line.strip().startswith(f"{name} ") or line == name for line in lines)
    ] == []
    extras = {*PROJECT["optional-dependencies"]} - {"all", "dev", "benchmarks"}
    assert set(SERVED) == extras


def test_without_an_extra_the_base_works_and_the_rest_names_the_extra(installed):
    environment = installed("")
    environment.succeed(BASE)
    for line, extra in REFUSED.items():
        done = environment.run(line)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), f"{line}\n{done.stderr}"
        assert extra is None or f"pip install 'framework-benchmarker[{extra}] @ file:" in done.stderr
    unavailable = environment.run("power").stdout
    assert "framework-benchmarker[amd] @" in unavailable and "the module 'pynvml'" in unavailable


def serves(environment: Environment, extra: str) -> None:
    """Check that an extra alone is enough for what it serves."""
    with openai() as server:
        environment.succeed(SERVED[extra].replace("URL", server.url))
    assert f"framework-benchmarker[{extra}] @" not in environment.run("power").stdout


@pytest.mark.parametrize("extra", [extra for extra in SERVED if extra not in ("nvidia", "pytest")])
def test_an_extra_alone_is_enough_for_what_it_serves(installed, extra):
    serves(installed(extra), extra)


def test_pytest_is_enough_and_the_plugin_measures_a_test_that_makes_errors_of_warnings(installed):
    environment = installed("pytest")
    serves(environment, "pytest")
    (environment.work / "test_sum.py").write_text("def test_sum(measure):\n    assert measure(sum, [1, 2]) == 3\n")
    words = ["-m", "pytest", "-W", "error", "-o", "filterwarnings=error", "--benchmarker=run", "--benchmarker-trials=1"]
    done = subprocess.run(
        [environment.python, *words], cwd=environment.work, env=environment.variables, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "test_sum.py:test_sum" in done.stdout


def test_nvidia_reads_the_driver(environment, start, wheel):
    """Without JAX's CUDA libraries: the meter's binding is there, and tells that the driver's library is not."""
    names = PROJECT["optional-dependencies"]["nvidia"]
    lean = [name for name in names if not CUDA.match(name)]
    assert len(lean) == len(names) - 1
    fresh = environment(start("base"))
    fresh.install("--constraint", CONSTRAINTS, wheel, *lean)
    fresh.succeed(SERVED["nvidia"])
    assert "the module 'pynvml'" not in fresh.run("power").stdout


def test_all_extras_go_together(installed):
    environment = installed("all")
    environment.succeed(f"run --framework=jax,torch {QUICK} --profile --results=a")
    environment.succeed(
        f"""compare a --by=framework
        report a -o report.html
        roofline jax-dp.xplane.pb.gz {ON_H200} -o roof.svg
        profile sql jax-dp.xplane.pb.gz 'SELECT count(*) FROM events'"""
    )


def floors(*extras: str) -> list[str]:
    """The lowest declared version of each requirement of the base and of extras."""
    names = PROJECT["dependencies"] + [name for extra in extras for name in PROJECT["optional-dependencies"][extra]]
    return [re.sub(r"^([\w.-]+)>=([\w.]+)$", r"\1==\2", name) for name in names]


def test_the_lowest_declared_versions_work(environment, wheel):
    """Of the base and of each extra but two: torch's is what the others run with, nvidia's are the driver's."""
    extras = ("jax", "plot", "report", "serve", "trace", "amd")
    lowest = floors(*extras)
    assert all("==" in name for name in lowest)
    fresh = environment()
    fresh.install(f"{wheel}[{','.join(extras)}]", *lowest)
    fresh.succeed(f"{BASE}{SERVED['jax'].strip()}")
    with openai() as server:
        for extra in ("plot", "report", "serve", "trace", "amd"):
            fresh.succeed(SERVED[extra].replace("URL", server.url))
