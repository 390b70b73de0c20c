"""Statistics of comparisons: pure functions of numbers, with the reason or the source next to each formula."""
