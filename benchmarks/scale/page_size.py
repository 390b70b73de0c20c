"""Measure the cost of pages with large inputs: seconds to build, megabytes, and seconds to open in Chromium."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
import msgspec

from benchmarker.files import atomic
from benchmarker.records import store
from benchmarker.records.record import Record
from benchmarker.traces import profile_files
from benchmarker.traces.ingest import ingest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import many_records  # noqa: E402
from traces import generate  # noqa: E402

EVENTS = 20_000
"""Events in each profile of the ten cases."""


@click.command()
@click.option("--records", default=10_000, show_default=True, help="Records of the second page.")
@click.option("--blocks", default=100, show_default=True, help="Timed blocks of each.")
@click.option("--events", default=1_000_000, show_default=True, help="Events in the profile of the third page.")
@click.option("--repeats", default=3, show_default=True, help="Times that each page is opened.")
def main(records: int, blocks: int, events: int, repeats: int) -> None:
    """Print the cost of three pages: ten cases with profiles, many records, and a record with a long profile."""
    print(f"{'page':28} {'build':>8} {'size':>9} {'open':>8}   (median of {repeats}: until what is visible is drawn)")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        profiled(folder / "ten", 10 * 4 * many_records.TRIALS, EVENTS)
        tell("ten cases with profiles", folder / "ten" / "old", repeats)
        (folder / "many").mkdir()
        many_records.write(folder / "many", records, blocks)
        tell(f"{records:,} records", folder / "many", repeats)
        profiled(folder / "long", 1, events)
        tell(f"{events:,} events in a profile", folder / "long", repeats)


def profiled(folder: Path, records: int, events: int) -> None:
    """Write records, the first trial of each configuration with the event table of a synthetic PyTorch trace."""
    folder.mkdir()
    many_records.write(folder, records, 100)
    trace = folder / "trace.tmp"
    generate.chrome(trace, events)
    ingested = ingest(trace)
    trace.unlink()
    of_trace = {"trace": ingested.trace, "scopes": ingested.scopes, "kernels": ingested.kernels()}
    for path in list(folder.rglob("*.json")):
        record = store.read_record(path)
        assert isinstance(record, Record), record
        if record.trial == 0:
            path.write_bytes(atomic.encode(msgspec.structs.replace(record, **of_trace)))
            path.with_name(f"{path.stem}.events.parquet").write_bytes(profile_files.encode(ingested))


def tell(what: str, place: Path, repeats: int) -> None:
    page = place.parent / f"{place.name}.html"
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "benchmarker", "report", str(place), "-o", str(page)], check=True, capture_output=True
    )
    build = time.perf_counter() - start
    seconds = opened(page, repeats)
    shown = "-" if seconds is None else f"{seconds:.2f} s"
    print(f"{what:28} {build:6.1f} s {page.stat().st_size / 1e6:6.1f} MB {shown:>8}", flush=True)


def opened(page: Path, repeats: int) -> float | None:
    """Return the median seconds until what is visible is drawn; None without Chromium and Playwright."""
    chromium = shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    if chromium is None:
        return None
    found = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for _ in range(repeats):
            tab = browser.new_page()
            tab.goto(page.as_uri())
            tab.wait_for_selector("html[data-drawn]", state="attached")
            found.append(int(tab.locator("html").get_attribute("data-drawn") or 0) / 1000)
            tab.close()
        browser.close()
    return sorted(found)[len(found) // 2]


if __name__ == "__main__":
    main()
