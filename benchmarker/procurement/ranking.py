"""Rank sides by their scores in one metric; sides that do not differ significantly share a rank."""

from collections.abc import Mapping, Sequence

from msgspec import Struct, structs

from benchmarker.comparing.formatting import Change, Words, short
from benchmarker.comparing.results import GeometricMean
from benchmarker.procurement.sides import Pair

BETTER = ("faster", "better")
WORSE = ("slower", "worse")


class Place(Struct, frozen=True, kw_only=True):
    """The place of one side: 1 plus the number of sides that are better according to their verdict.

    `mean` is its score over the baseline; null for the baseline itself. `ties` names the sides that it cannot be told
    apart from: the verdict on the two is same or undecided. `rank` is null if the side has no score.
    """

    side: str
    rank: int | None
    mean: GeometricMean | None
    ties: list[str]


class MetricRanking(Struct, frozen=True, kw_only=True):
    """The places in one metric, the best first, and the means of every two sides: above 1, the contender is better."""

    metric: str
    places: list[Place]
    pairs: list[GeometricMean]


def rank(metric: str, names: Sequence[str], means: Mapping[Pair, GeometricMean | None]) -> MetricRanking:
    """Rank sides by the mean of every two of them, of which the first is the baseline.

    With verdicts corrected for all pairs, a side is ranked too low only if a verdict is wrong. Ties need not be
    transitive: of three sides, the first may be better than the third, and neither be told apart from the second.
    """
    ratios = {0: 1.0} | {two: mean.ratio for (one, two), mean in means.items() if one == 0 and mean}
    ranked = ratios if len(ratios) > 1 else {}
    better: dict[int, int] = dict.fromkeys(ranked, 0)
    ties: dict[int, list[str]] = {index: [] for index in ranked}
    for (one, two), mean in means.items():
        if one not in ranked or two not in ranked:
            continue
        if mean and mean.verdict in BETTER:
            better[one] += 1
        elif mean and mean.verdict in WORSE:
            better[two] += 1
        else:
            ties[one].append(names[two])
            ties[two].append(names[one])
    order = sorted(ranked, key=lambda index: (better[index], -ratios[index]))
    places = [
        Place(
            side=names[index],
            rank=1 + better[index] if index in ranked else None,
            mean=means[0, index] if index else None,
            ties=ties.get(index, []),
        )
        for index in [*order, *(index for index in range(len(names)) if index not in ranked)]
    ]
    return MetricRanking(metric=metric, places=places, pairs=[mean for mean in means.values() if mean])


def in_words(ranking: MetricRanking, words: Words) -> str:
    """Return a ranking as a sentence: `a is fastest: 27% faster than b, 2.31x as fast as c`.

    It also names pairs of sides without a significant difference; all on the first rank are such. It is empty if no
    side has a score.
    """
    ranked = [place for place in ranking.places if place.rank is not None]
    if not ranked:
        return ""
    first = ranked[0]
    pairs = {frozenset((mean.baseline, mean.contender)): mean for mean in ranking.pairs}
    order = [place.side for place in ranked]
    leaders = [short(place.side) for place in ranked if place.rank == 1]
    beaten = [
        _than(mean, first.side, words)
        for side in order[1:]
        if side not in first.ties and (mean := pairs.get(frozenset((first.side, side))))
    ]
    alike = [
        f"{short(place.side)} and {short(side)} do not differ significantly"
        for at, place in enumerate(ranked)
        for side in order[max(at + 1, len(leaders)) :]
        if side in place.ties
    ]
    name = short(first.side)
    if not first.ties:
        return "; ".join([f"{name} is {words.most}: {', '.join(beaten)}", *alike])
    several = f"{', '.join(leaders[:-1])} and {leaders[-1]} share the first rank"
    lead = several if len(leaders) > 1 else f"no side is clearly {words.most}"
    return "; ".join([lead, *([f"{name} is {', '.join(beaten)}"] if beaten else []), *alike])


def _than(mean: GeometricMean, side: str, words: Words) -> str:
    """Compare one of the two sides of a mean with the other."""
    other = mean.baseline
    if side == mean.baseline:
        low, high = (None if end is None else 1 / end for end in (mean.high, mean.low))
        mean, other = structs.replace(mean, ratio=1 / mean.ratio, low=low, high=high), mean.contender
    change = Change.of(mean, words)
    assert change
    return change.than(short(other)).removeprefix("is ") + (" (provisional)" if mean.provisional else "")
