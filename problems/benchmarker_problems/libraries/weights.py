"""Weights of a model in PyTorch from a safetensors file of the user."""

from collections.abc import Collection, Mapping
from importlib.util import find_spec

import torch
from torch import Tensor, nn

from benchmarker import UserError
from benchmarker_problems.libraries import Library
from benchmarker_problems.libraries.files import unchanged

Shapes = tuple[Collection[int], Collection[int]]
"""The shape of a weight in a file, and in a model."""


def read(problem: Library) -> dict[str, Tensor]:
    """Return the weights in the file by name, on the CPU; raises `UserError` if it is none."""
    path = unchanged("weights", problem.weights)
    if find_spec("safetensors") is None:
        raise UserError("--weights needs the module 'safetensors'; pip install safetensors")
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (SafetensorError, KeyError) as error:
        raise UserError(f"--weights={path}: not a safetensors file: {' '.join(f'{error}'.split())}") from error


def load(problem: Library, model: nn.Module) -> nn.Module:
    """Give a model the weights of the file, if there is one; raises `UserError` if they are not its own."""
    if not problem.weights:
        return model
    of_file, of_model = read(problem), model.state_dict()
    shapes = {name: (tensor.shape, of_model[name].shape) for name, tensor in of_file.items() if name in of_model}
    present = {of_model[name].data_ptr() for name in shapes}
    missing = [name for name, tensor in of_model.items() if name not in of_file and tensor.data_ptr() not in present]
    refuse(problem, missing, of_file.keys() - of_model.keys(), shapes)
    with torch.no_grad():
        for name, tensor in of_file.items():
            of_model[name].copy_(tensor)
    return model


def refuse(problem: Library, missing: Collection[str], unknown: Collection[str], shapes: Mapping[str, Shapes]) -> None:
    """Raise `UserError` that names the first weight of a kind of fault: missing, unknown, or of another shape."""
    head = f"--weights={problem.weights.rpartition('@')[0]}"
    whose = f"{problem.measured} with this config" if getattr(problem, "config", "") else problem.measured
    remedy = "name the model whose weights these are"
    if hasattr(problem, "config"):
        remedy += " and give its config.json"
    if missing:
        raise UserError(f"{head} lacks {_several(missing)} of {whose}; {remedy}")
    if unknown:
        raise UserError(f"{head} has {_several(unknown)}, which {whose} has not; {remedy}")
    for name, (of_file, of_model) in sorted(shapes.items()):
        if tuple(of_file) != tuple(of_model):
            raise UserError(f"{head}: {name} is {list(of_file)}, but {list(of_model)} in {whose}; {remedy}")


def _several(names: Collection[str]) -> str:
    first, more = min(names), len(names) - 1
    return f"{first} and {more} more" if more else first
