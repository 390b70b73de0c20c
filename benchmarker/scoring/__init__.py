"""Two sides summed up over all cases, by metric: ratios, success, energy and money."""
