"""The pages in docs/ against the code that they describe."""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import benchmarker
from benchmarker import NoMeterError
from benchmarker.api.precision import PRECISIONS
from benchmarker.hooks import registry, specs
from benchmarker.records.plan import Plan
from benchmarker.records.record import schema

DOCS = Path(__file__).parents[2] / "docs"
REGENERATE = (
    'python -c "import json; from benchmarker.records.record import schema; print(json.dumps(schema(), indent=1))" '
    "> docs/record.schema.json"
)


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def hooks() -> Iterator[str]:
    """Name, arguments and result of every hook, as its source has them."""
    for node in ast.parse(inspect.getsource(specs)).body:
        if isinstance(node, ast.FunctionDef) and node.decorator_list:
            assert node.returns is not None
            yield f"{node.name}({ast.unparse(node.args)}) -> {ast.unparse(node.returns)}"


def test_every_hook_stands_in_plugins_md_as_it_is() -> None:
    assert re.findall(r"^### `(.+)`$", page("plugins.md"), flags=re.MULTILINE) == list(hooks())


def test_every_public_name_stands_once_in_api_md() -> None:
    named = re.findall(r"^::: benchmarker\.(\w+)$", page("api.md"), flags=re.MULTILINE)
    assert sorted(named) == sorted(set(benchmarker.__all__) - {"__version__"})


def test_every_kind_of_address_stands_in_plugins_md() -> None:
    kinds = re.findall(r"^\| `(\w+)\.[\w.]+` \|", page("plugins.md"), flags=re.MULTILINE)
    assert sorted(kinds) == sorted(registry.KINDS)


def paths(node: Mapping[str, Any], definitions: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """The path of every field below a part of the schema, `[]` for the items of a list."""
    for part in (node, *node.get("anyOf", [])):
        if "$ref" in part:
            fields = definitions[part["$ref"].rpartition("/")[2]]["properties"]
            for name, field in fields.items():
                below = f"{path}.{name}" if path else name
                yield below
                yield from paths(field, definitions, below)
        if "items" in part:
            yield from paths(part["items"], definitions, f"{path}[]")


def test_every_field_of_a_record_stands_in_records_md_and_no_other() -> None:
    published = schema()
    described = re.findall(r"^\| `([^`]+)` \|", page("records.md"), flags=re.MULTILINE)
    assert sorted(described) == sorted(paths(published, published["$defs"]))


def test_every_field_of_a_plan_stands_in_records_md() -> None:
    text = page("records.md")
    assert [name for name in Plan.__struct_fields__ if f"`{name}`" not in text] == []


def test_the_published_schema_is_what_the_types_give() -> None:
    expected = json.dumps(schema(), indent=1) + "\n"
    assert page("record.schema.json") == expected, f"the types of a record have changed; run: {REGENERATE}"


def test_measuring_md_says_what_each_precision_means() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| (\w+) \| (\w+) \| (\w+) \| ([\d.e-]+) \|$", page("measuring.md"), flags=re.MULTILINE
    )
    expected = [(p.name, p.parameter, p.compute, p.accumulate, f"{p.bound:.2g}") for p in PRECISIONS.values()]
    assert rows == expected


def test_the_meter_of_plugins_md_reads() -> None:
    section = page("plugins.md").partition("### `make_meter")[2]
    code = re.search(r"```python\n(.*?)```", section, flags=re.DOTALL)
    assert code
    names: dict[str, Any] = {"board_is_here": lambda: True, "watts_of_the_board": lambda: 250.0}
    exec(code[1], names)
    meter = names["make_meter"](None)
    assert (len(meter.channels), meter.read()) == (1, (250.0,))
    names["board_is_here"] = lambda: False
    with pytest.raises(NoMeterError, match="no such board"):
        names["make_meter"](None)


def test_the_page_of_problems_has_every_problem_and_its_frameworks() -> None:
    page = (DOCS / "problems.md").read_text().splitlines()
    frameworks = {"jax": "JAX", "torch": "PyTorch"}
    for address in registry.registered("problem"):
        name = address.partition(".")[2]
        (line,) = [line for line in page if line.startswith(f"| `{name}` |")]
        assert {each for each in frameworks if frameworks[each] in line} == {*registry.implementing(name)} - {"numpy"}
