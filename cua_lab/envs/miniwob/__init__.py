"""MiniWoB++ as a HUD env package: env.py, tasks.py, players.py, Dockerfile.hud."""
