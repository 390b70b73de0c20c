"""For those who buy: scores, costs, acceptance against a reference, and completeness."""
