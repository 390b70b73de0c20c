"""Models of transformers in PyTorch, built from a config with random weights."""

import copy
import inspect
from collections.abc import Mapping
from functools import cache
from math import prod
from typing import Any

import numpy as np
import torch
import transformers
from torch import nn

from benchmarker import Case, UserError, Workload, hookimpl
from benchmarker_plugins.frameworks.torch import TorchFramework
from benchmarker_problems.libraries import torch as of_any
from benchmarker_problems.libraries import unknown, weights
from benchmarker_problems.libraries.torch import describe_workload
from benchmarker_problems.libraries.transformers import Transformers
from benchmarker_problems.libraries.transformers.inputs import Maker
from benchmarker_problems.own.arguments import Inputs

__all__ = ["build_workload", "describe_workload"]


@hookimpl
def build_workload(framework: TorchFramework, case: Case, problem: Transformers, data: Inputs) -> Workload:
    """Build a step as for a model of any library, or of text generation."""
    if problem.phase == "none":
        return of_any.build_workload(framework, case, problem, data)
    from benchmarker_problems.libraries.transformers.generation import workload

    return workload(framework, case, problem, data)


def names() -> list[str]:
    """Return the names of all classes that are models, without importing their modules."""
    mappings = transformers.models.auto.modeling_auto
    found: set[str] = set()
    for name in vars(mappings):
        if name.startswith("MODEL_") and name.endswith("MAPPING_NAMES"):
            for value in getattr(mappings, name).values():
                found.update([value] if isinstance(value, str) else value)
    return sorted(found)


TASKS = (
    "MASKED_LM",
    "SPEECH_SEQ_2_SEQ",
    "SEQ_TO_SEQ_CAUSAL_LM",
    "CAUSAL_LM",
    "IMAGE_CLASSIFICATION",
    "PRETRAINING",
)
"""Tasks by which the usual class of a type of models is found, the first that has it."""


@cache
def class_of(name: str) -> Any:
    """Return the class of a model; raises `UserError` with similar names if there is none."""
    try:
        found = getattr(transformers, name)
    except AttributeError:
        found = None
    except ImportError as error:
        cause = error.__cause__ or error
        raise UserError(
            f"transformers cannot import {name}: {type(cause).__name__}: {' '.join(str(cause).split())}"
        ) from error
    is_model = isinstance(found, type) and issubclass(found, transformers.PreTrainedModel)
    if not is_model or getattr(found, "config_class", None) is None:
        raise unknown("transformers", name, names(), _class_of_type(name))
    return found


def _class_of_type(name: str) -> str | None:
    """Return the usual class of a type of models that a name begins with, such as `gpt2` or `bert-base-uncased`."""
    mappings = vars(transformers.models.auto.modeling_auto)
    words = name.lower().replace("-", "_")
    for task in TASKS:
        classes = mappings.get(f"MODEL_FOR_{task}_MAPPING_NAMES", {})
        if kinds := [kind for kind in classes if words == kind or words.startswith(f"{kind}_")]:
            found = classes[max(kinds, key=len)]
            return str(found if isinstance(found, str) else found[0])
    return None


@cache
def config_of(problem: Transformers) -> Any:
    """Return the config: the default of the class, or that of the file."""
    kind = class_of(problem.model).config_class
    values = problem.read_config()
    of = values.get("model_type", kind.model_type)
    if of != kind.model_type:
        raise UserError(f"--config={problem.config} is of {of}, but {problem.model} is of {kind.model_type}")
    config = kind.from_dict(values) if values else kind()
    for each in (config, config.get_text_config()):
        if hasattr(each, "use_cache"):
            each.use_cache = False
        if hasattr(each, "apply_spec_augment"):
            each.apply_spec_augment = False
        if problem.model.endswith("ForSequenceClassification") and getattr(each, "pad_token_id", None) is None:
            each.pad_token_id = 0
        for name, value in vars(each).items():
            if "drop" in name and isinstance(value, float):
                setattr(each, name, 0.0)
    return config


def build(problem: Transformers, precision: str) -> nn.Module:
    """Return the model with random weights, or those of the user.

    In fp64, experts compute one by one: there are no grouped products.
    """
    chosen = {} if problem.attention == "default" else {"attn_implementation": problem.attention}
    if precision == "fp64":
        chosen["experts_implementation"] = "eager"
    kind, config = class_of(problem.model), copy.deepcopy(config_of(problem))
    if problem.weights:
        return _loaded(problem, kind, config, chosen)
    return kind._from_config(config, **chosen)  # type: ignore[no-any-return]


def prepare_fp64(model: Any) -> None:
    """Let experts compute one by one, as in `build`."""
    model.set_experts_implementation("eager")


def _loaded(problem: Transformers, kind: Any, config: Any, chosen: Mapping[str, Any]) -> nn.Module:
    """Return the model with the weights of the file, whose names may be older ones, or lack that of the whole model."""
    silence = transformers.utils.logging
    level, shows_progress = silence.get_verbosity(), silence.is_progress_bar_enabled()
    silence.set_verbosity(silence.CRITICAL)
    silence.disable_progress_bar()
    try:
        with torch.device("cpu"):
            model, found = kind.from_pretrained(
                None,
                config=config,
                state_dict=weights.read(problem),
                dtype=torch.float32,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
                **chosen,
            )
    finally:
        silence.set_verbosity(level)
        if shows_progress:
            silence.enable_progress_bar()
    shapes = {name: (of_file, of_model) for name, of_file, of_model in found["mismatched_keys"]}
    weights.refuse(problem, found["missing_keys"] - shapes.keys(), found["unexpected_keys"], shapes)
    return model  # type: ignore[no-any-return]


def inputs(problem: Transformers, rng: np.random.Generator, given: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return arguments of the model by name that are not given; raises `UserError` if one cannot be made."""
    kind = class_of(problem.model)
    parameters = inspect.signature(kind.forward).parameters
    return Maker(problem, config_of(problem), kind.main_input_name, rng).arguments(parameters, given)


def tokens(problem: Transformers) -> int | None:
    """Return the tokens of a step of a model that reads or writes text; None for any other."""
    arguments = problem.arguments(np.random.default_rng(0))
    ids = arguments.get("decoder_input_ids", arguments.get("input_ids"))
    return None if ids is None else prod(ids.shape)
