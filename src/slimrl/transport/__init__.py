"""How samples and weights travel between the two halves."""
