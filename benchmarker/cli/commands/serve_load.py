"""`benchmarker serve-load`."""

import math
import secrets
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click

from benchmarker.api.errors import UserError
from benchmarker.cli.display.loads import output_of
from benchmarker.cli.display.output import Output, View, output_options, print_output
from benchmarker.cli.display.progress import Line, progress_options, quiet
from benchmarker.cli.options.case import case_options
from benchmarker.cli.options.problem import ProblemCommand
from benchmarker.cli.options.types import (
    LARGEST_NUMBER,
    Choice,
    Duration,
    File,
    Integer,
    Share,
    complete_plugin,
    refuse_given,
    results_option,
)
from benchmarker.cli.targets import endpoint, engine, engine_options
from benchmarker.formatting import duration_s
from benchmarker.machine.description import describe
from benchmarker.records import store
from benchmarker.records.load import MOST_TOKENS, Lengths, Load, Slo
from benchmarker.serving.arrivals import Request, draw, read_trace
from benchmarker.serving.latency import figures_of
from benchmarker.serving.search import bisect
from benchmarker.serving.session import Session, named
from benchmarker.version import __version__

DRAWN = ("rate", "arrivals", "burst_size", "prompt_len", "new_tokens", "seconds", "seed", "rate_precision")
"""Options that a trace file replaces."""
FOR_ENDPOINTS = ("model", "prompts", "stop_at_eos")
FOR_ENGINES = ("problem", "precision", "device", "gpu", "threads", "compile", "slots")


LATENCIES = tuple(name.removesuffix("_s") for name in Slo.__struct_fields__)


class Range(NamedTuple):
    """Rates between which to search, in requests/s."""

    low: float
    high: float


class Rates(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.5
    """Rates in requests/s: `4`, a list `1,2,4`, or a range to search `1..20`."""

    name = "rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Range | list[float]:
        """Return the range, or the list."""
        if not isinstance(value, str):
            return value  # type: ignore[no-any-return]  # click converts twice
        low, dots, high = value.partition("..")
        rates = [self._rate(rate, param, ctx) for rate in ((low, high) if dots else value.split(","))]
        if not dots:
            return rates
        if rates[0] >= rates[1]:
            self.fail(f"{value}: the lower rate comes first: 1..20", param, ctx)
        return Range(*rates)

    def _rate(self, text: str, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            rate = float(text)
        except ValueError:
            rate = math.nan
        if not 0 < rate <= LARGEST_NUMBER:
            self.fail(f"{text!r} is not a rate in requests/s: write 4, 1,2,4 or 1..20", param, ctx)
        return rate


class TokenCounts(click.ParamType):  # type: ignore[type-arg]
    """Lengths in tokens: `512`, or a range from which each is drawn `128..1024`."""

    name = "tokens"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Lengths:
        """Return the lengths."""
        if isinstance(value, Lengths):
            return value
        low, dots, high = value.partition("..")
        try:
            lengths = Lengths(int(low), int(high if dots else low))
        except ValueError:
            lengths = Lengths(1, MOST_TOKENS + 1)
        if lengths.low < 1 or lengths.high > MOST_TOKENS:
            self.fail(f"{value!r} is not a number of tokens: write 512 or 128..1024", param, ctx)
        return lengths


class Objective(click.ParamType):  # type: ignore[type-arg]
    """A service level objective: `ttft=500ms,tpot=50ms`."""

    name = "slo"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Slo:
        """Return the objective."""
        if isinstance(value, Slo):
            return value
        limits: dict[str, float] = {}
        for limit in value.split(","):
            name, equals, text = (word.strip() for word in limit.partition("="))
            if not equals or name not in LATENCIES:
                names = ", ".join(LATENCIES)
                self.fail(
                    f"{limit!r} is not a latency with its limit ({names}): write ttft=500ms,tpot=50ms", param, ctx
                )
            if f"{name}_s" in limits:
                self.fail(f"{name} has two limits; leave one out", param, ctx)
            try:
                limit_s = duration_s(text)
            except ValueError as error:
                self.fail(f"{name}: {error}", param, ctx)
            if not 0 < limit_s <= LARGEST_NUMBER:
                self.fail(f"{name}: {text} is not a time above 0", param, ctx)
            limits[f"{name}_s"] = limit_s
        return Slo(**limits)


@click.command("serve-load", cls=ProblemCommand, set_otherwise=lambda problem: engine_options(problem, 1, 1))
@click.option("--endpoint", "address", metavar="URL", help="Address of a server: http://127.0.0.1:8000/v1.")
@click.option("--model", metavar="NAME", help="Model to request. [default: the server's only model]")
@click.option(
    "--framework",
    metavar="NAME",
    shell_complete=complete_plugin("framework"),
    help="Framework whose engine to start, instead of an --endpoint.",
)
@case_options(*FOR_ENGINES, optional=True)
@click.option(
    "--slots",
    type=Integer(min=1),
    default=8,
    help="Sequences that an engine generates concurrently; other requests queue.",
)
@click.option(
    "--rate",
    type=Rates(),
    metavar="RATE[,RATE...]|LOW..HIGH",
    help="Requests/s: one rate, several for a table, or a range to search for the highest rate that holds the SLO.",
)
@click.option(
    "--arrivals",
    type=Choice(["poisson", "bursts"]),
    default="poisson",
    help="How requests arrive; bursts of --burst-size requests arrive as a Poisson process.",
)
@click.option("--burst-size", type=Integer(min=2), default=8, help="Requests per burst.")
@click.option(
    "--trace",
    type=File(),
    help="CSV with the columns arrival_s, prompt_len, new_tokens; replaces random arrivals and lengths.",
)
@click.option("--prompt-len", type=TokenCounts(), default="512", help="Prompt tokens, or a range: 128..1024.")
@click.option("--new-tokens", type=TokenCounts(), default="128", help="Tokens to generate, or a range: 32..256.")
@click.option("--seconds", type=Duration(min=0.001), default="60s", help="Duration of the load at each rate.")
@click.option(
    "--slo",
    type=Objective(),
    metavar="NAME=TIME[,...]",
    help="Service level objective: limits per request on ttft, tpot and e2e: ttft=500ms,tpot=50ms.",
)
@click.option(
    "--share",
    type=Share(),
    default="90%",
    help="Share of requests that must be answered before --timeout and meet the SLO.",
)
@click.option("--rate-precision", type=Share(), default="5%", help="Relative precision of the rate found in a range.")
@click.option(
    "--timeout",
    type=Duration(min=0.001),
    default="120s",
    help="Time after its scheduled arrival at which a request counts as failed.",
)
@click.option("--seed", type=Integer(min=0), help="Seed of arrivals and lengths. [default: random]")
@click.option(
    "--prompts",
    type=Choice(["ids", "words"]),
    default="ids",
    help="Prompts for a server: random token ids of exact length, or random words if it accepts only text.",
)
@click.option(
    "--stop-at-eos",
    is_flag=True,
    help="Let the server stop at an end-of-sequence token. [default: it is asked to ignore it]",
)
@results_option("Folder for the times.")
@partial(progress_options, verbose_help="Print progress every second, also in a pipe.")
@output_options(form=False)
def command(
    address: str | None,
    model: str | None,
    framework: str | None,
    slots: int,
    rate: Range | list[float] | None,
    arrivals: str,
    burst_size: int,
    trace: Path | None,
    prompt_len: Lengths,
    new_tokens: Lengths,
    seconds: float,
    slo: Slo | None,
    share: float,
    rate_precision: float,
    timeout: float,
    seed: int | None,
    prompts: str,
    stop_at_eos: bool,
    results: Path,
    view: View,
    **options: Any,
) -> Output:
    """Load-test a text-generation server or engine: measure TTFT, ITL, TPOT and goodput.

    A server must offer OpenAI's completions API with streaming. A framework's engine runs one of the language models
    that `list problems` names, with continuous batching; its tokens are checked first. The load is open-loop: requests
    are sent on schedule, whether or not earlier ones were answered, and latency counts from the scheduled time.
    One-time work, such as compilation, is done before.

    Once so many requests have timed out that --share can no longer be reached, the server is overloaded: the load at
    that rate ends, and higher rates are not tried.

    The times of all requests are stored; `show` prints them again. The exit status is 1 if the server was overloaded or
    answered no request at one of the rates; after a search, if the lowest rate does not hold the SLO.
    """
    if address is None and framework is None:
        raise UserError(
            "no server is named; give --endpoint=http://127.0.0.1:8000/v1, or for an engine --framework=torch "
            "--problem=llama"
        )
    if framework:
        refuse_given({"address", *FOR_ENDPOINTS}, "--framework starts an engine, not a server; leave {} out")
        if options["problem"] is None:
            raise UserError("an engine needs a language model; give --problem=llama")
    else:
        refuse_given(FOR_ENGINES, "a server has its own model; leave {} out")
    if trace:
        refuse_given(DRAWN, "--trace provides arrivals and lengths; leave {} out")
    elif rate is None:
        raise UserError("no rate is given; write --rate=4 (requests/s), --rate=1,2,4 or --rate=1..20")
    if isinstance(rate, Range) and slo is None:
        raise UserError("a range of rates is searched for the highest that holds an SLO; give one: --slo=ttft=500ms")
    if not isinstance(rate, Range):
        refuse_given({"rate_precision"}, "there is no range of rates to search; leave {} out")
    if arrivals != "bursts":
        refuse_given({"burst_size"}, "there are no bursts without --arrivals=bursts; leave {} out")
    planned = read_trace(trace) if trace else []
    seed = secrets.randbits(32) if seed is None else seed
    burst = burst_size if arrivals == "bursts" else 1
    longest = Request(0.0, prompt_len.high, new_tokens.high)
    if trace:
        longest = max(planned, key=lambda request: request.prompt_len + request.new_tokens)
    else:
        for requests_per_s in rate or ():  # what cannot be drawn is refused before any request
            draw(requests_per_s, seconds, prompt_len, new_tokens, seed, burst)
    if framework:
        opened = engine(framework, slots, longest, timeout, options)
    else:
        opened = endpoint(str(address), model, prompts, not stop_at_eos, longest, timeout)
    with opened as target, Line() as line:
        load = Load(
            run_id=store.new_id(),
            benchmarker=__version__,
            machine=describe(),
            endpoint=target.endpoint,
            engine=target.engine,
            model=target.model,
            arrivals="trace" if trace else arrivals,  # type: ignore[arg-type]  # one of the choices
            burst_size=burst if burst > 1 else None,
            prompt_len=None if trace else prompt_len,
            new_tokens=None if trace else new_tokens,
            seed=None if trace else seed,
            prompts=prompts,  # type: ignore[arg-type]  # one of the choices
            ignore_eos=not stop_at_eos,
            timeout_s=timeout,
            slo=slo,
            share=share,
            searched=isinstance(rate, Range),
            steps=[],
        )
        session = Session(load, results, target.send, line.show)

        def holds(requests_per_s: float) -> bool:
            figures = session.step(
                requests_per_s, seconds, draw(requests_per_s, seconds, prompt_len, new_tokens, seed, burst)
            )
            if not figures.reached:
                raise UserError(f"{target.gone} at {named(requests_per_s)}; start it again")
            met = figures.met
            if not quiet():
                ended = "overloaded" if figures.is_overloaded else "done"
                line.say(
                    f"{named(requests_per_s)}: {ended}" + (f", {met.value:.1%} of requests meet the SLO" if met else "")
                )
            return met is not None and met.value >= share

        try:
            if trace:
                session.step(None, planned[-1].arrival_s, planned)
            elif isinstance(rate, Range):
                bisect(rate.low, rate.high, rate_precision, holds)
            else:
                for requests_per_s in rate or ():
                    tried = figures_of(session.load)
                    if any(of.is_overloaded and (of.step.rate_per_s or 0.0) <= requests_per_s for of in tried):
                        line.say(f"{named(requests_per_s)}: not tried, because a lower rate was too high")
                    else:
                        holds(requests_per_s)
        except (KeyboardInterrupt, UserError):
            if session.load.steps:
                print_output(output_of(session.load, session.path), view)
            raise
    return output_of(session.load, session.path)
