"""`suite score`: from stored records to one figure per metric and contender."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from benchmarker.api.errors import UserError
from benchmarker.comparing.results import Rules
from benchmarker.display.result import Part, Result
from benchmarker.display.scores import scores_output
from benchmarker.hooks.metrics import load_metrics
from benchmarker.library.results import paths, refuse_empty, warn_of
from benchmarker.procurement import completeness, sides
from benchmarker.procurement import weights as weighing
from benchmarker.procurement.costs import COST_METRIC, COST_METRICS
from benchmarker.procurement.costs import read as read_costs
from benchmarker.procurement.score import THROUGHPUT, Scores, default_metrics
from benchmarker.procurement.score import score as score_of
from benchmarker.records import store
from benchmarker.records.sides import short_names, side_of

if TYPE_CHECKING:
    from os import PathLike

    import pandas as pd

    from benchmarker.files.atomic import Fault


@dataclass(frozen=True, repr=False)
class Scored(Result):
    """Scores of contenders over all cases, what the plans left out, and the results that were not scored."""

    scores: Scores
    left_out: Sequence[str]
    unscored: Sequence[Path] = ()

    @property
    def data(self) -> dict[str, Any]:
        """The scores."""
        return {**msgspec.to_builtins(self.scores), "left_out": self.left_out}

    def parts(self) -> Iterator[Part]:
        """Yield the rankings and what is behind them."""
        yield from scores_output(self.scores, self.left_out)

    def to_pandas(self) -> pd.DataFrame:
        """Return a row for each metric and contender."""
        import pandas as pd

        rows = [
            {"metric": ranking.metric, **msgspec.to_builtins(mean)}
            for ranking in self.scores.rankings
            for mean in ranking.pairs
        ]
        return pd.DataFrame(rows)


def score(
    *results: str | PathLike[str],
    by: str | None = None,
    baseline: str | None = None,
    contender: str | None = None,
    weights: str | PathLike[str] | None = None,
    cost: str | PathLike[str] | None = None,
    metrics: Sequence[str] = (),
    pool: bool = False,
    unread: Callable[[Iterable[Fault]], None] = warn_of,
) -> Scored:
    """Score contenders against a baseline over all cases: for each metric, the weighted geometric mean of the ratios.

    A result is a record, the folder of a run, a folder of runs, or an archive. The sides are the results, or the values
    of the axis `by`, which are scored over the cases of each result. Above 1 always means that the contender is better.
    `weights` and `cost` are TOML files, as for the command. A file that cannot be read is left out with a warning.
    Raises `UserError` if a result has no record, or if options exclude each other.
    """
    if pool and by is None:
        raise UserError("--pool needs --by, which names the sides; without it, the RESULTs are the sides")
    of_cost = [name for name in metrics if name in COST_METRICS]
    if metrics and bool(of_cost) != (cost is not None):
        either = ",".join(of_cost) or COST_METRIC
        raise UserError(f"--metric={either} and --cost=FILE go together; give both, or neither")
    weigh = weighing.read(Path(weights)) if weights else weighing.Weights()
    named = paths(results)
    scored = named if by else _chosen(named, baseline, contender)
    names = short_names(scored)
    costs = read_costs(Path(cost), dict(zip(map(str, scored), names, strict=True))) if cost else None
    read = [(name, *store.read([result])) for name, result in zip(names, scored, strict=True)]
    every = [record for _, records, _ in read for record in records]
    plans = completeness.completeness_of(scored, every)
    faults = [*(fault for _, _, of in read for fault in of), *plans.faults]
    unread(faults)
    refuse_empty([str(result) for result, (_, records, _) in zip(scored, read, strict=True) if not records])
    if by:
        apart = {} if pool else side_of([(name, records) for name, records, _ in read])
        made = sides.of_axis(every, plans.missing, by, baseline, contender, apart)
    else:
        unrun = [
            completeness.completeness_of([result], records).missing
            for result, (_, records, _) in zip(scored, read, strict=True)
        ]
        made = sides.of_results([(*result[:2], own) for result, own in zip(read, unrun, strict=True)])
    derive = load_metrics(scored)
    scores = score_of(
        made,
        list(metrics) or [*default_metrics(derive(every[0])), *([COST_METRIC] if cost else [])],
        derive,
        weights=weigh,
        costs=costs,
        required=list(metrics) or [THROUGHPUT],
        rules=Rules(),
        known_suites=store.suites(scored),
    )
    missing = scores.missing | ({"files that cannot be read": len(faults)} if faults else {})
    unscored = [result for result in dict.fromkeys(named) if result not in scored]
    return Scored(msgspec.structs.replace(scores, missing=missing), plans.left_out, unscored)


def _chosen(results: Sequence[Path], baseline: str | None, contender: str | None) -> list[Path]:
    """Return the results to score, the baseline first; raises `UserError` if there are fewer than two."""
    for option, name in (("--baseline", baseline), ("--contender", contender)):
        if name is not None and Path(name) not in results:
            raise UserError(f"{option}={name} is not one of the results: {', '.join(map(str, results))}")
    different = list(dict.fromkeys(results))
    others = [result for result in different if contender is None or result == Path(contender)]
    free = [result for result in different if contender is None or result != Path(contender)]
    first = Path(baseline) if baseline else next(iter(free), different[0])
    chosen = list(dict.fromkeys((first, *others)))
    if len(chosen) < 2:
        raise UserError("a score needs two different results; name another one, or an axis with --by")
    return chosen
