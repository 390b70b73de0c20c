"""Comparing records: match them, test each match, judge all together, explain the verdict."""
