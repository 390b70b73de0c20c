"""The report page of everything that the other tests measured."""

from importlib.util import find_spec

import pytest
from support.gpu import Outcome, Tool


@pytest.mark.gpu(limit_s=120)
def test_report(tool: Tool) -> None:
    """A report page of all records is written."""
    if find_spec("jinja2") is None:
        pytest.skip("jinja2 is not installed")
    runs = list(tool.results.glob("*/plan.json"))
    if not runs:
        pytest.skip("no test has left records")
    path = tool.results.with_name("report.html")
    status, _, messages = tool.execute("benchmarker", "report", str(tool.results), f"--output={path}")
    is_written = status != 2 and path.is_file()
    figure = f"{len(runs)} runs on a page of {path.stat().st_size / 2**20:.1f} MiB" if is_written else ""
    tool.judge(Outcome(figure, [] if is_written else [messages]))
