"""Models of diffusers in PyTorch. Shapes: B batch, C channels, F frames, H height, W width, T tokens."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

# First: it makes torchvision importable.
from benchmarker_problems.libraries.torch import build_workload, describe_workload, prepare_fp64

# isort: split
import diffusers
import numpy as np
from diffusers.models.modeling_utils import ModelMixin
from torch import nn

from benchmarker import UserError
from benchmarker_problems.libraries import unknown
from benchmarker_problems.libraries.diffusers import Diffusers
from benchmarker_problems.libraries.files import cannot_be_made
from benchmarker_problems.libraries.weights import load

__all__ = ["build_workload", "describe_workload", "prepare_fp64"]

SIZE = 32
"""Height and width of latents if neither the config nor the user says it."""
STEPS = 1000
"""Time steps of the noise."""
TEXT_WIDTHS = ("caption_channels", "joint_attention_dim", "text_embed_dim", "text_dim", "cross_attention_dim")
"""Options of a config for the width of a text, the first that is given counts."""


def names() -> list[str]:
    """Return the names of the classes that are named as models."""
    kinds = ("Autoencoder", "Transformer")
    return sorted(name for name in dir(diffusers) if name.endswith("Model") or any(kind in name for kind in kinds))


def class_of(name: str) -> Any:
    """Return the class of a model."""
    found = getattr(diffusers, name, None)
    if not (isinstance(found, type) and issubclass(found, ModelMixin)):
        raise unknown("diffusers", name, names())
    return found


def settings(problem: Diffusers) -> dict[str, Any]:
    """Return the config: the defaults of the class, and what the file says."""
    defaults = inspect.signature(class_of(problem.model).__init__).parameters.values()
    return {**{each.name: each.default for each in defaults if each.name != "self"}, **problem.read_config()}


def build(problem: Diffusers, precision: str) -> nn.Module:
    """Return the model with random weights, or those of the user."""
    model: nn.Module = class_of(problem.model).from_config(problem.read_config())
    return load(problem, model)


def inputs(problem: Diffusers, rng: np.random.Generator, given: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return arguments of the model by name that are not given; raises `UserError` if one cannot be made."""
    config, batch = settings(problem), problem.batch_size
    size = problem.image_size or config.get("sample_size") or SIZE
    height, width = size if isinstance(size, list | tuple) else (size, size)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal((batch, *shape), dtype=np.float32)

    def latents() -> np.ndarray:
        channels = config.get("in_channels")
        if channels is None:
            raise UserError(f"{problem.model} has no default of in_channels; give a --config that has it")
        if "1D" in problem.model:
            return normal(channels, width)
        if "Flux" in problem.model:
            return normal(height * width, channels)
        if "3D" not in problem.model:
            return normal(channels, height, width)
        first = (problem.frames, channels) if "CogVideoX" in problem.model else (channels, problem.frames)
        return normal(*first, height, width)

    def text() -> np.ndarray:
        wide = next((each for name in TEXT_WIDTHS if (each := config.get(name))), None)
        if wide is None:
            raise UserError(
                f"{problem.model} needs the argument 'encoder_hidden_states', whose width its config lacks; "
                "give it by a file, --inputs=FILE.py"
            )
        return normal(problem.seq_len, int(wide))

    def places() -> np.ndarray:
        rows, columns = np.divmod(np.arange(height * width, dtype=np.float32), width)
        return np.stack([np.zeros_like(rows), rows, columns], 1)

    makers: dict[str, Callable[[], np.ndarray]] = {
        "sample": latents,
        "hidden_states": latents,
        "timestep": lambda: rng.integers(STEPS, size=batch),
        "encoder_hidden_states": text,
        "pooled_projections": lambda: normal(int(config["pooled_projection_dim"])),
        "img_ids": places,
        "txt_ids": lambda: np.zeros((problem.seq_len, 3), np.float32),
    }
    classes = config.get("num_embeds_ada_norm") if "DiT" in problem.model else config.get("num_class_embeds")
    if classes:
        makers["class_labels"] = lambda: rng.integers(classes, size=batch)
    parameters = inspect.signature(class_of(problem.model).forward).parameters
    for name, parameter in parameters.items():
        if name not in ("self", *makers, *given) and parameter.default is parameter.empty:
            raise UserError(f"{problem.model} {cannot_be_made(name)}")
    return {name: make() for name, make in makers.items() if name in parameters and name not in given}
