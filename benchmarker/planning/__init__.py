"""From a request to a plan: its cases, what the frameworks support, and how long it will take."""
