"""Event counters as text: what they counted in a trial, and what a run did not count."""

from collections.abc import Iterable

from benchmarker.formatting import si
from benchmarker.records.record import EventCount, Record

NEARLY_ALL = 0.99
"""Share of the time from which on a counter counts as never having waited for its turn."""
ESTIMATE = "bytes from memory are an estimate: what hardware prefetches or writes back is not among the misses"


def counter_rows(record: Record) -> list[list[str]]:
    """Return what was counted in the timed blocks, which of it is scaled, and what an estimate leaves out."""
    known = [each for each in record.counters if each.count is not None]
    rows = [["counters", ", ".join(map(_text, known))]] if known else []
    rows += [["counters", text] for text in _scaled(known)]
    if any(each.name == "llc_misses" for each in known):
        rows.append(["counters", ESTIMATE])
    return rows


def notes(records: Iterable[Record]) -> list[str]:
    """Return a line for each reason why something was not counted, and one for what was scaled in some trial."""
    names: dict[str, dict[str, None]] = {}
    least: dict[str, EventCount] = {}
    for record in records:
        for at, each in enumerate(record.counters):
            if each.count is None:
                names.setdefault(record.reasons[f"counters[{at}].count"], {})[each.name] = None
            elif each.name not in least or each.counted_share < least[each.name].counted_share:
                least[each.name] = each
    return [*(f"not counted: {', '.join(of)}: {reason}" for reason, of in names.items()), *_scaled(least.values())]


def _text(each: EventCount) -> str:
    assert each.count is not None
    return f"{each.name} {si(each.count / 1e9, 's') if each.name == 'task_clock' else format(each.count, ',')}"


def _scaled(counts: Iterable[EventCount]) -> list[str]:
    """Return which counters were scaled, if any."""
    shares = [f"{each.name} {each.counted_share:.0%}" for each in counts if each.counted_share < NEARLY_ALL]
    return [f"counted for part of the time, and scaled: {', '.join(shares)}"] if shares else []
