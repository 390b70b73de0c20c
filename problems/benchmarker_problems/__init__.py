"""Built-in problems, one folder each: the problem itself, and one module for each framework that implements it."""
