"""A fleet in one sentence, its cells in words, and what makes one doubt it."""

from collections import Counter
from collections.abc import Sequence

from benchmarker.comparing.formatting import Change
from benchmarker.fleet.results import MOST, Cell, NodeResult, grouped, listed, named
from benchmarker.fleet.suspicions import Judgement
from benchmarker.fleet.values import Measured
from benchmarker.formatting import count, part
from benchmarker.stats import outliers


def percent(share: float) -> str:
    """Return a shift in words: `5.1%`."""
    return f"{abs(share):.1%}"


def headline(nodes: Sequence[NodeResult], links: Sequence[NodeResult], cells: Sequence[Cell], delta: float) -> str:
    """Return the answer in one sentence."""
    of_nodes = [cell for cell in cells if not cell.ends]
    of_links = [cell for cell in cells if cell.ends]
    parts = [_of_nodes(nodes, of_nodes, delta)] if of_nodes or not links else []
    parts += [_of_links(nodes, links, of_links, delta)] if links else []
    if failed := [node.node for node in (*nodes, *links) if node.reasons]:
        parts.append(f"{named(failed)} failed, in whole or in part")
    return "; ".join(parts)


def sentence(cell: Cell) -> str:
    """Return the shift of a cell in the words of comparisons: `GEMM: takes 5.1% longer than the others (±0.3%)`."""
    low, high = (None if end is None else 1 + end for end in (cell.low, cell.high))
    change = Change.of_time(1 + cell.shift, low, high)
    where = "" if cell.device is None else f"device {cell.device}, "
    return f"{where}{cell.name}: {change.than('the others')}{change.spread()}"


def _of_nodes(nodes: Sequence[NodeResult], cells: Sequence[Cell], delta: float) -> str:
    worst = _worst(cells)
    of = count(len(nodes), "node")
    if not worst:
        text = f"no outlier: none of {of} differs significantly from the others by more than {delta:.0%}"
        return f"{text}{_not_decided(cells)}"
    told = [
        f"{cell.node} by {percent(cell.shift)} ({cell.name}{'' if cell.device is None else f', device {cell.device}'})"
        if cell.verdict == "slower"
        else f"{cell.node}, which is faster, by {percent(cell.shift)} ({cell.name})"
        for cell in worst[:MOST]
    ]
    slow = any(cell.verdict == "slower" for cell in worst)
    what = "slower than the others" if slow else "different from the others"
    return f"{len(worst)} of {of} {_are(worst)} {what}: {'; '.join(told)}{_more(worst)}"


def _of_links(nodes: Sequence[NodeResult], links: Sequence[NodeResult], cells: Sequence[Cell], delta: float) -> str:
    """Name nodes of which all links are slow, and then the links of no such node."""
    at_fault = [node for node in nodes if node.slow_links]
    told = []
    for node in at_fault[:MOST]:
        shifts = [cell.shift for cell in cells if node.node in cell.ends and cell.is_named]
        by = f"by {percent(min(shifts))} or more ({node.slow_links[0]})"
        told.append(f"all links of {node.node} are slower than the others, {by}")
    told += [f"so are those of {len(at_fault) - MOST} more nodes"] if len(at_fault) > MOST else []
    of = count(len(links), "link")
    worst = [cell for cell in _worst(cells) if not {*cell.ends} & {node.node for node in at_fault}]
    if worst:
        by = "; ".join(f"{cell.node} by {percent(cell.shift)} ({cell.name})" for cell in worst[:MOST])
        told.append(f"{len(worst)} of {of} {_are(worst)} slower than the others: {by}{_more(worst)}")
    if not told:
        told = [
            f"no outlier: none of {of} is significantly slower than the others by more than {delta:.0%}"
            f"{_not_decided(cells)}"
        ]
    return "; ".join(told)


def _worst(cells: Sequence[Cell]) -> list[Cell]:
    """Return of each named node or link the cell with the largest shift."""
    worst: dict[str, Cell] = {}
    for cell in cells:
        if cell.is_named and (cell.node not in worst or abs(cell.shift) > abs(worst[cell.node].shift)):
            worst[cell.node] = cell
    return list(worst.values())


def _not_decided(cells: Sequence[Cell]) -> str:
    suspects = {cell.node for cell in cells if cell.verdict in ("undecided", "not judged")}
    return f"; not decided: {named(sorted(suspects))}" if suspects else ""


def _are(several: Sequence[object]) -> str:
    return "is" if len(several) == 1 else "are"


def _more(several: Sequence[object]) -> str:
    return f" and {len(several) - MOST} more" if len(several) > MOST else ""


def unlike(measured: Measured) -> dict[str, list[str]]:
    """Return how the properties of nodes differ from those of most nodes, in words, by node."""
    known = {name: node.properties for name, node in measured.nodes.items() if node.properties}
    differences: dict[str, list[str]] = {}
    for key in dict.fromkeys(key for properties in known.values() for key in properties):
        values = Counter(properties.get(key, "none") for properties in known.values())
        usual, number = values.most_common(1)[0]
        for name, properties in known.items():
            if (value := properties.get(key, "none")) != usual:
                differences.setdefault(name, []).append(
                    f"{key} {value}, not {usual} as {part(number, len(known), 'node')}"
                )
    return differences


def doubts(
    judgements: Sequence[Judgement], cells: Sequence[Cell], every: Sequence[NodeResult], delta: float
) -> list[str]:
    """Return what makes one doubt the result, the weightiest first; `every` are the nodes and links."""
    measured = judgements[0].measured
    told = []
    if not measured.complete:
        told.append("the fleet's run is not complete: it is still running, or was interrupted")
    told += [f"cannot read {fault}" for fault in measured.faults]
    told += grouped({node.node: "; ".join(node.reasons) for node in every if node.reasons})
    if measured.no_links:
        told.append(f"links are not measured: {measured.no_links}")
    if measured.multi_node_trials:
        told.append(
            f"not counted: {count(measured.multi_node_trials, 'trial')} over several nodes, "
            "which cannot be attributed to one"
        )
    has_cells = [judgement for judgement in judgements if judgement.units] or judgements[:1]
    for judgement in has_cells:
        if len({*judgement.nodes}) < outliers.LEAST_NODES:
            told.append(f"fewer than {outliers.LEAST_NODES} {judgement.what}s: no outlier can be identified")
    told += filter(None, map(_several_kinds, has_cells))
    told += _too_few(judgements, cells)
    told += grouped({node.node: listed(node.unlike) for node in every if node.unlike})
    told += filter(None, map(_lacking, has_cells))
    for judgement in has_cells:
        scatter = judgement.scatter()
        if scatter > delta / 2:
            told.append(
                f"trials of one {judgement.what} scatter by {scatter:.1%}, so shifts below "
                f"{delta + 1.3 * scatter:.1%} may go undetected"
            )
    return told


def _several_kinds(judgement: Judgement) -> str:
    """Return that most units differ among themselves, as where half of a fleet is slow: no median is typical then."""
    spreads = outliers.spreads(judgement.levels)
    wide = [at for at, spread in enumerate(spreads) if spread > max(judgement.margin, judgement.scatter())]
    if not wide:
        return ""
    widest, cases = max(wide, key=lambda at: spreads[at]), len(judgement.columns)
    of = f"in {part(len(wide), cases, 'case')}, " if cases > 1 else ""
    return (
        f"{of}{judgement.what}s vary more than the trials of one "
        f"(standard deviation {spreads[widest]:.1%}): the fleet may be mixed; compare {judgement.what}s of one kind"
    )


def _too_few(judgements: Sequence[Judgement], cells: Sequence[Cell]) -> list[str]:
    """Return that suspicions are not judged, and what to do about it."""
    several = [cell for cell in cells if cell.verdict == "not judged"]
    if not several:
        return []
    suspects = named(list(dict.fromkeys(cell.node for cell in several)))
    tests = sum(len(judgement.suspicions) for judgement in judgements)
    rounds = -(-3 * outliers.fewest_rounds(tests, judgements[0].alpha) // 2) + 1
    return [
        f"{count(len(several), 'suspicion is', 'suspicions are')} not judged ({suspects}), because "
        f"{several[0].reason.split(';')[0]} cannot decide; measure with --rounds={rounds}, or let `nodes run` repeat "
        "the suspects"
    ]


def _lacking(judgement: Judgement) -> str:
    """Return that cases were not measured on all nodes, or links."""
    cases = judgement.measured.cases
    having = {
        case: sum(any(column.case == case for column in node.step_s) for node in judgement.measured.nodes.values())
        for case in cases
    }
    few = {case: number for case, number in having.items() if number < len(judgement.names)}
    if not few:
        return ""
    return (
        f"{part(len(few), len(cases), 'case')} were not measured on all {judgement.what}s, "
        f"one on only {min(few.values())}"
    )
