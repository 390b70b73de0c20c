"""The commands that show a view of profiles: `benchmarker profile kernels` and the others."""

from pathlib import Path
from typing import Any, get_args

import click

from benchmarker.cli.display.output import Output, View, output_options
from benchmarker.cli.display.profiles import (
    device_option,
    filter_options,
    profile_output,
    statistics,
    statistics_options,
    step_option,
)
from benchmarker.cli.options.results import pool_option, result_argument, results_argument
from benchmarker.cli.options.roof import roof_option
from benchmarker.cli.options.types import Choice
from benchmarker.library.profiles.gemms import ComputedIn
from benchmarker.library.profiles.scopes import ScopesSort
from benchmarker.library.profiles.statistics import KernelsBy, OpsBy
from benchmarker.library.profiles.timeline import IdleBy, MemoryBy
from benchmarker.library.profiles.view import TOP
from benchmarker.roofline.roofs import Source


@click.command("kernels")
@click.option("--by", type=Choice(get_args(KernelsBy)), default="name", help="Group by this.")
@click.option("--rule", is_flag=True, help="Also show the rule that determined each category.")
@statistics_options
def kernels_command(title: str | None, view: View, **options: Any) -> Output:
    """Show what ran on the device in a profile: how often, how long, and its share of the busy time.

    RESULT is a record of a profiled trial, an event table, or a profiler's trace file. On a CPU, the kernels are the
    HLO instructions or the ops themselves. With two RESULTs, the table shows what the second added, removed, slowed
    down or sped up, with its share of the total difference, per step if both have steps.

    BUSY splits each moment evenly among the kernels that ran then; SHARE is relative to the busy time of the whole
    profile. TOTAL is the sum of durations including nested work, SELF excluding it; a column equal to BUSY is hidden.
    Mean, median, percentiles and extremes refer to SELF. Rates are FLOPs and bytes divided by the durations of the
    events for which they are known; OF TIME is the share of such events in the line's time, if below 100%. SHAPES are
    the inputs of the op that launched the kernel. LAUNCH, with --wide, is its grid, block, registers per thread, shared
    memory per block in bytes, and estimated occupancy.

    With --format, --title or --output, the table is laid out for print: calls, share, total, mean, median, extremes,
    standard deviation, and the grid and block if the profile has them.
    """
    return statistics("kernels", title=title, view=view, **options)


@click.command("ops")
@click.option(
    "--by",
    type=Choice(get_args(OpsBy)),
    default="op",
    help="A line for each op, or for each op and the shapes and types of its inputs.",
)
@statistics_options
def ops_command(title: str | None, view: View, **options: Any) -> Output:
    """Show the ops of a profile: the HLO instructions of JAX, or the ops of PyTorch.

    For an HLO instruction the table shows its program, opcode and scope; for an op, DEVICE is the busy time of the work
    it launched on a device, and KERNEL the sum of that work's durations, by which rates divide. FLOPs count matrix
    products, convolutions and attention. Bytes are the minimum that must be moved. Both are shown only if the profile
    contains the shapes.

    RESULT is a record of a profiled trial, an event table, or a profiler's trace file. With two RESULTs, the table
    shows what the second added, removed, slowed down or sped up, with its share of the total difference, per step if
    both have steps.
    """
    return statistics("ops", title=title, view=view, **options)


@click.command("scopes")
@results_argument
@filter_options
@click.option("--sort", type=Choice(get_args(ScopesSort)), help="Column to sort by. [default: root]")
@pool_option
@output_options(top=TOP)
def scopes_command(results: tuple[Path, ...], view: View, **options: Any) -> Output:
    """Show the time of each scope in a profile; for several, the times per step side by side.

    Of several profiles, each configuration has a column, with medians over its trials. Of several folders, each is a
    side, with columns of its own.

    With two RESULTs that are not folders, the table shows which scopes were added, are gone, or take more or less time
    in the second, and their part of the whole difference, per step if both have steps.

    INCLUSIVE is the busy time of all work beneath the scope, also in scopes within it. ROOT is that of the work in the
    scope itself; SHARE, EACH and STEP are of ROOT. RAN is how often the scope ran, EXPECTED how often it should have.

    A compiler may fuse instructions of several scopes into one kernel. ROOT attributes such a kernel to the scope of
    its root instruction, so these times add up. ANY is the time of all kernels that contain an instruction of the
    scope, PURE the time of those that contain nothing else.

    RESULT is a record of a profiled trial, an event table, a profiler's trace file, or a folder of records.
    """
    return profile_output("scopes", results, view, **options)


@click.command("gemms")
@result_argument
@click.option("--device", metavar="NAME", help="The device of a trace, such as 'NVIDIA H100 80GB HBM3', for OF ROOF.")
@click.option(
    "--precision",
    type=Choice(get_args(ComputedIn)),
    help="How the products of f32 in a trace were computed. [default: fp32]",
)
@roof_option
@output_options(top=TOP)
def gemms_command(result: Path, source: Source, view: View, **options: Any) -> Output:
    """Show the matrix products of a profile: their sizes, how often they ran, how long and how fast.

    A product is C[M,N] = A[M,K] · B[K,N] in a batch. LAYOUT has a letter each for A and B: N if rows are contiguous in
    memory, T if columns are, as in a transposed matrix, and - if that is unknown. TIME is the sum of the durations of
    all kernels that the products' ops launched themselves. FLOP/S are 2·M·N·K·batch of each product divided by that
    time. SHARE is relative to the busy time of the whole profile. OF ROOF is the least time that the device's roofline
    allows divided by TIME; it needs a record with a known ceiling, or the --device of a trace.

    RESULT is a record of a profiled trial, an event table, or a profiler's trace file.
    """
    return profile_output("gemms", [result], view, roof=source, **options)


@click.command("ranks")
@results_argument
@output_options(top=TOP)
def ranks_command(results: tuple[Path, ...], view: View) -> Output:
    """Compare the ranks of a distributed program: compute, communication, waiting, and the bandwidth of collectives.

    RESULT is a trace or an event table of each rank, or a folder of them; of a single trace, each device is a rank.

    COMPUTE, EXPOSED (communication without computation) and IDLE add up to WALL; HIDDEN is communication overlapped
    with computation. WAITING is the time that a rank waited for others inside collectives: how much longer they took
    than on the rank that started last. LAST is the rank that most often started last. SHORTEST is the median time
    without waiting, from which the bandwidths are computed; BUS BW is the bus bandwidth of nccl-tests.
    """
    return profile_output("ranks", results, view)


@click.command("idle")
@result_argument
@click.option("--by", type=Choice(get_args(IdleBy)), default="cause", help="Group by this.")
@device_option
@step_option
@output_options(top=TOP)
def idle_command(result: Path, view: View, **options: Any) -> Output:
    """Show why the device waits in a profile: how its wall time divides into work and idle time, by cause.

    Causes: host (nothing was queued, the next work was launched late); sync (the host waited for the device, and
    launched more only then); kernel wait (queued, and begun within 30 µs); other stream, copy, collective (queued until
    work of another stream had ended); unknown. OP, SCOPE and CALL are those of the work that most of the time waited
    for. The largest part of the wall time decides whether a step is host-bound, kernel-bound, or bound by another part.

    DELAY is from the end of a launch call to the begin of its work. SHORT counts calls that took longer than the work
    they launched. QUEUE is work that was launched and has not begun.

    With --by=stream, gaps are those between the work of one stream, and their causes those of Holistic Trace Analysis.

    RESULT is a record of a profiled trial, an event table, or a profiler's trace file.
    """
    return profile_output("idle", [result], view, **options)


@click.command("path")
@result_argument
@step_option
@output_options(top=TOP)
def path_command(result: Path, view: View, **options: Any) -> Output:
    """Show the critical path of the steps of a profile: the chain of work and waits that determines when they end.

    Only what is on the path makes a step shorter if it becomes faster. The first table shows the time on the path by
    kind: host (ops and calls of the host), launch delay (from the begin of a launch call to that of its work), kernel,
    copy, stream wait (between two works of one stream), event wait (after work of another stream), sync (the host
    returning from a wait for the device), unknown (before work whose launch is not in the trace; or the host is in no
    op and no call while the device works). The second shows what takes longest on it.

    Several steps are summed; --step shows one. JSON has every segment of the path, in order.

    RESULT is a record of a profiled trial, an event table, or a profiler's trace file.
    """
    return profile_output("path", [result], view, **options)


@click.command("memory")
@result_argument
@click.option(
    "--by", type=Choice(get_args(MemoryBy)), default="scope", help="Group what was allocated at the peak by this."
)
@device_option
@output_options(top=TOP)
def memory_command(result: Path, view: View, **options: Any) -> Output:
    """Show the peak memory of each device in a profile, when it was reached, and what was allocated then.

    AT is the time of the peak since the first memory event; OP, SCOPE and STEP are those of the allocation that reached
    it. BEFORE is what was allocated before that event, RESERVED the device memory that the allocator holds. On a CPU,
    only allocations during the profile count. The second table adds up to the peak. JSON has every allocation and free
    over time.

    RESULT is a record of a profiled trial, an event table, or a profiler's trace file.
    """
    return profile_output("memory", [result], view, **options)
