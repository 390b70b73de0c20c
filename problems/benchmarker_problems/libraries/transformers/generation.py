"""Text generation by the method `generate` of transformers, in PyTorch: greedy, with its cache of keys and values.

No token ends a sequence. Shapes: B batch, P prompt, N new tokens, V vocabulary.
"""

from collections.abc import Callable, Mapping
from itertools import cycle
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import flop_counter
from transformers import GenerationConfig, StoppingCriteria

from benchmarker import PRECISIONS, Case, Counted, Exact, Token, UserError, Workload, relative_error
from benchmarker_plugins.frameworks.torch import TorchFramework
from benchmarker_problems.libraries.torch import LibraryCalls
from benchmarker_problems.libraries.transformers import Transformers
from benchmarker_problems.own.arguments import Inputs
from benchmarker_problems.own.torch import FORMULAS, Arguments, counting
from benchmarker_problems.own.workload import MARGIN

AGAINST = "itself in fp64 without a cache"
"""What logits are held to."""
Step = tuple[Arguments, Tensor]
"""The inputs of a step, and the tokens [B, N] that it generates from them."""


class Generator:
    """A model that generates a fixed number of tokens."""

    def __init__(self, model: Any, new_tokens: int) -> None:
        self.model = model.requires_grad_(False)
        self.new_tokens = new_tokens
        known = model.generation_config
        start = known.bos_token_id if known.decoder_start_token_id is None else known.decoder_start_token_id
        self.model.generation_config = GenerationConfig(decoder_start_token_id=start or 0, pad_token_id=0)

    def sequences(self, arguments: Arguments, **options: Any) -> Any:
        """Return the prompts, or what a decoder starts with, and the new tokens; or what else options ask for."""
        inputs = arguments[1]
        mask = {"attention_mask": torch.ones_like(inputs["input_ids"])} if "input_ids" in inputs else {}
        return self.model.generate(
            **mask, **inputs, do_sample=False, use_cache=True, max_new_tokens=self.new_tokens, **options
        )

    def step(self, arguments: Arguments) -> Step:
        """Return the new tokens."""
        return arguments, self.sequences(arguments)[:, -self.new_tokens :]

    def tokens_and_logits(self, arguments: Arguments) -> tuple[Tensor, Tensor]:
        """Return whole sequences, and the logits [B, N, V] from which each new token was chosen."""
        found = self.sequences(arguments, output_logits=True, return_dict_in_generate=True)
        return found.sequences, torch.stack(found.logits, dim=1)

    @torch.no_grad()
    def without_cache(self, arguments: Arguments, sequences: Tensor) -> np.ndarray:
        """Return the logits [B, N, V] of the new tokens of whole sequences, each from all tokens before it at once."""
        name = "decoder_input_ids" if self.model.config.is_encoder_decoder else "input_ids"
        inputs = {**arguments[1], name: sequences[:, :-1]}
        return _on_host(self.model(**inputs, use_cache=False).logits[:, -self.new_tokens :])


class _Telling(StoppingCriteria):  # type: ignore[misc]
    """Never stops, but fetches each new token to the host and tells of it."""

    def __init__(self, tell: Callable[[Token], object]) -> None:
        self.tell = tell
        self.kind: Token = "first"

    def __call__(self, input_ids: Tensor, scores: Any, **_: Any) -> Tensor:
        input_ids[:, -1].cpu()
        self.tell(self.kind)
        self.kind = "next"
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)


class _GenerateCalls(LibraryCalls):
    problem: Transformers

    def generator(self, precision: str, *, compiled: bool = False) -> Generator:
        """Return the model on the device, in the type of the precision."""
        model: Any = self.built(precision)
        if not model.can_generate():
            raise UserError(f"{self.problem.model} generates no text: it has no method `generate`; leave --phase out")
        model.forward = self.framework.compiled(model.forward, compiled)
        return Generator(model, self.problem.new_tokens or 1)


def workload(framework: TorchFramework, case: Case, problem: Transformers, data: Inputs) -> Workload:
    """Build a step: new tokens of a batch of prompts."""
    calls = _GenerateCalls(framework, case, problem, data)
    sets = [calls.put(batch, case.precision) for batch in data.batches]
    generator = calls.generator(case.precision, compiled=case.compile)
    turns, requests = cycle(sets), cycle(data.batches)

    def outputs(result: Step) -> Mapping[str, np.ndarray]:
        arguments, tokens = result
        return {"tokens": _on_host(tokens), "logits": _on_host(generator.tokens_and_logits(arguments)[1])}

    def exact() -> Exact | str:
        """Hold logits to those in fp64 of the whole sequence, and tokens to those that have the largest logits."""
        if trouble := calls.no_room_for_check():
            return trouble
        sequences, logits = generator.tokens_and_logits(sets[0])
        with calls.fp64():
            in_fp64 = calls.generator("fp64").without_cache(calls.put(data.batches[0], "fp64"), sequences)
        error = relative_error(generator.without_cache(sets[0], sequences), in_fp64)
        bound = max(PRECISIONS[case.precision].bound, MARGIN * error)
        expected = {"tokens": _on_host(logits.argmax(-1)), "logits": in_fp64}
        return Exact([expected], {"tokens": 0.0, "logits": bound}, AGAINST, {})

    def tokens(tell: Callable[[Token], object]) -> None:
        generator.sequences(calls.put(next(requests), case.precision), stopping_criteria=[_Telling(tell)])

    counter = flop_counter.FlopCounterMode(display=False, custom_mapping=FORMULAS)
    with counting(counter):
        generator.step(sets[0])
    flops, read = counter.get_total_flops() or None, sets[0][1].get("input_ids")
    prompts = 0 if read is None else read.numel()
    written = problem.batch_size * problem.new_tokens if problem.phase == "generate" else 0
    counted = Counted(
        flops,
        None,
        problem.batch_size,
        source="torch" if flops else None,
        tokens=written or prompts or None,
        input_tokens=prompts,
        output_tokens=written,
    )
    return Workload(lambda: generator.step(next(turns)), outputs, tokens=tokens, exact=exact, counted=counted)


def _on_host(values: Tensor) -> np.ndarray:
    return values.detach().to("cpu", torch.float64).numpy()
