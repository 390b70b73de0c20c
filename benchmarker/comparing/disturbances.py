"""Detect what disturbed a trial from its own interference counters, and count the disturbed trials of a side."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarker.formatting import count as trials
from benchmarker.formatting import part
from benchmarker.hooks.cases import Cases
from benchmarker.records.record import Interference, Record

OTHER_BUSY_CORES = 0.25
OTHER_BUSY_SHARE = 0.02
"""Other work is a disturbance from this many cores on; with many cores, from this share of the usable ones on.

Where each core computes, this is the share of the time that the others lose, so 2% is as much as δ allows.
"""


OTHER_BUSY_BESIDE_ACCELERATOR = 0.25
"""Beside an accelerator, other work is one from this share of the usable cores on, or as soon as it makes threads wait.

There the host only submits work, in a few threads of its own. Other work delays these if it takes their core, for which
they wait: the pressure counts the time in which any thread of the machine did, which is at least as long. Up to
`STEAL_PERCENT` of waiting is as little as may be stolen. What does not show as waiting, such as memory bandwidth that
is used up and clocks that fall when many cores are busy, takes more than a small part of the cores. Measured on two
machines with an H100 or an H200 and 16 cores: the sampler of NVML alone, which runs as another process, kept 0.16 to
0.43 cores busy, threads waited during at most 0.9% of the time, and the one of two trials of a case with more of it was
the slower one in 12 of 23 pairs.
"""


STEAL_PERCENT = 2.0


PRESSURE_PERCENT = 20.0


SLOWER_CLOCK = 0.05


COUNTED_S = 0.5
"""The system counts in ticks of 10 ms, so shares of a shorter time mean little."""

REMEDIES = {
    "preheat": "raise --preheat-max",
    "slowdown": "check the device's cooling and power supply",
    "throttled": "raise the cgroup's quota",
    "busy": "stop other work on the machine",
    "steal": "use a host without other guests",
    "pressure": "stop other work, or lower --threads",
    "clock": "fix the clock rate, and check the cooling",
}
"""What to do about each kind of disturbance before the trials are repeated."""


def disturbances(records: Sequence[Record]) -> list[dict[str, str]]:
    """Return what disturbed each trial of a case: a short text for each kind of disturbance.

    A framework's own threads also wait for cores and change the clock, so these two kinds are judged relative to the
    median over the trials.
    """
    seen = [record.interference for record in records if record.interference]
    pressures = [each.pressure_percent for each in seen if each.pressure_percent is not None]
    clocks = [each.frequency_MHz for each in seen if each.frequency_MHz is not None]
    pressure_percent, clock_mhz = (median(each) if each else 0.0 for each in (pressures, clocks))
    return [_of_trial(record, pressure_percent, clock_mhz) for record in records]


def _of_trial(record: Record, pressure_percent: float, clock_mhz: float) -> dict[str, str]:
    """Return what disturbed a trial, given the median pressure and clock of the trials of its case."""
    causes = {}
    if record.preheat and record.preheat.outcome == "timeout":
        causes["preheat"] = "no steady rate before timing"
    if slowdowns := sorted({word for each in record.telemetry if each.measured for word in each.slowdowns}):
        causes["slowdown"] = f"the device reduced its clocks: {', '.join(slowdowns)}"
    seen = record.interference
    if seen is None:
        return causes
    if seen.throttled_s:
        causes["throttled"] = f"its cgroup throttled it for {seen.throttled_s:.2g} s"
    if seen.duration_s < COUNTED_S:
        return causes
    if seen.other_busy_cores is not None and seen.other_busy_cores > _other_busy_limit(record, seen):
        causes["busy"] = f"other processes kept {seen.other_busy_cores:.1f} cores busy"
    if seen.steal_percent is not None and seen.steal_percent > STEAL_PERCENT:
        causes["steal"] = f"the hypervisor stole {seen.steal_percent:.0f}% of the time"
    if seen.pressure_percent is not None and seen.pressure_percent > pressure_percent + PRESSURE_PERCENT:
        causes["pressure"] = f"CPU pressure {seen.pressure_percent:.0f}%"
    if seen.frequency_MHz is not None and seen.frequency_MHz < (1 - SLOWER_CLOCK) * clock_mhz:
        causes["clock"] = f"the clock fell to {seen.frequency_MHz:.0f} MHz"
    return causes


def _other_busy_limit(record: Record, seen: Interference) -> float:
    """Return how many cores other work may keep busy."""
    cores = record.machine.cpu.usable_cores
    waited_percent = seen.pressure_percent
    alone = record.case.device != "cpu" and waited_percent is not None and waited_percent <= STEAL_PERCENT
    return max(OTHER_BUSY_CORES, (OTHER_BUSY_BESIDE_ACCELERATOR if alone else OTHER_BUSY_SHARE) * cores)


@dataclass(frozen=True, slots=True)
class Disturbed:
    """How many of some trials were disturbed; `kinds` are those of the disturbances, the most frequent first.

    Each kind has an example in words, and its number of trials.
    """

    number: int
    of: int
    kinds: Mapping[str, tuple[str, int]]

    @property
    def most(self) -> bool:
        """Whether more than half of the trials were disturbed."""
        return 2 * self.number > self.of

    def __str__(self) -> str:
        """Return the numbers and the kinds in words, each with an example."""
        kinds = ", ".join(f"{example} ({trials(number, 'trial')})" for example, number in self.kinds.values())
        return f"{part(self.number, self.of, 'trial', 'was', 'were')} disturbed, for instance: {kinds}"

    @property
    def advice(self) -> str:
        """What to do about the most frequent disturbance."""
        return f"{REMEDIES[next(iter(self.kinds))]}, then repeat the run"


def count(groups: Iterable[Sequence[Record]]) -> Disturbed:
    """Count the disturbed among the successful trials of groups; a group holds the trials of one case on one side."""
    succeeded = ([record for record in group if record.error is None] for group in groups)
    each = [found for group in succeeded for found in disturbances(group)]
    kinds = Counter(kind for found in each for kind in found)
    return Disturbed(
        sum(map(bool, each)),
        len(each),
        {kind: (next(found[kind] for found in each if kind in found), number) for kind, number in kinds.most_common()},
    )


def of_records(records: Iterable[Record]) -> Disturbed:
    """Count the disturbed trials among records of any cases and machines."""
    by_host: dict[str, list[Record]] = {}
    for record in records:
        by_host.setdefault(record.machine.host, []).append(record)
    return count(each.records for group in by_host.values() for each in Cases.of(group))


def suspicions(records: Iterable[Record]) -> list[str]:
    """Return what makes the times doubtful, each once."""
    return list(dict.fromkeys(text for record in records for text in record.suspicions))


def provisional(*sides: tuple[str, Iterable[Sequence[Record]]]) -> str | None:
    """Return why a verdict on sides is provisional: most trials of one were disturbed. None if it is not.

    A side is its name, and for each case its trials.
    """
    counted = [(name, each) for name, groups in sides if (each := count(groups)).most]
    said = " and ".join(f"{part(each.number, each.of, 'trial')} of {name}" for name, each in counted)
    verb = "was" if sum(each.of for _, each in counted) == 1 else "were"
    return f"{said} {verb} disturbed" if counted else None
