"""The machine: its description, its GPUs, and the interference counters."""
