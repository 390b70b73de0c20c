"""Places with records, as the report reads them, and the values that a page is made of."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.profiles import torch_events, torch_json
from support.records import make_energy, make_record
from support.serving import load, outcome, step

from benchmarker import Record
from benchmarker.api.meter import Channel
from benchmarker.comparing.results import Rules
from benchmarker.files import atomic
from benchmarker.page.assemble import page
from benchmarker.page.gather import gather
from benchmarker.page.page_model import Figure, Listing, Page
from benchmarker.page.study import Study
from benchmarker.power import telemetry
from benchmarker.power.sampler import Sample
from benchmarker.power.samplers import Sampled
from benchmarker.records import load as loads
from benchmarker.records import store
from benchmarker.records.load import Slo
from benchmarker.records.record import Failure
from benchmarker.traces import profile_files
from benchmarker.traces.ingest import ingest

HOSTILE = (
    "<script>document.title = 'executed'</script>",
    "</script><b>bold</b>",
    '"><img src=x onerror="document.title = \'executed\'">',
    "a\x1b[31m\u202eb\u2028c\x00",
    '=HYPERLINK("http://example.org")',
)


def write(folder: Path, records: Iterable[Record]) -> Path:
    """A place with these records."""
    folder.mkdir(parents=True, exist_ok=True)
    for record in records:
        atomic.write(folder / f"{record.trial_id}.json", atomic.encode(record))
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, driven by Playwright; tests that need it are skipped where either is missing."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed")
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=sandbox)
        yield running
        running.close()


@pytest.fixture
def place(tmp_path: Path) -> Callable[..., Path]:
    return lambda records, name="results": write(tmp_path / name, records)


@pytest.fixture
def study_of() -> Callable[..., Study]:
    def make(*places: Path, **options: Any) -> Study:
        return gather([(each, *store.read([each])) for each in places], Rules(), **options)

    return make


@pytest.fixture
def page_of(study_of: Callable[..., Study]) -> Callable[..., Page]:
    return lambda *places, **options: page(study_of(*places, **options))[0]


@pytest.fixture(scope="session")
def parts() -> Callable[..., dict[str, Figure | Listing]]:
    """Figures by key and tables by title."""

    def find(made: Page) -> dict[str, Figure | Listing]:
        every = [*filter(None, [made.picture]), *(part for section in made.sections for part in section.parts)]
        return {part.key if isinstance(part, Figure) else part.title: part for part in every}

    return find


def two(a: Iterable[float], b: Iterable[float], **case: Any) -> list[Record]:
    """A run of two frameworks, interleaved: the step times of their trials, one block each."""
    return [
        make_record(step_s, trial=trial, case={"framework": name, **case}, design={"case_number": number})
        for number, (name, steps) in enumerate((("one", a), ("two", b)))
        for trial, step_s in enumerate(steps)
    ]


@pytest.fixture(name="two")
def two_fixture() -> Callable[..., list[Record]]:
    return two


def failed(record: Record, message: str) -> Record:
    """The same trial, had it failed."""
    return msgspec.structs.replace(record, status="failed", error=Failure("exception", message, "timed", 1))


@pytest.fixture(name="failed")
def failed_fixture() -> Callable[[Record, str], Record]:
    return failed


CARD = Channel(id="GPU-<b>a\u202e\x1b", domain="gpu", quantity="power_instant_W")
HEAT = Channel(id="GPU-<b>a\u202e\x1b", domain="gpu", quantity="temperature_C")
COUNTER = Channel(id="package-0", domain="package", quantity="energy_J", wraps_at=1000.0)


def time_series(seconds: int = 100) -> bytes:
    """20 readings a second: a card with a spike to 900 W, and a counter that rises by 50 W and wraps."""
    spike = seconds * 10
    return telemetry.encode(
        [
            Sampled(
                "nvml",
                (CARD, HEAT),
                (),
                [
                    Sample(at * 50_000_000, 0, "begin" if at == 20 else "", (900.0 if at == spike else 300.0, 60.0))
                    for at in range(seconds * 20)
                ],
            ),
            Sampled(
                "rapl",
                (COUNTER,),
                (),
                [Sample(at * 50_000_000, 0, "", ((at * 2.5) % 1000.0,)) for at in range(seconds * 20)],
            ),
        ]
    )


def profiled(record: Record, folder: Path, kernel: str = "sgemm_128x64") -> Record:
    """A record with the profile of PyTorch that `profiles` makes; the event table goes into the folder."""
    events = torch_events()
    for event in events:
        if event["name"] == "sgemm_128x64":
            event["name"] = kernel
        if event["name"] == "aten::mm":
            event["name"] = f"aten::{kernel}"
    trace = folder / "trace.json.tmp"
    trace.write_bytes(torch_json(events))
    found = ingest(trace)
    trace.unlink()
    (folder / f"{record.trial_id}.events.parquet").write_bytes(profile_files.encode(found))
    reasons = {name: reason for name, reason in record.reasons.items() if name != "trace"}
    return msgspec.structs.replace(
        record, trace=found.trace, scopes=found.scopes, kernels=found.kernels(), reasons=reasons
    )


@pytest.fixture(name="profiled")
def profiled_fixture() -> Callable[..., Record]:
    return profiled


@pytest.fixture(name="time_series")
def time_line_fixture() -> Callable[..., bytes]:
    return time_series


def rich(folder: Path) -> Path:
    """A place that has a bit of everything: sweeps, energy, time series, profiles, a failure, a load, hostile names."""
    folder.mkdir(parents=True)
    records = []
    for number, (framework, batch_size) in enumerate((name, size) for name in ("one", "two") for size in (1, 4, 16)):
        for trial in range(7):
            step_s = (1.0 + 0.3 * (framework == "two")) * (1 + 0.1 * batch_size) * (1 + 0.01 * trial) / 100
            record = make_record(
                [step_s * (1 + 0.02 * block) for block in range(20)],
                trial=trial,
                case={"framework": framework, "problem": HOSTILE[0], "params": {"batch_size": batch_size}},
                design={"case_number": number},
                command=f"benchmarker run --problem='{HOSTILE[1]}' --batch-size={batch_size}",
            )
            machine = msgspec.structs.replace(record.machine, host=HOSTILE[2], kernel=HOSTILE[3])
            cost = msgspec.structs.replace(record.cost, samples=batch_size, tokens=8 * batch_size)
            libraries = {HOSTILE[4]: "1.0"}
            software = msgspec.structs.replace(record.software, libraries=libraries)
            energy = make_energy(500.0 + 100 * number + trial)
            record = msgspec.structs.replace(record, machine=machine, cost=cost, software=software, energy=energy)
            if trial == 0 and batch_size == 1:
                record = profiled(record, folder, HOSTILE[number % 2])
                (folder / f"{record.trial_id}.telemetry.parquet").write_bytes(time_series())
            records.append(failed(record, HOSTILE[1]) if trial == 6 and number == 5 else record)
    answers = [[outcome(at / rate, 0.1, 0.2 * rate) for at in range(40)] for rate in (1, 2, 4)]
    steps = [step(each, rate, 40 / rate) for each, rate in zip(answers, (1.0, 2.0, 4.0), strict=True)]
    loads.write(folder, load(steps, model=HOSTILE[0], slo=Slo(ttft_s=0.2, tpot_s=0.5)))
    return write(folder, records)


@pytest.fixture(scope="session")
def rich_place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rich(tmp_path_factory.mktemp("rich") / "results")
