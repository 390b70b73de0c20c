"""Bandwidths of collectives, as NCCL Tests define them, and the share of communication in a profile.

Source of the factors of the bus bandwidth: doc/PERFORMANCE.md of github.com/NVIDIA/nccl-tests.
"""

from collections.abc import Mapping

from benchmarker import Metric, Plot, Record, hookimpl

_TIMES_ROUND = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1}
"""How often the data of all devices but one must cross a link; the others send all of it over one link once."""


def bus_factor(op: str, devices: int) -> float:
    """Return the bus bandwidth over the algorithm bandwidth."""
    return _TIMES_ROUND[op] * (devices - 1) / devices if op in _TIMES_ROUND else 1.0


@hookimpl
def derive_metrics(record: Record) -> Mapping[str, Metric]:
    """Return size / time, the same times the share of the data that crosses each link, and shares of the profile.

    The bus bandwidth of one device is None: nothing is sent. The shares are those of the wall time of all devices in
    which they communicated, and in which they only waited for another one to begin.
    """
    blocks, n = record.blocks, record.case.devices
    reason = f"{record.case.problem} is no collective" if record.case.problem != "collective" else None
    reason = reason or (None if blocks else record.not_timed)
    algorithm = None
    bus, no_bus = None, reason or (None if n > 1 else "one device sends nothing")
    if reason is None and blocks is not None:
        step_s = sum(blocks.duration_ns) / len(blocks.duration_ns) / blocks.steps_per_block / 1e9
        algorithm = int(record.case.params["bytes"]) / step_s
        bus = None if no_bus else bus_factor(str(record.case.params["op"]), n) * algorithm
    return {
        "algbw_bytes_per_s": Metric(algorithm, "B/s", "higher", reason, headline=True),
        "busbw_bytes_per_s": Metric(bus, "B/s", "higher", no_bus, headline=True, plot=Plot("bus bandwidth")),
        **_shares(record),
    }


def _shares(record: Record) -> Mapping[str, Metric]:
    trace = record.trace if record.case.devices > 1 else None
    communication, waiting = (trace.communication_share, trace.waiting_share) if trace else (None, None)
    none = None if trace else "it has one device" if record.case.devices == 1 else record.reasons["trace"]
    no_waiting = none or ("no collective is known of all devices" if waiting is None else None)
    return {
        "communication_share": Metric(communication, "1", "lower", none, plot=Plot("share of communication")),
        "waiting_share": Metric(waiting, "1", "lower", no_waiting),
    }
