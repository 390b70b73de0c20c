"""What a worker answers and checks, in this process: to start a framework takes longer than most checks."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from tempfile import TemporaryDirectory

from benchmarker import Case, Mode
from benchmarker.hooks import registry
from benchmarker.planning.cases import Ability
from benchmarker.records.record import Check
from benchmarker.worker.__main__ import _check
from benchmarker.worker.protocol import Checked, Event, Losses, Task


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
