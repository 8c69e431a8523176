"""Pages that order something else, as a HUD env package: env.py, tasks.py, Dockerfile.hud."""
