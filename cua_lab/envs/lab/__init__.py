"""The lab's HUD env package: env.py, tasks.py, Dockerfile.hud."""
