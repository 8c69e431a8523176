"""From episodes to training samples: turns, stitching, vision inputs, write-offs."""
