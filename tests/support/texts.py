"""Records of text generation made without a worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from benchmarker import Record
from benchmarker.hooks import parameters
from benchmarker.records.record import CostPart, TokenTimes
from benchmarker.roofline.prediction import Prediction, predict
from benchmarker.roofline.roofs import Roof
from support.models import problem_of
from support.records import make_record

SMALL = {"n_layer": 1, "d_model": 64, "n_head": 4, "vocab_size": 97}
"""A GPT-2 of a size at which a formula takes no time."""


def make_text(
    step_s: float = 1.0, first_s: Sequence[float] = (), gap_s: Sequence[float] = (), *, trial: int = 0, **options: Any
) -> Record:
    """A record of a phase of text generation by a small GPT-2: a request for each first token, or one of all gaps."""
    case = {name: options.pop(name) for name in ("framework", "problem") if name in options}
    params = problem_of("gpt2")(**SMALL | options)
    cost = params.cost("inference", "fp32")
    requests = max(1, len(first_s)) if gap_s else 0
    record = make_record(
        step_s,
        trial=trial,
        cost=CostPart(cost.flops, 0, cost.bytes, cost.samples, cost.tokens, cost.input_tokens, cost.output_tokens),
        token_times=TokenTimes(
            [round(each * 1e9) for each in first_s], [[round(each * 1e9) for each in gap_s]] * requests
        ),
    )
    own = msgspec.structs.replace(record.case, **{"problem": "gpt2", **case, "params": parameters.values(params)})
    return msgspec.structs.replace(record, case=own)


def prediction(record: Record, roof: Roof) -> Prediction:
    """What `predict` says of the step of such a record."""
    return predict(problem_of("gpt2")(**record.case.params), record.case.mode, record.case.precision, roof)
