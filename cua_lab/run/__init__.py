"""The main job: demonstrations, warm-up, GRPO, evaluation, and the folder that a run leaves."""
