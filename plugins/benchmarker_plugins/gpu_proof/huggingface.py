"""GPT-2 of Hugging Face `transformers`, with random weights, as a step to compare with this project's."""

import os
from collections.abc import Callable
from importlib.util import find_spec
from itertools import cycle
from typing import Any

from benchmarker import Bench, Data, NotHereError, open_bench


def steps(
    device: str, mode: str, precision: str, **size: str | int
) -> tuple[Bench, Callable[[Data], Callable[[], Any]]]:
    """Return this project's case, and a function that makes a step of `transformers` on the case's data.

    Both have the same size, batch, precision, scaled-dot-product attention and, in training, fused AdamW. Raises
    `NotHereError` if transformers is not installed.
    """
    if find_spec("transformers") is None:
        raise NotHereError("transformers is not installed")
    bench = open_bench("gpt2", "torch", device, precision=precision, mode=mode, impl="fused", **size)  # type: ignore[arg-type]
    return bench, lambda data: _step(bench, data)


def _step(bench: Bench, data: Data) -> Callable[[], Any]:
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    p, device = bench.params, "cpu" if bench.case.device == "cpu" else "cuda"
    torch.manual_seed(bench.case.seed)
    config = GPT2Config(
        n_layer=p.n_layer, n_embd=p.d_model, n_head=p.n_head, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, use_cache=False
    )
    config._attn_implementation = "sdpa"
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[bench.case.precision]
    model = GPT2LMHeadModel(config).to(device=device, dtype=dtype)
    batches = cycle([torch.tensor(batch["tokens"], dtype=torch.int64, device=device) for batch in data.batches])
    if bench.case.mode == "inference":
        model.eval()

        def infer() -> Any:
            with torch.inference_mode():
                return model(next(batches))

        return infer
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)

    def train() -> Any:
        tokens = next(batches)
        loss = model(tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return train
