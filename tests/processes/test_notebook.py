"""Results in a real notebook: a kernel runs the cells, and their HTML has the tables and figures."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from support.records import make_record

from benchmarker.files import atomic

pytestmark = pytest.mark.slow

CELLS = {
    "compare": "import benchmarker\ncompared = benchmarker.compare({folder!r}, by='framework')\ncompared",
    "history": "benchmarker.history({folder!r})",
    "report": "benchmarker.report({folder!r}, by='framework')",
    "score": "benchmarker.score({folder!r}, by='framework')",
    "measure": "measured = benchmarker.measure(lambda x: x @ x, inputs=lambda n=8: {{'x': np.eye(n)}}, seconds=0.1)\n"
    "measured",
    "magic": "%%measure --seconds=0.1 --preheat=false x = np.eye(8)\nx @ x",
    "record": "measured.records[0]",
    "table": "compared.tables[0]",
    "frame": "compared.to_pandas()",
    "record without matplotlib": "import sys\n"
    "sys.modules |= dict.fromkeys([name for name in sys.modules if name.startswith('matplotlib')])\n"
    "sys.modules.pop('benchmarker.page.drawing')\nmeasured.records[0]",
}
FIGURES = {"compare": 2, "history": 2, "report": 2, "measure": 1, "magic": 1, "record": 2}
"""Figures below the tables; none of the others."""


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """What each cell of a notebook gives, by its name; a cell that fails, or says anything, is an error."""
    pytest.importorskip("ipykernel")
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    folder = tmp_path_factory.mktemp("results")
    for number, (framework, step_s) in enumerate((("one", 1.0), ("two", 1.5))):
        for trial in range(8):
            blocks = [step_s * (1 + 0.01 * trial + 0.001 * block) for block in range(25)]
            record = make_record(blocks, trial=trial, case={"framework": framework}, design={"case_number": number})
            atomic.write(folder / f"{record.trial_id}.json", atomic.encode(record))
    sources = [
        "import numpy as np\n%load_ext benchmarker",
        *(cell.format(folder=str(folder)) for cell in CELLS.values()),
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    return {name: cell["outputs"] for name, cell in zip(CELLS, notebook.cells[1:], strict=True)}


@pytest.mark.parametrize("name", CELLS)
def test_a_cell_shows_tables_and_figures(outputs, name):
    (result,) = [output for output in outputs[name] if output["output_type"] != "stream"]
    html = result["data"]["text/html"]
    assert html.count("<svg") == FIGURES.get(name, 0)
    if name != "frame":
        ElementTree.fromstring(f"<div>{html}</div>")
        assert not re.search(r'https?:|src=|href="(?!data:)|<script|<link', html)
    assert ("<table" in html) == (name != "report")
    assert ("a figure needs the module &#x27;matplotlib&#x27;; pip install" in html) == ("without" in name)


def test_a_record_has_the_figures_of_the_page_and_the_words_of_show(outputs):
    html = outputs["record"][0]["data"]["text/html"]
    assert "repeat with" in html
    assert re.findall(r"<figcaption><strong>(.*?)\.</strong>", html) == [
        "Step time of timed blocks",
        "Blocks of each trial",
    ]
