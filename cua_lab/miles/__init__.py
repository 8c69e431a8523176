"""The plug-in for Miles: the lab's episodes and exact tokens under Ray, FSDP and sglang.

    recipe.yaml ──▶ cua-lab miles (preflight, command) ──▶ Miles ──▶ generate ──▶ HUD episode
                                                             ▲                       │
                                                             └── samples, rewards ◀──┘

Miles is given paths to functions here and is not changed; nothing here imports it.
"""
