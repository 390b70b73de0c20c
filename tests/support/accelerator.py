"""A distribution with an accelerator of PyTorch that is played: its tensors are those of the CPU on another device.

PyTorch loads it as it loads every backend, by an entry point, and knows it by its name, `played`. It has what a young
backend has: tensors and operators forward, and to synchronise; but no allocator that counts, no autocast, no profiler.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

BACKEND = """
    import os
    import time

    import torch
    from torch.utils._pytree import tree_map
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

    # What a functional operator is made of by default would resize its result, which these tensors cannot do.
    NOT_BY_OUT = "CompositeExplicitAutogradNonFunctional"
    LIBRARIES = [torch.library.Library(name, "IMPL", "PrivateUse1") for name in ("aten", "_")]


    class Played(torch.Tensor):
        @staticmethod
        def __new__(cls, raw):
            made = torch._C._acc.create_empty_tensor(raw.size(), raw.dtype)
            made.__class__ = cls
            return made

        def __init__(self, raw):
            self.raw = raw


    def raw(value):
        if isinstance(value, torch.device):
            return torch.device("cpu")
        return value.raw if isinstance(value, Played) else value


    def compute(operator, *args, **kwargs):
        if operator._schema.name == "aten::_copy_from":
            raw(args[1]).copy_(raw(args[0]))
            return args[1]
        found = operator(*tree_map(raw, args), **tree_map(raw, kwargs))
        own = {id(each.raw): each for each in args if isinstance(each, Played)}

        def on_the_device(each):
            return own[id(each)] if id(each) in own else Played(each)

        return tree_map(lambda each: on_the_device(each) if isinstance(each, torch.Tensor) else each, found)


    def registered(operator):
        return lambda *args, **kwargs: compute(operator, *args, **kwargs)


    class Module:
        def is_initialized(self): return True
        def is_available(self): return True
        def current_device(self): return 0
        def _is_in_bad_fork(self): return False
        def manual_seed_all(self, seed): pass
        def device_count(self): return 1
        def get_device_name(self): return "Played One"
        def synchronize(self): time.sleep(float(os.environ.get("PLAYED_SYNC_S", 0)))
        if "PLAYED_PEAK" in os.environ:
            def max_memory_allocated(self): return int(os.environ["PLAYED_PEAK"])


    def load():
        _setup_privateuseone_for_python_backend("played", Module())
        aten, fallback = LIBRARIES
        fallback.fallback(compute, "PrivateUse1")
        for full in torch._C._dispatch_get_all_op_names():
            if full.startswith("aten::") and torch._C._dispatch_has_kernel_for_dispatch_key(full, NOT_BY_OUT):
                name, _, overload = full.removeprefix("aten::").partition(".")
                operator = getattr(getattr(torch.ops.aten, name), overload or "default")
                aten.impl(full.removeprefix("aten::"), registered(operator))
"""


def install(folder: Path) -> None:
    """Put the distribution into a folder as an installer would leave it."""
    (folder / "torch_played.py").write_text(textwrap.dedent(BACKEND))
    info = folder / "torch_played-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch-played\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[torch.backends]\nplayed = torch_played:load\n")
