"""The report page of everything that the other claims measured."""

import subprocess
import sys
from importlib.util import find_spec

from benchmarker import Claim, NotHereError, Outcome, Setting
from benchmarker_plugins.gpu_proof.tool import ToolError, note, results


def page(setting: Setting) -> Outcome:
    """Write `report.html` beside the claims' folders."""
    for name in ("jinja2", "plotly"):
        if find_spec(name) is None:
            raise NotHereError(f"{name} is not installed")
    runs = list(results(setting).glob("*/plan.json"))
    if not runs:
        raise NotHereError("no claim has left records")
    path = results(setting).with_name("report.html")
    words = [sys.executable, "-m", "benchmarker", "report", str(results(setting)), f"--output={path}"]
    done = subprocess.run(words, cwd=setting.folder, capture_output=True, text=True, check=False)
    note(done.stdout, done.stderr)
    if done.returncode == 2 or not path.is_file():
        raise ToolError((done.stderr.strip().splitlines() or ["no message"])[-1])
    return Outcome("PASS", f"{len(runs)} runs on a page of {path.stat().st_size / 2**20:.1f} MiB")


PAGE = Claim("report", "a report page of all records is written", 120, page)
