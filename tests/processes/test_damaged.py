"""Records with one damaged number among sound ones: refused and named, or read; everything else is served."""

import copy
import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "fixtures/records/v1"
RECORDS = [json.loads(path.read_text()) for path in sorted(FOLDER.glob("2*.json"))]
COMMANDS = [
    ("show", "d"),
    ("compare", "d", "--by=framework", "--baseline=numpy"),
    ("pareto", "d"),
    ("validate", "d"),
    ("profile", "kernels", "d/damaged.json"),
    ("suite", "score", "d", "--by=framework", "--baseline=numpy", "--contender=torch"),
]


def numbers(part, path=()):
    """The path of each number; of a list, of its first two items."""
    if isinstance(part, dict | list):
        items = part.items() if isinstance(part, dict) else list(enumerate(part))[:2]
        for name, value in items:
            yield from numbers(value, (*path, name))
    elif isinstance(part, int | float) and not isinstance(part, bool):
        yield path


def changed(path, value):
    record = copy.deepcopy(RECORDS[1])
    part = record
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = value
    return record


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("value", [10**400, 2**63 - 1, 0, -1, 1e308, 5e-324], ids=lambda value: str(value)[:6])
def test_no_number_in_a_record_stops_a_command(command, tmp_path, value):
    (tmp_path / "d").mkdir()
    for number, record in enumerate(RECORDS):
        (tmp_path / f"d/{number}.json").write_text(json.dumps(record))
    (tmp_path / "d/1.json").unlink()
    for path in numbers(RECORDS[1]):
        (tmp_path / "d/damaged.json").write_text(json.dumps(changed(path, value)))
        for words in COMMANDS:
            assert command(*words).returncode in (0, 1, 2)
        if value == 10**400 and path[0] != "schema_version":
            done = command("show", "d", "--json")
            assert len(json.loads(done.stdout)) == 3
            assert "cannot read d/damaged.json: " in done.stderr
