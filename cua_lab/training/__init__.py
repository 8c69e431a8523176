"""From samples to better weights: demonstrations, SFT, rewards, advantages, losses, trainer."""
