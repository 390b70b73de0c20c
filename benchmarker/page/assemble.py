"""Assemble the page from its sections, of which the last say how it was measured, and how that is repeated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from benchmarker.comparing.results import METHODS
from benchmarker.formatting import some
from benchmarker.page import answer, loads, summary
from benchmarker.page.environment import environment
from benchmarker.page.faults import faults
from benchmarker.page.measured import at_a_glance, evidence, measured
from benchmarker.page.over_time import over_time
from benchmarker.page.page_model import Figure, Page, Section, figures_of
from benchmarker.page.power import reader, time_series
from benchmarker.page.profiled import profiled
from benchmarker.page.profiles import kernels
from benchmarker.page.rooflines import roofs
from benchmarker.page.scaling import scaling
from benchmarker.page.scores import acceptance, scores
from benchmarker.page.speed import throughput, times
from benchmarker.page.study import Study
from benchmarker.page.sweeps import sweeps
from benchmarker.page.trade_offs import fronts
from benchmarker.page.verdicts import verdicts
from benchmarker.records.record import Record

RUN = "python -m benchmarker run --framework="
MOST_COMMANDS = 30
HOW = (
    "A trial is a fresh process that measures one case. It builds the case, checks its results against a float64 "
    "reference, warms up, and then times blocks of steps. The timed interval contains only the steps and the final "
    "synchronisation. Compile time is reported separately.",
    "The unit of every comparison is the trial, not the step, because steps of one process are not independent of each "
    "other. If the compared cases were run together, their trials are in random order in every round.",
    "The verdict is “faster” or “slower” (“better” or “worse” for metrics that are neither times nor rates) if the "
    "p-value, corrected for the number of comparisons by Holm's method, is at most {alpha}. It is “same” if the whole "
    "interval of the ratio is within ±{delta}. Otherwise it is “undecided”, which does not mean “same”: the trials do "
    "not support any of the other verdicts.",
)
LIMITS = (
    "A ratio is valid for this work on these machines with these software versions. Other sizes may give other ratios.",
    "Only disturbances that the operating system and the sensors can detect are reported. Causes of timing noise on "
    "each machine are listed under Environment.",
    "Profiles are taken in a separate process, and a profiler slows short ops most. They show where time is spent, not "
    "how fast a step is.",
    "The interval of an energy covers only the variation between trials. It does not cover the error of the sensor.",
    "The check against the reference uses a small size of the same case.",
    "Values that could not be measured are left empty. The records state why.",
)


def page(study: Study) -> tuple[Page, list[str]]:
    """Return the page, and the files next to the records that could not be read, which the page lists too."""
    unread: list[str] = []
    read = reader(study, unread)
    lines = time_series(study, read)
    icicles, of_profiles, unread_tables = profiled(study)
    judged, picture = verdicts(study)
    run, unsteady = over_time(study, read)
    unread += unread_tables
    scaled, speedups = scaling(study)
    found = (
        measured(study),
        scores(study),
        acceptance(study),
        judged,
        summary.results(study),
        throughput(study),
        times(study),
        run,
        sweeps(study),
        scaled,
        fronts(study),
        loads.section(study.loads),
        roofs(study),
        kernels(study, icicles),
        *of_profiles,
        lines,
        environment(study),
        faults(study, unread),
        method(study),
        repeating(study),
    )
    made = Page(
        summary.title(study),
        summary.subtitle(study),
        (*answer.cards(study, speedups), *loads.cards(study.loads)),
        (*answer.doubts(study, unsteady), *loads.doubted(study.loads)),
        tuple(each for each in found if each),
        picture=picture,
        sides=at_a_glance(study),
        evidence=evidence(study),
    )
    return made, unread


def main_figures(study: Study) -> list[Figure]:
    """Return the figures of the verdicts, if there are any, and of the step times."""
    judged, picture = verdicts(study)
    return [*filter(None, [picture]), *figures_of([judged, times(study)])]


def over_time_figures(study: Study) -> list[Figure]:
    """Return the figures of step time over the run, without what meters read."""
    return figures_of([over_time(study, lambda _: ([], []))[0]])


def method(study: Study) -> Section:
    """Return the section on the method and its limits."""
    rules = study.rules
    how = [each.format(alpha=f"{100 * rules.alpha:.3g}%", delta=f"{100 * rules.delta:.3g}%") for each in HOW]
    used = dict.fromkeys(each.method for each in study.family.comparisons) if study.family else {}
    tests = [f"Here: {METHODS[each]}." for each in used]
    return Section("method", "Method and limits", (*how, *tests), points=LIMITS)


def repeating(study: Study) -> Section:
    """Return the section with the commands that repeat the runs, each once."""
    commands = _commands(study.records)
    more = len(commands) - MOST_COMMANDS
    lead = ["These commands repeat the measurements, with as many trials. Each record has the command of its case."]
    if more > 0:
        lead.append(f"Only the first {MOST_COMMANDS} of {len(commands)} commands are listed.")
    runs = list(dict.fromkeys(record.run_id for record in study.records))
    points = (f"Runs: {some(runs, 10)}.",)
    return Section("repeat", "How to repeat it", tuple(lead), points=points, commands=tuple(commands[:MOST_COMMANDS]))


def _commands(records: Sequence[Record]) -> list[str]:
    """Return the commands, with one `run` for the cases of a run that differ in nothing but the framework.

    A framework whose steps run in one way needs no `--compile` for it.
    """
    runs: dict[tuple[str, str], Counter[str]] = {}
    for record in records:
        framework = record.case.framework
        options = record.command.removeprefix(f"{RUN}{framework} ")
        if len(record.case.executions) == 1:
            options = " ".join(word for word in options.split(" ") if word != "--compile")
        runs.setdefault((record.run_id, options), Counter())[framework] += 1
    most: dict[str, int] = {}
    for (_, options), trials in runs.items():
        command = f"{RUN}{','.join(trials)} {options}" if options.startswith("--") else options
        most[command] = max(most.get(command, 0), *trials.values())
    return [
        f"{command} --trials={trials}" if trials > 1 and command.startswith(RUN) else command
        for command, trials in most.items()
    ]
