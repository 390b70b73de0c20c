"""Records held against what was promised: PASS or FAIL, case by case."""
