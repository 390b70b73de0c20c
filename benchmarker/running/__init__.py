"""Running a plan: trials in fresh processes, their records, and the profiled pass."""
