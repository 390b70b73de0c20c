"""Results as text for a terminal, and progress."""
