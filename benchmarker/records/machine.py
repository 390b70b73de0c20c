"""Where a trial ran: its machine, its device, and the software, the user's own file among it."""

from typing import Annotated

from msgspec import Struct

from benchmarker.api.fields import Count, null_because


class DeviceInfo(Struct, frozen=True, forbid_unknown_fields=True):
    """The device that was measured."""

    platform: str  #: platform
    name: str  #: name, as the framework reports it
    #: UUID; on `cuda`, the UUID of the GPU that was made visible to the process
    uuid: Annotated[str | None, null_because("{case.framework} reports none for {case.device}")]
    #: PCI address (`0000:65:00.0`), as the framework reports it
    pci: Annotated[str | None, null_because("{case.framework} reports none for {case.device}")]
    #: memory, as the framework reports it
    memory_bytes: Annotated[Count | None, null_because("{case.framework} reports none for {case.device}")]
    #: last-level cache: of a GPU its L2 cache, as the framework reports it; of a processor as in `machine.cpu`
    cache_bytes: Annotated[Count | None, null_because("nothing reports its size for {case.device} in {case.framework}")]


class Cache(Struct, frozen=True, forbid_unknown_fields=True):
    """A cache that holds data."""

    level: Count  #: level, 1 for the one that is nearest to the core
    bytes: Count  #: size


class Cpu(Struct, frozen=True, forbid_unknown_fields=True):
    """The processor; `governor` and `frequency_max_MHz` are as reported by the operating system."""

    model: str  #: model name
    physical_cores: Annotated[Count | None, null_because("the operating system does not report it")]  #: physical cores
    logical_cores: Count  #: hardware threads
    usable_cores: Count  #: hardware threads that the process may run on
    smt: Annotated[bool | None, null_because("the operating system does not report it")]  #: whether SMT is active
    #: all last-level caches together
    cache_bytes: Annotated[Count | None, null_because("the operating system does not report it")]
    #: frequency governor of core 0
    governor: Annotated[str | None, null_because("the operating system shows no frequency governor")]
    #: maximum frequency of core 0
    frequency_max_MHz: Annotated[float | None, null_because("the operating system shows no frequency limits")]
    #: caches that core 0 uses, each whole though other cores may share it; empty if the operating system reports none
    caches: list[Cache] = []


class Gpu(Struct, frozen=True, forbid_unknown_fields=True):
    """One GPU as reported by its vendor's tool, and the number of compute processes found on it."""

    index: Count  #: index in `nvidia-smi`
    name: str  #: name
    uuid: str  #: UUID
    driver: Annotated[str | None, null_because("nvidia-smi reports no value for it")]  #: driver version
    compute_capability: Annotated[str | None, null_because("nvidia-smi reports no value for it")]  #: compute capability
    memory_bytes: Annotated[Count | None, null_because("nvidia-smi reports no value for it")]  #: memory
    power_limit_W: Annotated[float | None, null_because("nvidia-smi reports no value for it")]  #: power limit
    ecc: Annotated[str | None, null_because("nvidia-smi reports no value for it")]  #: state of error correction
    mig: Annotated[str | None, null_because("nvidia-smi reports no value for it")]  #: state of multi-instance mode
    #: compute processes found on the GPU
    processes: Annotated[Count | None, null_because("nvidia-smi reports no value for it")]


class Machine(Struct, frozen=True, forbid_unknown_fields=True):
    """The machine at the start of a trial."""

    host: str  #: host name
    #: maker and model, as the firmware tells Linux; null elsewhere, or if the maker did not fill them in
    model: Annotated[str | None, null_because("the system does not report the model of the machine")]
    os: str  #: operating system
    kernel: str  #: kernel and its release
    #: vendor of the virtual machine, if the processor reports a hypervisor
    virtualization: Annotated[str | None, null_because("no hypervisor was detected")]
    #: kind of container, if one is detected
    container: Annotated[str | None, null_because("no container was detected")]
    cpu: Cpu  #: the processor
    #: processor time that the cgroup allows, as a number of cores
    cpu_quota_cores: Annotated[float | None, null_because("no cgroup limits processor time")]
    memory_bytes: Count  #: main memory
    swap_used_bytes: Count  #: used swap space
    gpus: list[Gpu]  #: NVIDIA GPUs that `nvidia-smi` lists, used or not
    load_average_1min: float  #: load average over the last minute
    #: share of processor time since boot that the hypervisor gave to other guests
    steal_percent: Annotated[float | None, null_because("the operating system does not count stolen time")]


class Software(Struct, frozen=True, forbid_unknown_fields=True):
    """The software that ran: versions, the environment variables that change its speed, the commit of this project."""

    python: str  #: implementation and version of Python
    benchmarker: str  #: version of benchmarker
    #: git commit of benchmarker's source, with `+changes` if tracked files differ from it
    commit: Annotated[str | None, null_because("benchmarker does not run from a git checkout, or git cannot read it")]
    libraries: dict[str, str]  #: versions of the libraries that the framework names
    #: environment variables that the framework names and that are set; a word that contains a `/` is replaced by
    #: `<path>`; and `LOADEDMODULES`, the loaded modules of the system, separated by spaces
    variables: dict[str, str]
    #: CPU threads that the framework computes with, counted after the framework was opened
    threads: Annotated[Count | None, null_because("{case.framework} cannot report it on this system")]


class SourceFile(Struct, frozen=True, forbid_unknown_fields=True):
    """The user's file or module that was measured."""

    path: str  #: its name as the user wrote it
    sha256: str  #: digest of its content
    #: git commit of the checkout that it is in, with `+changes` if the file differs from it
    commit: Annotated[str | None, null_because("{case.problem} is in no git checkout, or git cannot read it")]
