"""Records, comparisons and sensors as text for a terminal."""
