"""The suite `gpu-proof`: what a new owner of a GPU runs to see that the tool is right on it."""

import subprocess

from benchmarker import Proof, hookimpl
from benchmarker_plugins.gpu_proof import devices, energy, numerics, page, profiles, speed, verdicts

REHEARSAL = "--device=cpu rehearses it at a small size"


@hookimpl
def make_proof() -> Proof:
    """Return the claims, the most valuable first, so that a short time on a GPU shows most."""
    claims = (
        *devices.CLAIMS["named"],
        *speed.CLAIMS["product"],
        *profiles.CLAIMS["traces"],
        *energy.CLAIMS["counter"],
        *numerics.CLAIMS["tf32"],
        *speed.CLAIMS["loop"],
        *speed.CLAIMS["gpt2"],
        *numerics.CLAIMS["right"],
        *devices.CLAIMS["memory"],
        *verdicts.CLAIMS["same"],
        *verdicts.CLAIMS["two-percent"],
        *speed.CLAIMS["copy"],
        *profiles.CLAIMS["readers"],
        *profiles.CLAIMS["command-buffers"],
        *speed.CLAIMS["huggingface"],
        *verdicts.CLAIMS["duet"],
        *energy.CLAIMS["batches"],
        *energy.CLAIMS["sampler"],
        *devices.CLAIMS["preheat"],
        *speed.CLAIMS["ceilings"],
        *page.CLAIMS["page"],
    )
    summary = "proves on a GPU that numbers, traces, energy and verdicts are right"
    return Proof(summary, "25 min on one GPU", claims, missing)


def missing(device: str) -> str | None:
    """Return why there is nothing to prove: no NVIDIA GPU is listed, if one is asked for."""
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
