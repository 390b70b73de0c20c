"""The worker process: one task in a fresh process, and how its parent launches it."""
