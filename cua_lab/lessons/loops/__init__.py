"""Each idea of the lab as one file to read from top to bottom, run by a test against the real one.

| file | the idea | the real one |
|---|---|---|
| `sft.py` | learn from demonstrations | `cua_lab.training.warmup` |
| `decode.py` | sample an answer, token by token | `cua_lab.engine.engine` |
| `episode.py` | look, act, be graded | `cua_lab.play.episode` |
| `stitch.py` | turns into training sequences | `cua_lab.stitching.stitch` |
| `grpo.py` | compare an episode with its group | `cua_lab.training.trainer` |
| `plus_*.py` | one idea more, as a few lines on top of `grpo.py` | options of the trainer |
"""
