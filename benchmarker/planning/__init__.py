"""From what was asked to a plan: cases, what the frameworks can do, and how long it will take."""
