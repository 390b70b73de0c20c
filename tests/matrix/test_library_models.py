"""Models of libraries by name: those that docs/models-by-name.md lists run, and are right, at a tiny size."""

from importlib.util import find_spec
from pathlib import Path

import pytest
from support.library_models import CASES, on_page, outcomes, table

pytestmark = pytest.mark.slow
PAGE = Path(__file__).parents[2] / "docs" / "models-by-name.md"


@pytest.mark.parametrize("library", sorted({tried.library for tried in CASES} - {"keras"}))
def test_what_the_page_lists_runs(library):
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    made = table(list(outcomes([tried for tried in CASES if tried.library == library])))
    page = on_page(PAGE.read_text())
    assert [line for line in made if line.startswith(f"| {library} |")] == [
        line for line in page if line.startswith(f"| {library} |")
    ]


@pytest.mark.parametrize("tried", [each for each in CASES if each.library == "keras"], ids=lambda each: each.model)
def test_a_model_of_keras_is_right_in_each_framework_and_alike_or_the_page_says_why_not(tried):
    if find_spec("keras") is None:
        pytest.skip("keras is not installed")
    ((_, found),) = outcomes([tried])
    lines = [line for line in on_page(PAGE.read_text()) if line.startswith("| keras |") and f"`{tried.model}`" in line]
    if found == "right":
        assert [line.split(" | ")[1] for line in lines] == [tried.kind]
    else:
        assert lines == [f"| keras | `{tried.model}` | {found} |"]
