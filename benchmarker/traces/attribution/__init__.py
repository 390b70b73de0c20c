"""What each event belongs to: scope, op, phase, category, and what it cost."""
