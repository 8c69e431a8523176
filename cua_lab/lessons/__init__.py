"""What only the notebooks use: figures, the live screen, the loops that are there to be read."""
