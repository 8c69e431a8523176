"""HUD v6 env packages: each a folder with env.py, tasks.py and Dockerfile.hud."""
