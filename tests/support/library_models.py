"""Models of libraries at tiny sizes: which of them run and are right. As a program, the table of the docs.

PYTHONPATH=tests python -m support.library_models                   # prints the table
PYTHONPATH=tests python -m support.library_models --check PAGE      # ends with status 1 if the page has another one
"""

from __future__ import annotations

import functools
import json
import multiprocessing
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarker import Workload, open_bench, relative_error
from benchmarker.hooks import registry
from benchmarker.worker import correctness

SMALL: Mapping[str, int] = {
    **dict.fromkeys(
        ("hidden_size", "d_model", "n_embd", "embed_dim", "dim", "embedding_size", "word_embed_proj_dim"), 32
    ),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_decoder_layers", "num_encoder_layers", "num_key_value_heads", "num_frames", "depth"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads"), 4),
    **dict.fromkeys(("decoder_attention_heads", "num_experts", "num_local_experts", "state_size", "num_labels"), 4),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff", "hidden_dim"), 64),
    **dict.fromkeys(("d_kv", "head_dim", "num_mel_bins", "patch_size", "rotary_dim"), 8),
    **dict.fromkeys(("image_size", "max_length", "max_target_positions"), 32),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size", "max_source_positions"), 16),
    **dict.fromkeys(("projection_dim", "attention_hidden_size"), 16),
    "num_experts_per_tok": 2,
    "time_step_rank": 4,
    "vocab_size": 99,
    "max_position_embeddings": 64,
    "n_positions": 64,
}
"""Largest values of options in the config of a small model of transformers."""


LARGEST = 0.05
"""Largest error that is rounding: in normalisation over few values, rounding decides whether a ReLU is on."""
ALIKE = 1e-3
"""Largest difference of results and losses of a model of Keras in JAX and in another framework."""
TENSORFLOW = "TensorFlow"
"""In the kind of a model of Keras: it is tried there too, where each takes minutes to compile."""


@dataclass(frozen=True)
class Tried:
    """A model by name: its kind in words, what its small config has otherwise, and the options of the case."""

    library: str
    model: str
    kind: str
    config: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


CONVOLUTIONS = {"conv_dim": [16] * 7, "num_conv_pos_embedding_groups": 4}
TEXT = {"batch_size": 2, "seq_len": 16}
GENERATION = "generation"
"""The kind of cases that generate text."""
GENERATED = {"batch_size": 2, "phase": "generate", "prompt_len": 8, "new_tokens": 4}
GENERATORS = ("LMHeadModel", "ForCausalLM", "ForConditionalGeneration")
"""Endings of the names of models that do."""


def _of_transformers(kind: str, models: Mapping[str, Mapping[str, Any]]) -> list[Tried]:
    return [Tried("transformers", model, kind, config, TEXT) for model, config in models.items()]


def _of_images(library: str, kind: str, names: str, size: int = 64) -> list[Tried]:
    return [Tried(library, model, kind, {}, {"batch_size": 2, "image_size": size}) for model in names.split()]


def _of_diffusers(kind: str, models: Mapping[str, Mapping[str, Any]]) -> list[Tried]:
    options = {"batch_size": 2, "image_size": 16, "seq_len": 4, "frames": 5}
    return [
        Tried("diffusers", model, kind, config, options if "1D" not in model else {"batch_size": 2, "image_size": 512})
        for model, config in models.items()
    ]


WIDTHS = {"block_out_channels": [32, 64], "layers_per_block": 1}
HEADS = {"num_attention_heads": 2, "attention_head_dim": 16, "num_layers": 1, "sample_size": 16}
UNETS = {
    "UNet2DModel": {
        **WIDTHS,
        "down_block_types": ["DownBlock2D", "AttnDownBlock2D"],
        "up_block_types": ["AttnUpBlock2D", "UpBlock2D"],
    },
    "UNet2DConditionModel": {
        **WIDTHS,
        "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"],
        "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"],
        "cross_attention_dim": 24,
    },
    "UNet3DConditionModel": {
        **WIDTHS,
        "down_block_types": ["CrossAttnDownBlock3D", "DownBlock3D"],
        "up_block_types": ["UpBlock3D", "CrossAttnUpBlock3D"],
        "cross_attention_dim": 24,
        "attention_head_dim": 8,
    },
    "UNet1DModel": {"extra_in_channels": 64},
}
"""Small configs of UNets."""
TRANSFORMERS = {
    "DiTTransformer2DModel": HEADS,
    "PixArtTransformer2DModel": {**HEADS, "cross_attention_dim": 32, "caption_channels": 24},
    "SD3Transformer2DModel": {
        **HEADS,
        "joint_attention_dim": 24,
        "caption_projection_dim": 32,
        "pooled_projection_dim": 20,
        "pos_embed_max_size": 16,
    },
    "FluxTransformer2DModel": {
        "num_attention_heads": 2,
        "attention_head_dim": 16,
        "num_layers": 1,
        "num_single_layers": 1,
        "in_channels": 8,
        "joint_attention_dim": 24,
        "pooled_projection_dim": 20,
        "axes_dims_rope": [4, 6, 6],
    },
    "AuraFlowTransformer2DModel": {
        "num_attention_heads": 2,
        "attention_head_dim": 16,
        "num_mmdit_layers": 1,
        "num_single_dit_layers": 1,
        "joint_attention_dim": 24,
        "caption_projection_dim": 32,
        "pos_embed_max_size": 64,
        "sample_size": 16,
    },
    "SanaTransformer2DModel": {
        **HEADS,
        "in_channels": 4,
        "out_channels": 4,
        "num_cross_attention_heads": 2,
        "cross_attention_head_dim": 16,
        "cross_attention_dim": 32,
        "caption_channels": 24,
    },
    "WanTransformer3DModel": {
        "num_attention_heads": 2,
        "attention_head_dim": 12,
        "num_layers": 1,
        "in_channels": 4,
        "out_channels": 4,
        "text_dim": 24,
        "freq_dim": 16,
        "ffn_dim": 32,
    },
    "HunyuanDiT2DModel": {},
}
"""Small configs of transformers for images and videos."""


def _plain(names: str) -> dict[str, Mapping[str, Any]]:
    return {name: {} for name in names.split()}


_CASES: list[Tried] = [
    *_of_transformers(
        "decoder",
        {
            **_plain(
                "GPT2LMHeadModel LlamaForCausalLM MistralForCausalLM Qwen2ForCausalLM Qwen3ForCausalLM "
                "GemmaForCausalLM Gemma2ForCausalLM PhiForCausalLM Phi3ForCausalLM GPTNeoXForCausalLM OPTForCausalLM "
                "BloomForCausalLM GPTBigCodeForCausalLM StableLmForCausalLM CohereForCausalLM GraniteForCausalLM"
            ),
            "XLNetLMHeadModel": {"d_head": 8, "d_inner": 64},
        },
    ),
    *_of_transformers("mixture of experts", _plain("MixtralForCausalLM Qwen2MoeForCausalLM OlmoeForCausalLM")),
    *_of_transformers("state space", _plain("MambaForCausalLM FalconMambaForCausalLM")),
    *_of_transformers(
        "encoder",
        _plain(
            "BertForMaskedLM BertForSequenceClassification BertForQuestionAnswering BertForMultipleChoice "
            "RobertaForTokenClassification DistilBertForMaskedLM AlbertForMaskedLM ElectraForPreTraining "
            "DebertaV2ForMaskedLM XLMRobertaModel ModernBertForMaskedLM"
        ),
    ),
    *_of_transformers(
        "encoder-decoder",
        _plain(
            "T5ForConditionalGeneration BartForConditionalGeneration PegasusForConditionalGeneration "
            "MT5ForConditionalGeneration"
        ),
    ),
    *_of_transformers(
        "vision",
        {
            **_plain("ViTForImageClassification DeiTForImageClassification"),
            "ConvNextForImageClassification": {
                "hidden_sizes": [8, 16],
                "depths": [1, 1],
                "num_stages": 2,
                "patch_size": 4,
            },
            "SwinForImageClassification": {"depths": [1, 1], "num_heads": [2, 4], "patch_size": 4, "window_size": 4},
            "VideoMAEForVideoClassification": {},
            "TimesformerForVideoClassification": {},
        },
    ),
    *_of_transformers(
        "speech",
        {
            "WhisperForConditionalGeneration": {},
            "ASTForAudioClassification": {},
            **{
                each: {"conv_dim": [16] * 7, "num_conv_pos_embedding_groups": 4}
                for each in ("Wav2Vec2ForCTC", "HubertForCTC")
            },
        },
    ),
    *_of_transformers("several inputs", _plain("CLIPModel BlipForConditionalGeneration AltCLIPModel FlavaModel")),
    *_of_images(
        "torchvision",
        "classification",
        "densenet121 efficientnet_b0 mnasnet0_5 mobilenet_v2 mobilenet_v3_large mobilenet_v3_small regnet_x_400mf "
        "regnet_y_400mf resnet18 shufflenet_v2_x0_5 shufflenet_v2_x1_0 squeezenet1_0 squeezenet1_1",
    ),
    *_of_images("torchvision", "segmentation", "lraspp_mobilenet_v3_large"),
    *_of_images("torchvision", "optical flow", "raft_small", 128),
    *_of_images("torchvision", "detection", "ssd300_vgg16"),
    *_of_images(
        "timm",
        "classification",
        "edgenext_xx_small efficientvit_b0 fastvit_t8 ghostnet_050 lcnet_035 mobilenetv3_small_050 mobilevit_xxs "
        "mobilenetv4_conv_small_035 resnet10t semnasnet_050 test_byobnet test_efficientnet test_nfnet test_vit "
        "tf_efficientnet_lite0 tinynet_e vit_tiny_patch16_224 xcit_nano_12_p16_224",
    ),
    *_of_images(
        "keras",
        "classification, in JAX and PyTorch",
        "ConvNeXtTiny EfficientNetB0 EfficientNetV2B0 MobileNet MobileNetV3Small NASNetMobile ResNet50V2 VGG19",
    ),
    *_of_images("keras", "classification, in JAX and PyTorch", "Xception", 71),
    *_of_images("keras", f"classification, in JAX, PyTorch and {TENSORFLOW}", "MobileNetV2 ResNet50 VGG16"),
    *_of_diffusers("UNet", UNETS),
    *_of_diffusers("transformer", TRANSFORMERS),
    *_of_diffusers(
        "autoencoder", {"AutoencoderKL": {"block_out_channels": [32]}, "VQModel": {"block_out_channels": [32]}}
    ),
    *_of_transformers(
        "inputs that cannot be made",
        _plain("TimeSeriesTransformerModel PaliGemmaForConditionalGeneration"),
    ),
]


CASES = [
    *_CASES,
    *(
        Tried(each.library, each.model, GENERATION, each.config, GENERATED)
        for each in _CASES
        if each.model.endswith(GENERATORS) and not each.model.startswith("PaliGemma")
    ),
]


def outcome(tried: Tried, folder: Path) -> str:
    """`right` if the results, the loss and the gradients of a model are, otherwise why not, in a line."""
    options = {"model": tried.model, **tried.options}
    try:
        if tried.library == "transformers":
            options["config"] = str(_small_config(tried, folder))
        elif tried.library == "diffusers":
            options["config"] = str(folder / "config.json")
            Path(options["config"]).write_text(json.dumps(tried.config))
        if tried.library == "keras":
            return _in_each(tried)
        for mode in ("inference",) if tried.kind == GENERATION else ("inference", "forward_backward"):
            _checked(tried, "torch", mode, options)
    except Exception as error:  # noqa: BLE001 - a line of the table
        return " ".join(f"{error}".split())
    return "right"


def _checked(tried: Tried, framework: str, mode: str, options: Mapping[str, Any]) -> Workload:
    """Check the workload of a model; raises an error if it is wrong, or its work is not counted."""
    bench = open_bench(tried.library, framework, "cpu", mode=mode, **options)
    data = bench.data(bench.problem, 1)
    workload = bench.build(bench.problem, data)
    check = correctness.check(workload, data, bench.problem, bench.case)
    if isinstance(check, str):
        raise ValueError(check)
    if tried.kind == GENERATION and not check.ok:
        raise ValueError("tokens that it generates have other logits than in a whole sequence")
    if not check.ok or check.error > LARGEST:
        raise ValueError(f"{mode} is off by {check.error:.2g}, of {check.bound:.2g}")
    if not workload.counted or not workload.counted.flops:
        raise ValueError(f"no FLOPs counted in {mode}")
    return workload


def _in_each(tried: Tried) -> str:
    """`right` if a model of Keras is in each framework of its kind, and alike in all.

    A process has Keras in one framework alone, so that each has a process of its own.
    """
    made = {
        framework: _process(framework).submit(keras_results, tried, framework).result()
        for framework in ("torch", "jax", *(["tensorflow"] if TENSORFLOW in tried.kind else []))
    }
    in_jax = made.pop("jax")
    for framework, several in made.items():
        for one, other in zip(several, in_jax, strict=True):
            for name, value in other.items():
                if (apart := relative_error(one[name], value)) > (LARGEST if name == "gradients" else ALIKE):
                    return f"{name} in jax and in {framework} are {apart:.2g} apart"
    return "right"


@functools.cache
def _process(framework: str) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))


def keras_results(tried: Tried, framework: str) -> list[dict[str, Any]]:
    """The checked results of a model of Keras in one framework: of inference, and its loss and gradients."""
    if framework == "torch":
        import torch

        torch.set_num_threads(1)
    found = []
    for mode in ("inference", "forward_backward"):
        workload = _checked(tried, framework, mode, {"model": tried.model, **tried.options})
        found.append({name: np.asarray(value, np.float32) for name, value in workload.outputs(workload.step()).items()})
    return found


def _small_config(tried: Tried, folder: Path) -> Path:
    module = registry.problem(tried.library)().builder
    values = _shrunk(module.class_of(tried.model).config_class().to_dict(), tried.config)
    file = folder / f"{tried.model}.json"
    file.write_text(json.dumps(values))
    return file


def _shrunk(config: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    small: dict[str, Any] = {}
    for name, value in config.items():
        if name in ("architectures", "layer_types", "dtype", "out_features", "out_indices", "stage_names"):
            continue
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if isinstance(value, dict) and name.endswith("config"):
            small[name] = _shrunk(value, given)
        elif name in given:
            small[name] = given[name]
        elif name in SMALL and is_number:
            small[name] = min(value, SMALL[name])
        elif name.endswith("token_id") and is_number:
            small[name] = value % 90
        else:
            small[name] = value
    return small


def outcomes(cases: list[Tried]) -> Iterator[tuple[Tried, str]]:
    """Each model with its outcome."""
    import torch

    torch.set_num_threads(1)  # the models are so small that several threads mostly wait for each other
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for tried in cases:
            yield tried, outcome(tried, Path(folder))


def table(found: Mapping[Tried, str] | list[tuple[Tried, str]]) -> list[str]:
    """The lines of the table: the models that run by library and kind, and a line for each that does not."""
    pairs = list(found.items()) if isinstance(found, Mapping) else found
    lines = ["| library | kind | models |", "| --- | --- | --- |"]
    kinds: dict[tuple[str, str], list[str]] = {}
    for tried, text in pairs:
        if text == "right":
            kinds.setdefault((tried.library, tried.kind), []).append(f"`{tried.model}`")
    lines += [f"| {library} | {kind} | {', '.join(models)} |" for (library, kind), models in kinds.items()]
    lines += ["", "These do not run:", "", "| library | model | why |", "| --- | --- | --- |"]
    lines += [f"| {tried.library} | `{tried.model}` | {text} |" for tried, text in pairs if text != "right"]
    return lines


def on_page(page: str) -> list[str]:
    """The lines of both tables on a page."""
    lines = page.splitlines()
    start = lines.index("| library | kind | models |")
    rest = lines[start:]
    second = rest.index("| library | model | why |")
    end = next((at for at in range(second, len(rest)) if not rest[at].startswith("|")), len(rest))
    return rest[:end]


if __name__ == "__main__":
    made = table(list(outcomes(CASES)))
    if sys.argv[1:2] != ["--check"]:
        sys.stdout.write("\n".join(made) + "\n")
    elif on_page(Path(sys.argv[2]).read_text()) != made:
        sys.exit("the page has another table:\n" + "\n".join(made))
