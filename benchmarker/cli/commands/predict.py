"""`benchmarker predict`."""

from collections.abc import Iterator
from math import ceil
from pathlib import Path
from typing import Any

import click

from benchmarker.api.case import Mode
from benchmarker.api.errors import UserError
from benchmarker.api.precision import PRECISIONS
from benchmarker.api.program import is_program
from benchmarker.cli.ceiling_measurement import measure_option, measure_quickly
from benchmarker.cli.display.output import Output, output_options
from benchmarker.cli.options.case import WORK, case_options
from benchmarker.cli.options.problem import ProblemCommand, problem_of
from benchmarker.cli.options.results import read_cases, tell_unread
from benchmarker.cli.options.roof import roof_option, roof_output
from benchmarker.cli.options.types import File, Number, refuse_given
from benchmarker.display.result import Part, Text
from benchmarker.display.two_roofs import two_roofs_output
from benchmarker.files.atomic import Fault
from benchmarker.formatting import si
from benchmarker.hooks import parameters
from benchmarker.library.ladder import MeasuredLadder
from benchmarker.machine.vendor_peaks import peak
from benchmarker.records import ceilings
from benchmarker.records.ceilings import Ceilings
from benchmarker.roofline.prediction import Fit, Phase, Prediction, predict
from benchmarker.roofline.roofs import Roof, Source, named_roof
from benchmarker.tables.table import Cell, Column, Table, number

GB = 1e9
_OF_WORK = (*WORK, "file", "source", "measure", "device", "memory_gb")
"""What a run has already."""


@click.command(
    "predict",
    cls=ProblemCommand,
    example="predict --problem=llama --phase=decode --device='NVIDIA H200' --roof=vendor",
)
@click.argument("run", type=click.Path(path_type=Path), required=False)
@case_options(*WORK, optional=True)
@click.option(
    "--ceilings",
    "file",
    type=File(),
    help="Ceilings of another machine: the ceilings.json of a run of `ceilings` there. [default: those known here]",
)
@roof_option
@measure_option
@click.option("--device", metavar="NAME", help="The device, such as 'NVIDIA H200'. [default: the only one known]")
@click.option(
    "--memory",
    "memory_gb",
    type=Number(min=0, min_open=True),
    metavar="GB",
    help="Size of the device's memory, to see which batch fits. [default: that of the vendor's data sheet]",
)
@click.option("-v", "--verbose", is_flag=True, help="Also print the scopes.")
@output_options(form=False)
def command(
    run: Path | None,
    mode: Mode,
    precision: str,
    file: Path | None,
    source: Source,
    measure: bool,
    device: str | None,
    memory_gb: float | None,
    verbose: bool,
    **options: Any,
) -> Output:
    """Predict the time of a step on a device, and for text generation what bounds it and which batch fits.

    Neither a framework nor the device is needed: only its ceilings, or with --roof=vendor the vendor's data sheet. The
    scopes of the problem run one after the other, each at the roof: T = Σ max(FLOPs / peak, bytes / bandwidth). AT
    LEAST is the time of a phase as a whole, with every weight and input read once. After a run, `roofline` shows what
    was measured beside the prediction.

      benchmarker predict --problem=llama --phase=decode --device='NVIDIA H200' --roof=vendor

      benchmarker predict results/RUN

    RUN is the folder of a run of `ladder`, whose step is predicted under two roofs: the machine's, and that of each
    framework, in which every piece of the step takes as long as alone. The first says what a framework loses against
    the machine, the second what the model loses in the framework, and where.
    """
    if run:
        refuse_given(_OF_WORK, "a run of `ladder` has its own; leave {} out")
        cases = read_cases((run,), pool=False)
        predictions = MeasuredLadder(cases.records).predictions
        return Output(two_roofs_output(predictions, verbose=verbose), predictions, 1 if cases.faults else 0)
    if not options["problem"]:
        raise UserError("name what to predict, --problem=gpt2, or the folder of a run of `ladder`")
    if is_program(options["problem"]):
        raise UserError("the work of a program is not known, so its time cannot be predicted; measure it with `run`")
    kind, given = problem_of(options)
    known = _known(file, source)
    if measure:
        if file or source == "vendor":
            raise UserError("--measure is for this machine; leave it or --ceilings and --roof=vendor out")
        computed = PRECISIONS[precision].compute
        if not any(ceiling.precision == computed and device in (None, ceiling.device.name) for ceiling in known.known):
            measure_quickly(None, [computed], {})
            known = _known(file, source)
    name = device or _only_device(known, source)
    roof = named_roof(name, precision, known, source)
    problem = parameters.convert(kind, parameters.resolve(kind, given, _platform(name, known, source)))
    problem.refuse(mode)
    vendor = peak(name)
    memory_bytes = memory_gb * GB if memory_gb else vendor.memory_bytes if vendor else None
    prediction = predict(problem, mode, precision, roof, memory_bytes)
    return Output(_output(prediction, source, verbose=verbose), prediction)


def _known(file: Path | None, source: Source) -> Ceilings:
    """Return the ceilings in a file, or those known here; raises `UserError` if the file is not one of ceilings."""
    if file is None:
        known = ceilings.known()
        tell_unread(known.faults)
        return known
    if source == "vendor":
        raise UserError("--roof=vendor takes the vendor's data sheet; leave --ceilings out")
    stored = ceilings.read(file)
    if isinstance(stored, Fault):
        raise UserError(f"cannot read {stored}; `benchmarker ceilings` stores ceilings.json in the folder of its run")
    return Ceilings(tuple(stored))


def _only_device(known: Ceilings, source: Source) -> str:
    """Return the device whose ceilings are known; raises `UserError` if there is none, or more than one."""
    devices = list(dict.fromkeys(str(ceiling.device) for ceiling in known.known))
    if source == "vendor":
        raise UserError("--roof=vendor needs a device: give --device=NAME")
    if not devices:
        raise UserError(
            f"no ceiling is known: add --measure ({ceilings.ABOUT}), give --ceilings=FILE of another machine, or give "
            "--roof=vendor --device=NAME"
        )
    if len(devices) > 1:
        raise UserError(f"ceilings of {len(devices)} devices are known, give --device=NAME: {'; '.join(devices)}")
    return devices[0]


def _platform(device: str, known: Ceilings, source: Source) -> str:
    """Return the platform of a device, which decides on the defaults of options; vendors' devices are accelerators."""
    platforms = (
        ceiling.device.platform for ceiling in known.known if device in (ceiling.device.name, str(ceiling.device))
    )
    return "gpu" if source == "vendor" else next(platforms)


def _output(prediction: Prediction, source: Source, *, verbose: bool) -> Iterator[Part]:
    """Yield what is predicted, what fits, and what would make one doubt it."""
    yield Text(f"{prediction.name} {prediction.precision}", "  ")
    yield from roof_output(prediction.roof)
    yield ""
    told_apart = any(phase.weight_bytes for phase in prediction.phases)
    rows = [_row(phase, told_apart=told_apart) for phase in prediction.phases]
    moved = ("weights", "cache", "activations")
    columns = [number(f"{name}_bytes", "B") for name in moved] if told_apart else [number("bytes", "B")]
    yield Table.of([*_OF_PHASES, *columns], rows, drop=["times"])
    if verbose:
        yield ""
        parts = [(phase.name, part) for phase in prediction.phases for part in phase.parts]
        rows = [(phase, part.scope, part.time_s, part.bound, part.flops, part.bytes) for phase, part in parts]
        yield Table.of(_OF_SCOPES, rows)
    yield ""
    for line in _sentences(prediction, source):
        yield Text(line, "  ")


_OF_PHASES = (
    Column("phase"),
    number("times"),
    number("predicted_s", "s"),
    number("at_least_s", "s"),
    Column("bound_by", levels=("bound by",)),
)
_OF_SCOPES = (
    Column("phase"),
    Column("scope"),
    number("predicted_s", "s"),
    Column("bound_by", levels=("bound by",)),
    number("flops", "FLOP", "FLOPs"),
    number("bytes", "B"),
)


def _row(phase: Phase, *, told_apart: bool) -> tuple[Cell, ...]:
    moved = (phase.weight_bytes, phase.cache_bytes, phase.activation_bytes)
    row = (phase.name, phase.count, phase.time_s, phase.least_s, phase.bound)
    return (*row, *(moved if told_apart else [sum(moved)]))


def _sentences(prediction: Prediction, source: Source) -> list[str]:
    rate = f"{si(prediction.samples_per_s, '1/s')} samples/s"
    if prediction.tokens_per_s is not None:
        rate = f"{si(prediction.tokens_per_s, '1/s')} tokens/s"
        if prediction.samples > 1:
            rate += f", {si(prediction.tokens_per_s_per_user, '1/s')} for each of {prediction.samples} sequences"
    whole = (
        f"a step takes {si(prediction.time_s, 's')}, at least {si(prediction.least_s, 's')}: "
        if prediction.phases[1:]
        else ""
    )
    lines = [whole + rate]
    if fit := prediction.fit:
        lines.append(
            f"ridge: products with weights are compute-bound from {ceil(prediction.ridge_rows)} tokens a pass on"
        )
        lines += [_crossover(phase) for phase in prediction.phases]
        lines.append(_room(fit))
        if fit.largest_batch is not None and prediction.samples > fit.largest_batch:
            lines.append(f"note: a batch of {prediction.samples} does not fit")
    return [*lines, f"note: {_doubt(prediction.roof, source)}"]


def _crossover(phase: Phase) -> str:
    if phase.crossover_batch is None:
        return f"{phase.name} is memory-bound at every batch size: each sequence reads its own cache"
    return f"{phase.name} as a whole is compute-bound from a batch of {phase.crossover_batch} on"


def _room(fit: Fit) -> str:
    needed = f"weights take {si(fit.weight_bytes, 'B')}, the cache {si(fit.cache_bytes_per_sequence, 'B')} a sequence"
    if fit.memory_bytes is None:
        return f"{needed}; the size of the memory is not known, so neither is the largest batch: give --memory=GB"
    fits = f"a batch of {fit.largest_batch} or less fits" if fit.largest_batch else "no batch fits"
    return f"{needed}: {fits} into {fit.memory_bytes / GB:g} GB, without room for activations"


def _doubt(roof: Roof, source: Source) -> str:
    launches = (
        "no launches" if not any(ceiling.start_s for ceiling in roof.few_rows) else "of launches only those of products"
    )
    doubt = f"no overlap of scopes, {launches}, and nothing that stays in a cache is in the model"
    if source == "vendor":
        return f"{doubt}; no device reaches the vendor's peaks, so measured ceilings predict better"
    if not roof.few_rows:
        return f"{doubt}; products of few rows may read weights more slowly: `benchmarker ceilings` measures it"
    return doubt
