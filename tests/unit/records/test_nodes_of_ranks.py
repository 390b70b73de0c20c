"""The ranks of a process group are on nodes that the record knows."""

import msgspec
import pytest
from support.records import make_record

from benchmarker.records.record import Rank


def ranks(*nodes):
    return [Rank(number, node, [number], [10**9], None) for number, node in enumerate(nodes)]


def made(nodes, machines, *of_ranks):
    plain = make_record()
    reasons = plain.reasons | {f"ranks[{number}].memory": "unknown" for number in range(len(of_ranks))}
    of_machine = {path: why for path, why in reasons.items() if path.startswith("machine.")}
    for at in range(machines):
        reasons |= {path.replace("machine", f"machines[{at}]", 1): why for path, why in of_machine.items()}
    case = {"devices": 4, "nodes": nodes, "ranks": 4}
    return make_record(case=case, machines=[plain.machine] * machines, ranks=ranks(*of_ranks), reasons=reasons)


@pytest.mark.parametrize(("nodes", "machines", "of_ranks"), [(2, 2, (0, 0, 1, 1)), (1, 0, (0, 0)), (2, 0, ())])
def test_ranks_are_on_the_nodes_that_there_are(nodes, machines, of_ranks):
    record = made(nodes, machines, *of_ranks)
    assert msgspec.json.decode(msgspec.json.encode(record), type=type(record)) == record


@pytest.mark.parametrize(
    ("nodes", "machines", "of_ranks", "complaint"),
    [
        (2, 2, (0, 0, 1, 2), "the node of each of `ranks` must be one of `machines`"),
        (1, 0, (0, 1), "the node of each of `ranks` must be one of `machines`"),
        (2, 3, (0, 1), "`machines` must be those of all nodes"),
        (1, 1, (0,), "`machines` must be those of all nodes"),
    ],
)
def test_other_nodes_are_refused(nodes, machines, of_ranks, complaint):
    with pytest.raises(ValueError, match=complaint):
        made(nodes, machines, *of_ranks)
