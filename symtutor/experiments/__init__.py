"""Data and training of the experiments."""
