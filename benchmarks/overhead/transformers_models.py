"""Models of Hugging Face `transformers` that compute what this project's compute, from the same weights.

The names of configurations and weights are those of transformers 5.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from itertools import cycle
from typing import Any

import numpy as np

from benchmarker import Bench, Data, UserError, open_bench

PROBLEMS = ("bert", "gpt2", "llama", "moe", "vit")
IGNORED = -100
"""The label of a position that the loss leaves out."""
Names = Mapping[str, str | tuple[str, ...]]

_NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}

_BERT: Names = {
    "wte": "embeddings.word_embeddings.weight",
    "wpe": "embeddings.position_embeddings.weight",
    "wtt": "embeddings.token_type_embeddings.weight",
    "ln_embed": "embeddings.LayerNorm",
    "attn_qkv": tuple(f"encoder.layer.{{}}.attention.self.{name}" for name in ("query", "key", "value")),
    "attn_proj": "encoder.layer.{}.attention.output.dense",
    "ln_1": "encoder.layer.{}.attention.output.LayerNorm",
    "mlp_fc": "encoder.layer.{}.intermediate.dense",
    "mlp_proj": "encoder.layer.{}.output.dense",
    "ln_2": "encoder.layer.{}.output.LayerNorm",
}


_LLAMA: Names = {
    "wte": "embed_tokens.weight",
    "norm_1": "layers.{}.input_layernorm",
    "attn_qkv": tuple(f"layers.{{}}.self_attn.{name}_proj" for name in "qkv"),
    "attn_proj": "layers.{}.self_attn.o_proj",
    "norm_2": "layers.{}.post_attention_layernorm",
    "norm_f": "norm",
}


def _within(module: str, names: Names) -> Names:
    return {
        name: f"{module}.{theirs}" if isinstance(theirs, str) else tuple(f"{module}.{each}" for each in theirs)
        for name, theirs in names.items()
    }


NAMES: Mapping[str, Names] = {
    "gpt2": _within(
        "transformer",
        {
            "wte": "wte.weight",
            "wpe": "wpe.weight",
            "ln_1": "h.{}.ln_1",
            "attn_qkv": "h.{}.attn.c_attn",
            "attn_proj": "h.{}.attn.c_proj",
            "ln_2": "h.{}.ln_2",
            "mlp_fc": "h.{}.mlp.c_fc",
            "mlp_proj": "h.{}.mlp.c_proj",
            "ln_f": "ln_f",
        },
    ),
    "llama": {
        **_within("model", _LLAMA),
        "mlp_fc": ("model.layers.{}.mlp.gate_proj", "model.layers.{}.mlp.up_proj"),
        "mlp_proj": "model.layers.{}.mlp.down_proj",
        "lm_head": "lm_head",
    },
    "moe": {
        **_within("model", _LLAMA),
        "moe_router": "model.layers.{}.mlp.gate",
        "moe_fc": "model.layers.{}.mlp.experts.gate_up_proj",
        "moe_proj": "model.layers.{}.mlp.experts.down_proj",
        "lm_head": "lm_head",
    },
    "bert": {
        **_within("bert", _BERT),
        "head_fc": "cls.predictions.transform.dense",
        "head_ln": "cls.predictions.transform.LayerNorm",
        "lm_head_bias": "cls.predictions.bias",
    },
    "roberta": {
        **_within("roberta", _BERT),
        "head_fc": "lm_head.dense",
        "head_ln": "lm_head.layer_norm",
        "lm_head_bias": "lm_head.bias",
    },
    "vit": {
        **_within(
            "vit",
            {
                "patch_embed": "embeddings.patch_embeddings.projection",
                "class_token": "embeddings.cls_token",
                "wpe": "embeddings.position_embeddings",
                "ln_1": "layers.{}.layernorm_before",
                "attn_qkv": ("layers.{}.attention.q_proj", "layers.{}.attention.k_proj", "layers.{}.attention.v_proj"),
                "attn_proj": "layers.{}.attention.o_proj",
                "ln_2": "layers.{}.layernorm_after",
                "mlp_fc": "layers.{}.mlp.fc1",
                "mlp_proj": "layers.{}.mlp.fc2",
                "ln_f": "layernorm",
            },
        ),
        "head": "classifier",
    },
}
"""Names of theirs by those of ours; a product that ours computes as one is several of theirs."""


def family(problem: str, params: Any) -> str:
    """Return the kind of model, a key of `NAMES`."""
    return "roberta" if problem == "bert" and params.size.startswith("roberta") else problem


def translated(problem: str, params: Any, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return weights or gradients of a problem under the names and in the layout of transformers."""
    return {name: array for ours in arrays.items() for name, array in _pieces(family(problem, params), params, *ours)}


def _pieces(kind: str, p: Any, name: str, array: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Yield what one weight is in transformers."""
    *_, module, leaf = name.split(".") if "." in name else (name, "")
    layer = name.split(".")[1] if name.startswith("h.") else ""
    theirs = NAMES[kind][module]
    targets = (theirs,) if isinstance(theirs, str) else theirs
    is_expert = array.ndim == 3
    suffix = "" if is_expert else {"": "", "bias": ".bias"}.get(leaf, ".weight")
    heads = p.heads if kind in ("llama", "moe") and module == "attn_qkv" else [1] * len(targets)
    ends = np.cumsum(heads)[:-1] * array.shape[-1] // sum(heads)
    for target, piece in zip(targets, np.split(array, ends, axis=-1), strict=True):
        turned = piece
        if name == "patch_embed.kernel":
            turned = piece.reshape(p.patch_size, p.patch_size, 3, -1).transpose(3, 2, 0, 1)
        elif leaf == "kernel" and kind != "gpt2":  # GPT-2's own Conv1D is [inputs, outputs], as ours
            turned = piece.swapaxes(-1, -2)
        elif kind == "vit" and leaf == "":
            turned = piece.reshape(1, -1, p.d_model)
        yield target.format(layer) + suffix, turned


def make_model(problem: str, params: Any, weights: Mapping[str, np.ndarray]) -> Any:
    """Return the model in fp32 on the CPU, with these weights and with scaled-dot-product attention."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    import transformers

    config, name = configuration(problem, params)
    config._attn_implementation = "sdpa"
    model = getattr(transformers, name)(config)
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding):
            module.padding_idx = None  # no token means padding here
    arrays = translated(problem, params, weights)
    state = {name: torch.tensor(np.ascontiguousarray(array)) for name, array in arrays.items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    # What is tied to another weight is listed as missing.
    tied = {"lm_head.weight", "cls.predictions.decoder.weight", "cls.predictions.decoder.bias"}
    assert set(missing) <= tied | {"lm_head.decoder.weight", "lm_head.decoder.bias"}, missing
    assert not unexpected, unexpected
    model.tie_weights()
    return model


def configuration(problem: str, params: Any) -> tuple[Any, str]:
    """Return the configuration, without dropout, and the name of the model's class."""
    import transformers

    p, kind = params, family(problem, params)
    if kind == "gpt2":
        config = transformers.GPT2Config(
            vocab_size=p.vocab_size,
            n_positions=p.positions,
            n_layer=p.n_layer,
            n_embd=p.d_model,
            n_head=p.n_head,
            n_inner=p.d_ff,
            resid_pdrop=0,
            embd_pdrop=0,
            attn_pdrop=0,
            bos_token_id=None,
            eos_token_id=None,
            use_cache=False,
        )
        return config, "GPT2LMHeadModel"
    sizes = {
        "num_hidden_layers": p.n_layer,
        "hidden_size": p.d_model,
        "num_attention_heads": p.n_head,
        "intermediate_size": p.d_ff,
    }
    if kind in ("llama", "moe"):
        decoder = {
            **sizes,
            "vocab_size": p.vocab_size,
            "num_key_value_heads": p.n_kv_head,
            "max_position_embeddings": p.seq_len,
            "rms_norm_eps": 1e-5,
            "rope_parameters": {"rope_type": "default", "rope_theta": p.rope_theta},
            "bos_token_id": None,
            "eos_token_id": None,
            "use_cache": False,
        }
        if kind == "llama":
            return transformers.LlamaConfig(**decoder, tie_word_embeddings=p.tied_head), "LlamaForCausalLM"
        if p.dispatch != "grouped":
            raise UserError("transformers drops no tokens; add --dispatch=grouped")
        experts = {"num_local_experts": p.n_expert, "num_experts_per_tok": p.top_k}
        return transformers.MixtralConfig(**decoder, **experts), "MixtralForCausalLM"
    if kind == "vit":
        config = transformers.ViTConfig(
            **sizes,
            **_NO_DROPOUT,
            image_size=p.image_size,
            patch_size=p.patch_size,
            num_labels=p.classes,
            layer_norm_eps=1e-6,
            problem_type="single_label_classification",
        )
        return config, "ViTForImageClassification"
    text = {
        **sizes,
        **_NO_DROPOUT,
        "vocab_size": p.vocab_size,
        "max_position_embeddings": p.positions,
        "type_vocab_size": p.family.token_types,
        "layer_norm_eps": p.family.layer_norm_eps,
    }
    if kind == "roberta":
        return transformers.RobertaConfig(**text), "RobertaForMaskedLM"
    return transformers.BertConfig(**text), "BertForMaskedLM"


def arguments(problem: str, params: Any, batch: Mapping[str, np.ndarray]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what transformers' model takes for a batch, and what it takes besides to compute the loss."""
    import torch

    targets = torch.tensor(batch["targets"], dtype=torch.int64)
    if problem == "vit":
        images_BCHW = np.ascontiguousarray(batch["images"].transpose(0, 3, 1, 2))
        return {"pixel_values": torch.tensor(images_BCHW)}, {"labels": targets}
    inputs = {"input_ids": torch.tensor(batch["tokens"], dtype=torch.int64)}
    if problem != "bert":
        return inputs, {"labels": targets, "shift_labels": targets}  # these targets are shifted already
    labels = torch.full(batch["tokens"].shape, IGNORED)
    labels.view(-1)[torch.tensor(batch["masked"], dtype=torch.int64)] = targets
    first = params.family.first_position
    inputs["position_ids"] = torch.arange(first, first + params.seq_len)[None]
    return inputs, {"labels": labels}


def generated(model: Any, prompt_BP: Any, new_tokens: int, cache: str, streamer: Any = None) -> Any:
    """Return the prompt and exactly `new_tokens` greedy tokens, with transformers' `dynamic` or `static` cache.

    Without the mask, transformers would leave out tokens of the prompt that equal the one for padding.
    """
    length = {"max_new_tokens": new_tokens, "min_new_tokens": new_tokens, "pad_token_id": 0}
    everything = prompt_BP.new_ones(prompt_BP.shape)
    return model.generate(
        prompt_BP,
        attention_mask=everything,
        do_sample=False,
        use_cache=True,
        cache_implementation=cache,
        streamer=streamer,
        **length,
    )


def installed() -> bool:
    """Whether transformers 5 or newer is installed."""
    return find_spec("transformers") is not None and int(version("transformers").partition(".")[0]) >= 5


def steps(
    device: str, mode: str, precision: str, problem: str = "gpt2", **size: str | int
) -> tuple[Bench, Callable[[Data], Callable[[], Any]]]:
    """Return this project's case, and a function that makes a step of `transformers` on the case's data.

    Both have the same size, weights, batches, precision, scaled-dot-product attention and, in training, fused AdamW.
    Raises `UserError` if transformers 5 is not installed.
    """
    if not installed():
        raise UserError("transformers is not installed, or older than 5")
    bench = open_bench(problem, "torch", device, precision=precision, mode=mode, impl="fused", **size)  # type: ignore[arg-type]
    return bench, partial(_step, bench)


def _step(bench: Bench, data: Data) -> Callable[[], Any]:
    import torch

    problem, params = bench.case.problem, bench.problem
    device = "cpu" if bench.case.device == "cpu" else "cuda"
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[bench.case.precision]
    model = make_model(problem, params, data.weights).to(device=device, dtype=dtype)

    def put(values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value.to(device, dtype if value.is_floating_point() else None) for name, value in values.items()}

    batches: Iterator[tuple[dict[str, Any], dict[str, Any]]] = cycle(
        [tuple(map(put, arguments(problem, params, batch))) for batch in data.batches]  # type: ignore[misc]
    )
    if bench.case.mode == "inference":
        model.eval()

        def infer() -> Any:
            inputs, _ = next(batches)
            with torch.inference_mode():
                return model(**inputs)

        return infer
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def train() -> Any:
        inputs, labels = next(batches)
        loss = model(**inputs, **labels).loss
        torch.autograd.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return train
