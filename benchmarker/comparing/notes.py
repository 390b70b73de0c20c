"""Notes on a comparison: caveats that a reader of its verdict must know."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from benchmarker.comparing import diagnosis
from benchmarker.stats.shift import fewest

if TYPE_CHECKING:
    from benchmarker.comparing.samples import Tested

_ENERGETIC = {"J", "W"}
"""Units of the metrics that come from power sensors."""


def notes_on(tested: Tested, family: int) -> list[str]:
    """Return all notes on a comparison; `family` is the number of comparisons made together."""
    a, b = tested.baseline, tested.contender
    found = [*_too_few(tested, family), *_missing(tested)]
    profiled = tested.rules.level != "trial"
    metric = a.metric or b.metric
    energetic = metric is not None and not _ENERGETIC.isdisjoint(metric.unit.split("/"))
    rate = "" if profiled else "flop_per_J" if energetic else "flop_per_s"
    found += diagnosis.differences(a.records, b.records, rate)
    if not profiled:
        found += diagnosis.disturbed(a.records, b.records)
        found += diagnosis.unsteady([*a.records, *b.records])
        if energetic:
            found += diagnosis.energies(a.records, b.records)
    else:
        found += diagnosis.profiles((a.name, a.records), (b.name, b.records))
    if tested.method == "paired":
        found += diagnosis.effects(
            np.array(list(tested.differences.values())),
            np.array([two.record.design.slot > one.record.design.slot for one, two in tested.pairs]),
            np.array([(one.log + two.log) / 2 for one, two in tested.pairs]),
        )
    elif tested.method == "unpaired":
        found += [*diagnosis.drifting(a.name, a.logs), *diagnosis.drifting(b.name, b.logs)]
    return found


def _too_few(tested: Tested, family: int) -> list[str]:
    """Report if there are too few trials for any verdict."""
    found = []
    if tested.test is not None:
        alpha, is_paired = tested.alpha / family, tested.method == "paired"
        if 2 * tested.test.null.cdf(0) > alpha:
            n = " and ".join(map(str, tested.test.sizes))
            what, each = ("rounds", "") if is_paired else ("trials", " per side")
            least = fewest(alpha, is_paired=is_paired)
            found.append(
                f"{n} {what} cannot reach p < {alpha:.2g} whatever their values; at least {least}{each} are needed"
            )
    return found


def _missing(tested: Tested) -> list[str]:
    """Report trials that have no value or are left out, and why."""
    found = []
    for sample in (tested.baseline, tested.contender):
        errors = [record.error for record in sample.all if record.error]
        if errors:
            found.append(f"{sample.name}: {len(errors)} of {len(sample.all)} trials failed ({errors[0].message})")
        if sample.lacking:
            which = f"{len(sample.lacking)} of {len(sample.all)} trials have no" if sample.trials else "no trial has a"
            found.append(f"{sample.name}: {which} {tested.rules.metric}: {sample.lacking[0]}")
        if tested.method == "paired" and len(sample.trials) > len(tested.differences):
            left = len(sample.trials) - len(tested.differences)
            found.append(f"{sample.name}: {left} trials left out because the other side has none in their rounds")
    if tested.method == "unpaired":
        runs = [len({record.run_id for record in sample.records}) for sample in (tested.baseline, tested.contender)]
        if max(runs) > 1:
            found.append(f"the sides come from {runs[0]} and {runs[1]} runs, which may differ among themselves")
    return found
