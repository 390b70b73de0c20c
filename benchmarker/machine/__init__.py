"""The machine: its description, its GPUs, and the counters of what interferes with a measurement."""
