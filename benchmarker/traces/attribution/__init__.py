"""Attribution of each event: its scope, op, phase, category and cost."""
