"""The results of scaling: what commands print and other programs read, and its words."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from benchmarker.api.case import Parallel, Scaling
from benchmarker.comparing.results import Method
from benchmarker.formatting import count, rounded
from benchmarker.hooks import names
from benchmarker.records.factors import Value

BEYOND = 1.05
"""An efficiency without an interval is doubted above this."""


class Ratio(Struct, frozen=True):
    """A ratio, and the 95% interval of it; None if there are too few trials for one."""

    value: float
    low: float | None = None
    high: float | None = None

    def __mul__(self, factor: float) -> Ratio:
        """Return the ratio, and its interval, times a factor above 0."""
        low, high = (None if end is None else end * factor for end in (self.low, self.high))
        return Ratio(self.value * factor, low, high)


class Split(Struct, frozen=True, kw_only=True):
    """The factors of an efficiency, geometric means over trials, and their product.

    `slowest` is the number of the slowest device, `score` the time of the fastest over its own; both are null if there
    are more devices than cores. `step_s` is the step of all devices in the local phase.
    """

    size: float
    contention: float
    imbalance: float
    communication: float
    product: float
    slowest: int | None
    score: float | None
    step_s: float


class ScalingPoint(Struct, frozen=True, kw_only=True):
    """What so many devices do together: `samples` in each step of `step_s`, the median over `trials`.

    The speed-up is the ratio of the samples in the same time that `compare` would give: the Hodges-Lehmann ratio of the
    step times by `method`, not the quotient of the medians. `provisional` is the reason if it is provisional.
    `split` is null for one device, and if there is no local phase, with the reason in `unsplit`.
    """

    devices: int
    samples: int
    trials: int
    method: Method
    step_s: float
    samples_per_s_per_device: float
    speedup: Ratio
    efficiency: Ratio
    provisional: str | None
    split: Split | None
    unsplit: str

    @property
    def is_beyond(self) -> bool:
        """Whether the efficiency is above the ideal by more than its interval; without one, by more than `BEYOND`."""
        end = self.efficiency.low
        return self.efficiency.value > BEYOND if end is None else end > 1


class Series(Struct, frozen=True, kw_only=True):
    """The points of one kind of scaling of the case of one device, which is the first point; `notes` are doubts.

    `parallel` is how several devices divide a step.
    """

    name: str
    case: dict[str, Value]
    scaling: Scaling
    parallel: Parallel
    points: list[ScalingPoint]
    notes: list[str]


class Device(Struct, frozen=True, kw_only=True):
    """One of several devices that each do the same work by themselves: its step time alone, and with all at once.

    `score` is the time of the fastest over its own, all at once.
    """

    device: int
    alone_s: float
    together_s: float
    score: float


class Devices(Struct, frozen=True, kw_only=True):
    """The devices of a case in which each does the work of one, geometric means over trials; `notes` are doubts.

    `slowest` says which of them is the slowest, and by how much.
    """

    name: str
    case: dict[str, Value]
    trials: int
    devices: list[Device]
    slowest: str
    notes: list[str]


class Scalings(Struct, frozen=True, kw_only=True):
    """All series of some records, and all cases of several independent devices.

    `left_out` says why other cases of several devices are in no series; `notes` are doubts that concern several.
    """

    series: list[Series]
    devices: list[Devices]
    left_out: list[str]
    notes: list[str]


def labels(several: Sequence[Series]) -> tuple[list[str], str]:
    """Return a short name of each series, such as `strong, tp, jax`, and what all of them share."""
    named = names.names([each.case for each in several])
    return [
        ", ".join(filter(None, [each.scaling, each.parallel if each.parallel != "none" else "", name]))
        for each, name in zip(several, named.each, strict=True)
    ], named.shared


def shared_notes(several: Sequence[Series]) -> list[str]:
    """Return the notes that all of several series have; none of a single one."""
    first, *others = several
    return [note for note in first.notes if others and all(note in each.notes for each in others)]


def sentence(series: Series) -> str:
    """Return what the series comes to: the speed-up and the efficiency with the most devices, and signs of doubt."""
    most = series.points[-1]
    strategy = f" ({series.parallel})" if series.parallel != "none" else ""
    signs = {
        "provisional": most.provisional is not None,
        "more than ideal": most.is_beyond,
        "no interval": most.speedup.low is None,
    }
    doubts = [sign for sign, is_so in signs.items() if is_so]
    return (
        f"{series.scaling} scaling{strategy} to {count(most.devices, 'device')}: {shown(most.speedup)} times the speed "
        f"of one, efficiency {shown(most.efficiency, percent=True)}" + (f" ({', '.join(doubts)})" if doubts else "")
    )


def shown(ratio: Ratio, *, percent: bool = False) -> str:
    """Return a ratio with its interval: `1.93 [1.9, 1.96]`, or in percent `96.5% [95, 98]`."""
    scale, unit = (100, "%") if percent else (1, "")
    ends = ""
    if ratio.low is not None and ratio.high is not None:
        ends = f" [{rounded(scale * ratio.low, 3)}, {rounded(scale * ratio.high, 3)}]"
    return f"{rounded(scale * ratio.value, 3)}{unit}{ends}"
