"""Two traces side by side: what was added, what is gone, and what takes more or less time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from benchmarker.traces.statistics import describe


def difference(
    before: pd.DataFrame, after: pd.DataFrame, by: Sequence[str], steps: tuple[int, int] = (1, 1)
) -> pd.DataFrame:
    """One line for each group of rows with equal values in the columns `by`, the largest change of time first.

    `before` and `after` are rows of work; `steps` is how many steps each covers. Counts and times are per step; times
    are busy times, so that the changes add up to that of the whole. `change` is added, gone, slower, faster or same.
    `ratio` is after / before. `difference_share` is the line's part of the difference of all lines, NaN if that is 0.
    """
    sides = [
        (describe(rows, by).set_index(list(by))[["count", "busy_ns"]] / number).add_suffix(suffix)
        for rows, number, suffix in zip((before, after), steps, ("_before", "_after"), strict=True)
    ]
    made = sides[0].join(sides[1], how="outer").reset_index()
    old, new = made["busy_ns_before"], made["busy_ns_after"]
    change = new.fillna(0) - old.fillna(0)
    kinds = [old.isna(), new.isna(), change > 0, change < 0]
    whole = change.sum()
    found = pd.DataFrame(
        {
            **{name: made[name] for name in by},
            "change": np.select(kinds, ["added", "gone", "slower", "faster"], "same"),
            "before_count": made["count_before"].fillna(0),
            "after_count": made["count_after"].fillna(0),
            "before_ns": old.fillna(0),
            "after_ns": new.fillna(0),
            "difference_ns": change,
            "ratio": new / old.where(old > 0),
            "difference_share": change / (whole if whole else np.nan),
        }
    )
    return found.iloc[np.argsort(-np.abs(change.to_numpy()), kind="stable")].reset_index(drop=True)
