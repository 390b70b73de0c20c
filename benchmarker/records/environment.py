"""The environment of a trial: what was found rather than requested."""

from benchmarker.records.factors import Value
from benchmarker.records.record import Record


def environment_of(record: Record) -> dict[str, Value]:
    """Return what was found rather than requested: machine, device, versions."""
    return {
        "host": record.machine.host,
        "machine": record.machine.model,
        "processor": record.machine.cpu.model,
        # Each framework names a CPU differently; `processor` is the same in all.
        "device_name": record.device.name if record.device and record.device.platform != "cpu" else None,
        "python": record.software.python,
        "benchmarker": record.software.benchmarker,
        "commit": record.software.commit,
        "usable_cores": record.machine.cpu.usable_cores,
        "compute_threads": record.software.threads,
        **record.software.libraries,
    }
