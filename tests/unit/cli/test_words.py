"""The same words and units everywhere: plurals, rates and sizes, and messages of several lines."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from support.commands import named
from support.records import make_record
from unit.bundles.test_bundle import RUN, make_run, members, rebuild

from benchmarker.cli.commands import LINES
from benchmarker.display.machine import machine_rows
from benchmarker.display.profiles import cell
from benchmarker.formatting import count, duration_s, one_line, si
from benchmarker.machine.gpus import Gpu

ROOT = Path(__file__).parents[3]
RIDDLES = (
    r"warm-up is left|changes level within|waited for a core \d|not like the others|unlike the others|not alike",
    r"what has become|what becomes? of|this is said|\bis told\b|\bare told\b|\bbe told\b|told apart|which needs which",
    r"\bnowhere\b|(engine|server) of text|all works|so many (?!requests)|an? [\w-]+ of (its|their) own\b",
    r"(?<!^)expected `|got `(str|int|float|bool)|mixed-bf16|mixed-fp16|integer range|does the work of one by itself",
)
"""What needs two readings, and once stood in help, messages or pages."""


def messages() -> Iterator[tuple[str, str]]:
    """Yield each text in the code that a user may see, with its place: string constants, but no docstrings."""
    for folder in ("benchmarker", "plugins", "problems"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", node.value


def helps() -> Iterator[tuple[str, str]]:
    """Yield what each command says of itself, which is its docstring."""
    for name in LINES:
        command = named(name)
        yield f"{name} --help", " ".join((command.help or "").split())


def pages() -> Iterator[tuple[str, str]]:
    """Yield each paragraph of the documentation, with its page."""
    for path in (*sorted((ROOT / "docs").rglob("*.md")), *(ROOT / name for name in ("README.md", "CONTRIBUTING.md"))):
        for paragraph in re.split(r"\n\s*\n", path.read_text(encoding="utf-8")):
            yield str(path.relative_to(ROOT)), " ".join(paragraph.split())


@pytest.mark.parametrize("texts", [messages, helps, pages])
def test_no_riddle_comes_back(texts):
    riddle = re.compile("|".join(RIDDLES), re.IGNORECASE)
    found = [f"{place}: {match[0]!r} in {text[:100]!r}" for place, text in texts() if (match := riddle.search(text))]
    assert found == []


@pytest.mark.parametrize(
    "text", ["of ops on a CPU, a trace does not tell which needs which", "the engine of text", "--m: expected `int`"]
)
def test_a_riddle_is_seen(text):
    assert re.search("|".join(RIDDLES), text, re.IGNORECASE)


def test_a_plural_fits_its_number():
    assert [count(number, "fault") for number in (0, 1, 2)] == ["0 faults", "1 fault", "2 faults"]
    assert [count(number, "process", "processes") for number in (1, 2)] == ["1 process", "2 processes"]


def test_one_fault_of_a_bundle_is_one_fault(command, tmp_path):
    assert command("bundle", "create", str(make_run(tmp_path / "mine")), "-o", "bid.zip").returncode == 0
    files = members(tmp_path / "bid.zip")
    log = next(name for name in files if name.endswith(".log"))
    rebuild(tmp_path / "bid.zip", {**files, log: b"another"}, listed=files)
    done = command("bundle", "verify", "bid.zip")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "NOT VERIFIED: 1 fault\n" in done.stdout
    assert RUN in done.stdout


def test_rates_are_decimal_and_sizes_binary():
    assert cell("bytes_per_s", 2e9) == si(2e9, "B/s") == "2 GB/s"
    assert cell("bytes", 2**31) == si(2**31, "B") == "2 GiB"


def test_a_card_is_described_with_units():
    card = Gpu(0, "Card", "GPU-a", None, None, 80 * 2**30, 700.0, None, None, 0)
    rows = dict(machine_rows(msgspec.structs.replace(make_record().machine, gpus=[card])))
    assert rows["GPU 0"] == "index 0, name Card, uuid GPU-a, memory 80 GiB, power limit 700 W, processes 0"
    assert rows["memory"].endswith("iB")


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("1.5h", 5400), ("250ms", 0.25), ("2min", 120)])
def test_a_duration_is_read(text, seconds):
    assert duration_s(text) == seconds


def test_a_bare_duration_is_in_the_unit_asked_for():
    assert (duration_s("2", "m"), duration_s("2s", "m")) == (120, 2)
    with pytest.raises(ValueError, match=r"'soon' is not a time: write 250ms, 90s, 10m or 1\.5h"):
        duration_s("soon")


def test_a_message_of_several_lines_is_one_line_in_a_table(command, distribution, tmp_path, monkeypatch):
    assert one_line(" no lib\n\n  see\tREADME ") == "no lib see README"
    raising = "raise ImportError('no lib\\n\\n  see the README')\n"
    refusing = (
        "from benchmarker import UserError, hookimpl\n@hookimpl\ndef describe_framework():\n"
        "    raise UserError('no card\\n  and no driver')\n@hookimpl\ndef make_framework(): pass\n"
    )
    distribution(
        "odd",
        {"meter.odd": "odd.meter", "framework.odd": "odd.framework", "workload.gemm.odd": "odd.framework"},
        {"__init__.py": "", "meter.py": raising, "framework.py": refusing},
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    for words in (("power", "--power=odd"), ("list", "meters")):
        done = command(*words)
        assert "meter.odd cannot be imported: no lib see the README" in done.stdout
        assert r"\x0a" not in done.stdout + done.stderr
    done = command("sweep", "--problem=gemm", "--framework=odd,numpy", "--dry-run")
    assert "no card and no driver\n" in done.stdout
    listed = json.loads(command("list", "meters", "--json").stdout)
    assert [row["reason"] for row in listed if row["name"] == "odd"] == [
        "library_missing: meter.odd cannot be imported: no lib see the README"
    ]
