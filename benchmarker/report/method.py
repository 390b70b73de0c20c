"""How the figures came about, what they do not say, and the commands that repeat them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarker.comparing.results import METHODS
from benchmarker.report.page_model import Section

if TYPE_CHECKING:
    from benchmarker.report.study import Study

MOST_COMMANDS = 30

HOW = (
    "A trial is a process of its own. It builds one case, checks its results against a float64 reference, warms up, "
    "and times blocks of steps; nothing but the steps and the final wait is inside the clock. Compile time is apart.",
    "The unit of every comparison is the trial, not the step: steps of one process are not independent of each other. "
    "Trials of what is compared take turns in random order where they were run together.",
    "A verdict is faster or slower (of other metrics better or worse) where the p-value, corrected for the number of "
    "comparisons by Holm's method, is at most {alpha}; the same where two one-sided tests place the ratio within "
    "±{delta}; otherwise undecided. Undecided is not the same: it says that the trials do not tell.",
)
LIMITS = (
    "A ratio is of this work on these machines with these versions; other sizes may differ.",
    "Undisturbed is what the operating system and the sensors did not see disturbed. What makes a machine noisy stands "
    "under Environment.",
    "Profiles are taken in a process of their own; a profiler slows short ops most. They say where time goes, not how "
    "fast a step is.",
    "An interval of energy is of repetition alone: it does not say how true a sensor is.",
    "The reference check is made at a small size of the same case.",
    "Null is null: what could not be measured is left empty, and the records say why.",
)


def method(study: Study) -> Section:
    """The method and its limits, in short."""
    rules = study.rules
    how = [each.format(alpha=f"{100 * rules.alpha:.3g}%", delta=f"{100 * rules.delta:.3g}%") for each in HOW]
    used = dict.fromkeys(each.method for each in study.family.comparisons) if study.family else {}
    tests = [f"Here: {METHODS[each]}." for each in used]
    return Section("method", "Method and limits", (*how, *tests), points=LIMITS)


def repeating(study: Study) -> Section:
    """The commands of the records, each once."""
    commands = list(dict.fromkeys(record.command for record in study.records))
    more = len(commands) - MOST_COMMANDS
    lead = ["Each record holds the command that repeats its case."]
    if more > 0:
        lead.append(f"The first {MOST_COMMANDS} of {len(commands)} are here.")
    runs = list(dict.fromkeys(record.run_id for record in study.records))
    names = ", ".join(runs[:10]) + (f" and {len(runs) - 10} more" if len(runs) > 10 else "")
    return Section(
        "repeat", "How to repeat it", tuple(lead), points=(f"Runs: {names}.",), commands=tuple(commands[:MOST_COMMANDS])
    )
