"""Scripted players for the browser's templates.

A 2048 key list does not depend on the pixels, so demonstrations are drawn by the embedded app: the
same starts, the same calls, a picture that differs. The screens of the policy's own episodes are
the browser's.
"""

from cua_lab.envs.lab.players import demonstrator, random_player

__all__ = ["demonstrator", "random_player"]
