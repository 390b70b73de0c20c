"""Records, comparisons and scores as tables and sentences, and the results that are made of these."""
