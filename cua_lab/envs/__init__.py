"""HUD v6 env packages: each a folder with env.py, tasks.py and Dockerfile.hud.

`cua_lab.env_package` finds them, by a short name too: `miniwob` is `cua_lab.envs.miniwob`.
"""
