"""Which pass comes next, and which request gets its tokens."""

import numpy as np

from benchmarker import Engine
from benchmarker.worker.serve import Batching, Sequence


class Counting:
    """An engine of which each slot counts on from its prompt; `passes` is what it was called to do."""

    def __init__(self, slots):
        self.passes = []
        self.tokens = np.zeros(slots, int)
        self.engine = Engine(self.fill, self.decode, slots, 64, 1000)

    def fill(self, slot, prompt):
        self.passes.append((slot, prompt.tolist()))
        self.tokens[slot] = prompt[-1] + 1
        return int(self.tokens[slot])

    def decode(self):
        self.passes.append("decode")
        self.tokens += 1
        return self.tokens.copy()


def sequence(number, new_tokens):
    return Sequence(number, np.array([100 * number]), new_tokens)


def test_prompts_come_first_and_slots_are_used_again():
    counting = Counting(2)
    batching = Batching(counting.engine)
    for each in (sequence(1, 3), sequence(2, 1), sequence(3, 2), sequence(4, 2)):
        batching.add(each)
    found = []
    while not batching.is_idle:
        found.append(batching.advance())
    assert found == [{1: 101}, {2: 201}, {3: 301}, {1: 102, 3: 302}, {4: 401}, {1: 103, 4: 402}]
    assert counting.passes == [(0, [100]), (1, [200]), (1, [300]), "decode", (1, [400]), "decode"]


def test_a_request_that_comes_later_joins_those_that_run():
    counting = Counting(2)
    batching = Batching(counting.engine)
    batching.add(sequence(1, 4))
    assert [batching.advance(), batching.advance()] == [{1: 101}, {1: 102}]
    batching.add(sequence(2, 2))
    assert [batching.advance(), batching.advance()] == [{2: 201}, {1: 103, 2: 202}]
    assert batching.advance() == {1: 104}
    assert batching.is_idle


def test_a_cancelled_request_gives_its_slot_to_the_next():
    batching = Batching(Counting(1).engine)
    for number in (1, 2, 3):
        batching.add(sequence(number, 5))
    batching.advance()
    batching.cancel(1)
    batching.cancel(2)
    batching.cancel(7)
    assert batching.advance() == {3: 301}
    batching.cancel(3)
    assert batching.is_idle
