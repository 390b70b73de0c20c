"""The description of the machine and of its software, and the conditions that make timings on it noisy."""

import os
import platform
import socket
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import psutil

from benchmarker.formatting import count, si
from benchmarker.machine.gpus import list_gpus
from benchmarker.records.job import Installed
from benchmarker.records.machine import Cache, Cpu, Machine

_CPU_SYSFS = Path("/sys/devices/system/cpu")
_DMI = Path("/sys/class/dmi/id")
_PLACEHOLDERS = {"", "0", "default string", "invalid", "none", "not applicable", "not specified", "o.e.m.", "oem"}
_PLACEHOLDERS |= {"system manufacturer", "system product name", "to be filled by o.e.m.", "undefined", "unknown"}
"""What the firmware says of a machine whose maker did not fill in its name, in lower case."""


def describe() -> Machine:
    """Describe the machine; takes about ten milliseconds, and longer if a GPU tool must be run."""
    return Machine(
        host=socket.gethostname(),
        model=_model(),
        os=_os_name(),
        kernel=f"{platform.system()} {platform.release()}",
        virtualization=_virtualization(),
        container=_container(),
        cpu=_cpu(),
        cpu_quota_cores=_cpu_quota_cores(),
        memory_bytes=psutil.virtual_memory().total,
        swap_used_bytes=psutil.swap_memory().used,
        gpus=list_gpus(),
        load_average_1min=os.getloadavg()[0],
        steal_percent=_steal_percent(),
    )


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def last_cache_bytes(folder: Path = _CPU_SYSFS) -> int | None:
    """Return the bytes of all last-level caches together, as Linux reports them; None if it does not."""
    found = {}
    for index in folder.glob("cpu[0-9]*/cache/index[0-9]*"):
        if cache := _cache(index):
            found[cache.level, _read(index / "shared_cpu_list")] = cache.bytes
    last = max((level for level, _ in found), default=0)
    return sum(size for (level, _), size in found.items() if level == last) or None


def caches(folder: Path = _CPU_SYSFS) -> list[Cache]:
    """Return the caches of data that core 0 uses, from the first level, as Linux reports them; none if it does not."""
    indices = [each for each in folder.glob("cpu0/cache/index[0-9]*") if _read(each / "type") != "Instruction"]
    return sorted(filter(None, map(_cache, indices)), key=lambda cache: cache.level)


def _cache(index: Path) -> Cache | None:
    """Return the cache that a folder of Linux describes; None if it does not say its level and size."""
    try:
        size = (index / "size").read_text().strip()
        return Cache(int((index / "level").read_text()), int(size.removesuffix("K")) * 1024)
    except (OSError, ValueError):
        return None


def restriction(machine: Machine) -> str | None:
    """Return which part of the machine's logical cores a trial could use, in words; None if it could use all."""
    cpu, quota = machine.cpu, machine.cpu_quota_cores
    if quota is not None and quota < cpu.usable_cores:
        return f"a cgroup quota of {quota:g} of {cpu.logical_cores} cores"
    if cpu.usable_cores < cpu.logical_cores:
        return f"{cpu.usable_cores} of {cpu.logical_cores} cores"
    return None


def noise(machine: Machine) -> list[str]:
    """Return the conditions that make timings noisy on this machine, one sentence each with its remedy."""
    cpu = machine.cpu
    conditions = []
    if machine.load_average_1min > 0.25 * cpu.usable_cores:
        conditions.append(
            f"load average {machine.load_average_1min:.2f} on {count(cpu.usable_cores, 'core')}: "
            "other processes are running; stop them or wait"
        )
    if machine.steal_percent is not None and machine.steal_percent > 0.5:
        conditions.append(f"{machine.steal_percent:.1f}% of processor time was stolen by the hypervisor since boot")
    if machine.virtualization:
        conditions.append(
            f"a virtual machine ({machine.virtualization}): other guests may share the hardware unnoticed"
        )
    if cpu.governor not in (None, "performance"):
        conditions.append(f"frequency governor {cpu.governor!r}: set 'performance' for steady clocks")
    if cpu.governor is None:
        conditions.append("the processor's frequency cannot be read or set here: clocks may change during a run")
    if cpu.smt:
        conditions.append("SMT is on: two threads may share one core; set --threads to at most the physical cores")
    if machine.cpu_quota_cores is not None and machine.cpu_quota_cores < cpu.usable_cores:
        conditions.append(
            f"a cgroup quota of {machine.cpu_quota_cores:g} cores throttles the {cpu.usable_cores} usable ones: "
            "lower --threads"
        )
    if machine.swap_used_bytes > 2**28:
        conditions.append(f"{si(machine.swap_used_bytes, 'B')} are swapped out: free memory")
    conditions += [
        f"GPU {gpu.index} already runs {count(gpu.processes, 'compute process', 'compute processes')}"
        for gpu in machine.gpus
        if gpu.processes
    ]
    return conditions


def commit(folder: Path = Path(__file__).parents[2], file: Path | None = None) -> str | None:
    """Return the git commit of a folder, with `+changes` if files differ; None if it is not a checkout.

    By default, the folder is this project's source. With a `file`, only its changes count.
    """
    if not (folder / ".git").exists():
        return None
    git = [
        "git",
        "-c",
        f"safe.directory={folder}",
        "-C",
        str(folder),
    ]  # another owner's may be read
    try:
        head = _run([*git, "rev-parse", "--short=12", "HEAD"])
        untracked = ["--untracked-files=no"] if file is None else ["--", str(file)]
        changed = _run([*git, "status", "--porcelain", *untracked])
    except (OSError, subprocess.SubprocessError):
        return None
    return head + ("+changes" if changed else "")


def commit_of(file: Path) -> str | None:
    """Return the git commit of the checkout that a file is in, with `+changes` if the file differs; None if in none."""
    checkout = next((folder for folder in file.parents if (folder / ".git").exists()), None)
    return commit(checkout, file) if checkout else None


def python_version() -> str:
    """Implementation and version of this Python."""
    return f"{sys.implementation.name} {platform.python_version()}"


def installed() -> Installed:
    """Return the software that this Python would run, by which runs that are to agree in it are compared."""
    versions = {
        distribution.name: distribution.version for distribution in metadata.distributions() if distribution.name
    }
    return Installed(python_version(), commit(), dict(sorted(versions.items())))


def utc_now() -> str:
    """Return the current time in UTC, ISO 8601, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _run(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()


def _read(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def _model() -> str | None:
    """The maker and the model of the machine, as its firmware tells Linux; None if it does not."""
    maker, product = (_one_line_or_none(_read(_DMI / name)) for name in ("sys_vendor", "product_name"))
    if maker is None or product is None or product.lower().startswith(maker.lower()):
        return product
    return f"{maker} {product}"


def _one_line_or_none(text: str | None) -> str | None:
    """Return a text of the firmware on one line; None if it is a placeholder."""
    words = " ".join((text or "").split())
    return None if words.lower() in _PLACEHOLDERS else words


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.platform(terse=True)


def _cpu() -> Cpu:
    smt = _read(_CPU_SYSFS / "smt/active")
    frequency = _read(_CPU_SYSFS / "cpu0/cpufreq/cpuinfo_max_freq")
    return Cpu(
        model=_cpu_model(),
        physical_cores=psutil.cpu_count(logical=False),
        logical_cores=os.cpu_count() or 1,
        usable_cores=usable_cores(),
        cache_bytes=last_cache_bytes(),
        smt=None if smt is None else smt == "1",
        governor=_read(_CPU_SYSFS / "cpu0/cpufreq/scaling_governor"),
        frequency_max_MHz=None if frequency is None else int(frequency) / 1000,
        caches=caches(),
    )


def _cpu_model() -> str:
    for line in (_read(Path("/proc/cpuinfo")) or "").splitlines():
        if line.startswith(("model name", "Model")):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _virtualization() -> str | None:
    """The hypervisor's vendor name, if the processor reports a hypervisor."""
    if " hypervisor" not in (_read(Path("/proc/cpuinfo")) or ""):
        return None
    return _read(_DMI / "sys_vendor") or "unnamed hypervisor"


def _container() -> str | None:
    if Path("/.dockerenv").exists():
        return "docker"
    if Path("/run/.containerenv").exists():
        return "podman"
    kind = _read(Path("/run/systemd/container"))
    if kind is None and (os.environ.get("SINGULARITY_NAME") or os.environ.get("APPTAINER_NAME")):
        return "apptainer"
    return kind


def _cpu_quota_cores() -> float | None:
    """Processor time that the cgroup allows, in cores (cgroup v2: `cpu.max` contains quota and period in µs)."""
    quota = (_read(Path("/sys/fs/cgroup/cpu.max")) or "max").split()
    return None if quota[0] == "max" else int(quota[0]) / int(quota[1])


def _steal_percent() -> float | None:
    """Share of processor time since boot that the hypervisor gave to other guests, %."""
    times = psutil.cpu_times()
    steal = getattr(times, "steal", None)  # only Linux counts it
    return None if steal is None else 100 * steal / (sum(times) or 1)
