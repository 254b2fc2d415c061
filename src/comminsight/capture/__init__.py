"""What processes left or are writing: sessions of a run directory or of the live node."""
