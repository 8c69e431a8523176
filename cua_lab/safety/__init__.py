"""Safety: a gate in front of every risky action, which fails closed."""
