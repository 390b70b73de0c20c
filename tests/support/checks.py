"""What a worker answers, checks and builds, in this process: to start a framework takes longer than most checks."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from tempfile import TemporaryDirectory

import msgspec

from benchmarker import Case, Mode
from benchmarker.api.problem import divided
from benchmarker.hooks import registry
from benchmarker.planning.cases import Ability
from benchmarker.records.record import Check, CostPart
from benchmarker.running.context import Context
from benchmarker.running.record_builder import Process, RecordBuilder
from benchmarker.running.trial import ProcessResult
from benchmarker.worker.__main__ import _check
from benchmarker.worker.bench import Bench
from benchmarker.worker.protocol import Checked, Done, Event, Losses, RecordPart, Task
from support.records import HEARD


class Sent(list[Event]):
    """The events of a worker."""

    def send(self, event: Event) -> None:
        self.append(event)


@contextmanager
def _quickly_compiled() -> Iterator[None]:
    """XLA compiles a program once, and not to be fast; afterwards all frameworks have their settings back."""
    import jax
    import torch
    from jax.experimental.compilation_cache.compilation_cache import reset_cache

    with TemporaryDirectory() as folder:
        quick = {
            "jax_compilation_cache_dir": folder,
            "jax_persistent_cache_min_compile_time_secs": 0,
            "jax_disable_most_optimizations": True,
        }
        names = (*quick, "jax_platforms", "jax_enable_x64", "jax_default_matmul_precision")
        before = {name: jax.config.values[name] for name in names}
        products = torch.get_float32_matmul_precision()
        reset_cache()
        try:
            for name, value in quick.items():
                jax.config.update(name, value)
            yield
        finally:
            for name, value in before.items():
                jax.config.update(name, value)
            torch.set_float32_matmul_precision(products)
            reset_cache()


def ability_of(problem: str, framework: str) -> Ability:
    """What a framework supports of a problem."""
    hooks = registry.load([f"framework.{framework}", f"workload.{problem}.{framework}"]).hook
    return Ability(hooks.describe_framework(), hooks.describe_workload())


def checked(case: Case, modes: Sequence[Mode], steps: int = 0) -> tuple[dict[str, Check], list[float]]:
    """The check of each mode, and the losses of so many steps if training is among them."""
    sent = Sent()
    task = Task(kind="check", framework=case.framework, cases=(case,), modes=tuple(modes), steps=steps)
    with _quickly_compiled():
        _check(task, sent, None)
    losses = [loss for event in sent if isinstance(event, Losses) for loss in event.losses]
    return {event.mode: event.check for event in sent if isinstance(event, Checked)}, losses


def untimed_trial(context: Context, process: Process) -> ProcessResult:
    """A trial of one case that went well, as `run_process` gives it: built here, and neither checked nor timed."""
    (case,) = process.cases
    with _quickly_compiled():
        bench = Bench(msgspec.structs.replace(case, threads=None, devices=1, ranks=1, parallel="none"))
        alone = case.devices == 1
        recomputed = bench.build(bench.problem, bench.data(bench.problem, 1)).recomputed_flops if alone else 0
        described = bench.describe()
    problem = divided(bench.problem, case.devices, case.parallel)
    by_formula = asdict(problem.cost(case.mode, case.precision))
    builder = RecordBuilder(process, 0, {})
    for event in (HEARD, described, RecordPart(cost=CostPart(**by_formula, recomputed_flops=recomputed)), Done()):
        builder.on_event(event)
    return ProcessResult([builder.record(1.0, 0)], [])
