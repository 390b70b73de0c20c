"""Utilisation of the device: of its FLOP/s (MFU), of its memory bandwidth (MBU), and the share of the roof.

Beside it, what was measured over what is predicted; definitions in docs/predicting.md.
"""

from collections.abc import Mapping
from statistics import median

from benchmarker import Ceilings, Metric, Record, Roof, hookimpl, measured_roof, predicted_step, vendor_roof

PHASES = {"predicted_ttft_s": "prefill", "predicted_tpot_s": "decode"}
"""The phase of text generation whose time is that of a first token, and of each other token."""


@hookimpl
def derive_metrics(record: Record, ceilings: Ceilings) -> Mapping[str, Metric]:
    """Return the shares of the vendor's peaks, of the measured ceilings and of the measured roof.

    `mfu` is relative to the vendor's peak (Chowdhery et al., PaLM, 2022, appendix B), `mfu_measured` to the GEMM
    ceiling, `roof_share` to min(π, β·I) with measured π and β. `mbu` and `mbu_measured` relate the minimum bytes to the
    vendor's and the measured bandwidth (Databricks, LLM Inference Performance Engineering, 2023). FLOPs are those of
    the model, without recomputation. Predictions are the scopes one after the other, each at the measured roof.
    """
    reason = record.not_timed if record.cost is None or record.blocks is None else None
    one = record.case.devices == 1
    reason = reason if one else "the ceilings of several devices are not known"
    measured = measured_roof(record, ceilings) if one else None
    vendor = vendor_roof(record) if one else None
    no_vendor = reason or (None if vendor else "the vendor's peak is not in the data file")
    no_ceiling = reason or (None if measured else ceilings.lacking(record))
    step_s, flops, bytes_ = 0.0, None, None
    if record.cost and record.blocks:
        durations_ns = record.blocks.duration_ns
        step_s = sum(durations_ns) / len(durations_ns) / record.blocks.steps_per_block / 1e9
        flops, bytes_ = record.cost.flops, record.cost.bytes

    def share(work: int | None, rate: float | None, none: str | None, why: str) -> Metric:
        least_s = work / rate if work is not None and rate else None
        return Metric(least_s / step_s if least_s is not None and step_s else None, "1", "higher", none or why or None)

    no_flops, no_bytes = (record.reasons.get(f"cost.{name}", "") for name in ("flops", "bytes"))
    roof_s = measured.time_s(flops, bytes_) if measured and flops is not None and bytes_ is not None else None
    return {
        "mfu": share(flops, vendor.flop_per_s if vendor else None, no_vendor, no_flops),
        "mfu_measured": share(flops, measured.flop_per_s if measured else None, no_ceiling, no_flops),
        "mbu": share(bytes_, vendor.bytes_per_s if vendor else None, no_vendor, no_bytes),
        "mbu_measured": share(bytes_, measured.bytes_per_s if measured else None, no_ceiling, no_bytes),
        "roof_share": Metric(
            roof_s / step_s if roof_s is not None and step_s else None,
            "1",
            "higher",
            no_ceiling or no_flops or no_bytes or None,
        ),
        **_predicted(record, measured, no_ceiling),
    }


def _predicted(record: Record, roof: Roof | None, none: str | None) -> dict[str, Metric]:
    """Return the predicted time of a step and of each token, and the measured median step time over the former."""
    step = predicted_step(record, roof) if roof and record.blocks else None
    step_s, phases_s, none = (step.time_s, step.phases_s, step.reason) if step else (None, {}, none)
    ratio = None
    if step_s and record.blocks:
        ratio = median(record.blocks.duration_ns) / record.blocks.steps_per_block / 1e9 / step_s
    tokens = {
        name: Metric(
            phases_s.get(phase), "s", "lower", None if phase in phases_s else none or f"its steps have no {phase}"
        )
        for name, phase in PHASES.items()
    }
    return {
        "predicted_s": Metric(step_s, "s", "lower", none, headline=True, order=3),
        "times_predicted": Metric(ratio, "1", "lower", none, headline=True, order=2),
        **tokens,
    }
