"""The suite `gpu-proof`: what a new owner of a GPU runs to see that the tool is right on it."""

import subprocess

from benchmarker import Proof, hookimpl
from benchmarker_plugins.gpu_proof import devices, energy, numerics, page, profiles, speed, verdicts

PLATFORMS = ("cuda", "rocm", "cpu")
LIBRARIES = ("jax", "jaxlib", "flax", "torch", "triton", "transformers", "nvidia-ml-py", "numpy")
REHEARSAL = "--device=cpu rehearses it at a small size"


@hookimpl
def make_proof() -> Proof:
    """Return the claims, the most valuable first, so that a short time on a GPU shows most."""
    claims = (
        *devices.NAMED,
        *speed.PRODUCT,
        *profiles.TRACES,
        energy.ENERGY,
        *numerics.TF32,
        *speed.LOOP,
        *speed.GPT2,
        *numerics.RIGHT,
        *devices.MEMORY,
        verdicts.SAME,
        verdicts.TWO_PERCENT,
        *speed.COPY,
        profiles.READER,
        profiles.GRAPHS,
        *speed.HUGGINGFACE,
        verdicts.DUET,
        energy.BATCHES,
        energy.SAMPLER,
        devices.PREHEAT,
        *speed.CEILINGS,
        *speed.QUICK_CEILINGS,
        page.PAGE,
    )
    summary = "proves on a GPU that numbers, traces, energy and verdicts are right"
    return Proof(summary, "30 min on one GPU", claims, LIBRARIES, missing)


def missing(device: str) -> str | None:
    """Return why there is nothing to prove: no NVIDIA GPU is listed, if one is asked for."""
    if device not in PLATFORMS:
        return f"there is no platform {device!r}; there are: {', '.join(PLATFORMS)}"
    if device != "cuda":
        return None
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30, check=False)
    except OSError:
        return f"there is no nvidia-smi, which NVIDIA's driver brings; {REHEARSAL}"
    except subprocess.TimeoutExpired:
        return f"nvidia-smi does not answer within 30 s; {REHEARSAL}"
    if listed.returncode or not listed.stdout.strip():
        return f"nvidia-smi lists no GPU; {REHEARSAL}"
    return None
