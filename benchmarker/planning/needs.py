"""What a step of a case needs, by the formulas of its problem: parameters, work, and memory."""

from collections.abc import Mapping
from typing import Any

import msgspec
import psutil
from msgspec import Struct

from benchmarker.api.case import CaseRequest, Mode
from benchmarker.api.errors import UserError
from benchmarker.api.framework import Device
from benchmarker.api.problem import Problem, memory_of, parameter_count_of
from benchmarker.hooks import parameters
from benchmarker.planning.cases import Ability, choose_device, make_case

LEFT_OUT = {
    "inference": "activations, workspace, and further batches of inputs",
    "forward_backward": "activations kept for the backward pass, workspace, and inputs",
    "training": "activations kept for the backward pass, workspace, and inputs",
}
"""What is not in the memory, as no formula knows it."""


class Needs(Struct, frozen=True, kw_only=True):
    """What a step needs: `flops` and `bytes` as in `Cost`, and bytes of memory by what they hold.

    `parameters` is None for a problem without any, `tokens` for one without tokens. `memory_bytes` is the sum, without
    what is `left_out`; it is None if nothing of it is known.
    """

    title: str
    mode: Mode
    precision: str
    params: dict[str, Any]
    parameters: int | None
    samples: int
    tokens: int | None
    flops: int
    bytes: int
    memory: dict[str, int]
    memory_bytes: int | None
    left_out: str


def needs(problem: Problem, mode: Mode, precision: str) -> Needs:
    """Return what a step needs. Raises `UserError` if the options of the problem make no sense in the mode."""
    problem.refuse(mode)
    cost = problem.cost(mode, precision)
    memory = dict(memory_of(problem, mode, precision))
    return Needs(
        title=problem.title(mode),
        mode=mode,
        precision=precision,
        params=parameters.values(problem),
        parameters=parameter_count_of(problem),
        samples=cost.samples,
        tokens=cost.tokens,
        flops=cost.flops,
        bytes=cost.bytes,
        memory=memory,
        memory_bytes=sum(memory.values()) if memory else None,
        left_out=LEFT_OUT[mode],
    )


class DeviceMemory(Struct, frozen=True):
    """A device that would do the work, and its memory in bytes; `fits` compares what is known of both."""

    platform: str
    name: str
    memory_bytes: int | None
    fits: bool | None


class DescribedCase(Struct, frozen=True):
    """What a case needs, the devices that would do it, and of each framework why it cannot; None if it can."""

    needs: Needs
    devices: list[DeviceMemory]
    frameworks: dict[str, str | None]


def describe_case(
    kind: type[Problem], asked: CaseRequest, supported: Mapping[str, Ability | UserError]
) -> DescribedCase:
    """Describe a case that was asked for, on the device that its frameworks would choose.

    Raises `UserError` if no framework that can be used here supports it.
    """
    chosen, reasons = _devices(asked, supported)
    platform = next((device.platform for device in chosen.values() if device.platform != "cpu"), "cpu")
    asked = msgspec.structs.replace(asked, device=platform)
    for name in chosen:
        ability = supported[name]
        assert isinstance(ability, Ability)
        try:
            make_case(asked, kind, name, ability)
            reasons[name] = None
        except UserError as error:
            reasons[name] = str(error)
    usable = any(isinstance(ability, Ability) for ability in supported.values())
    if usable and all(reasons.values()):
        raise UserError("; ".join(dict.fromkeys(filter(None, reasons.values()))))
    problem = parameters.convert(kind, parameters.resolve(kind, asked.params, platform))
    needed = needs(problem, asked.mode, asked.precision)
    here = [device for device in chosen.values() if device.platform == platform]
    memories = dict.fromkeys(_memory(device, needed.memory_bytes) for device in here)
    return DescribedCase(needed, list(memories), reasons)


def _devices(
    asked: CaseRequest, supported: Mapping[str, Ability | UserError]
) -> tuple[dict[str, Device], dict[str, str | None]]:
    """Return the device that each framework would choose, or why it would not."""
    chosen: dict[str, Device] = {}
    reasons: dict[str, str | None] = {}
    for name, ability in supported.items():
        try:
            if isinstance(ability, UserError):
                raise ability
            chosen[name] = choose_device(name, ability.info, asked.device)
        except UserError as error:
            reasons[name] = str(error)
    return chosen, reasons


def _memory(device: Device, needed: int | None) -> DeviceMemory:
    """Return the memory of a device; that of a CPU is the machine's, and each framework names it in another way."""
    is_cpu = device.platform == "cpu"
    has = psutil.virtual_memory().total if is_cpu else device.memory_bytes
    fits = None if has is None or needed is None else needed <= has
    return DeviceMemory(device.platform, "this machine" if is_cpu else device.name, has, fits)
