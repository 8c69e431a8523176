"""A realistic run folder, made up: two tasks, an honest 2048, film strips, a viewer payload."""

import json
import math
import random
from pathlib import Path

from PIL import Image, ImageDraw

from cua_lab.viz.payload import viewer_payload
from tests.viz.episodes import WordCodec, episode, frame

CLICK, GAME = "targets-click", "2048-score"
KEYS = ("left", "down", "right", "up")


def write_run(path: Path, *, seed: int = 0, steps: int = 40) -> Path:
    """Write every file of the contract under `path`."""
    rng = random.Random(seed)
    (path / "frames").mkdir(parents=True)
    metrics = [line for task in (CLICK, GAME) for line in _metrics(task, steps, rng)]
    _write_lines(path / "metrics.jsonl", metrics)
    _write_lines(path / "episodes.jsonl", _episodes(path, rng))
    (path / "summary.json").write_text(json.dumps(_summary()))
    (path / "config.yaml").write_text(
        "name: laptop\nseed: 0\ngrpo:\n  lr: 2.0e-4  # 1e-3 destroys\n"
    )
    codec = WordCodec()
    payload = viewer_payload(
        episode(3, codec=codec),
        codec,
        images=[frame(i) for i in range(3)],
        advantages=0.8,
        title="targets-click: one training episode",
    )
    (path / "viewer.json").write_text(json.dumps(payload))
    return path


def _write_lines(path: Path, records: list[dict]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def _metrics(task: str, steps: int, rng: random.Random) -> list[dict]:
    warm = [
        {
            "stage": task,
            "task": task,
            "phase": "sft",
            "step": i,
            "loss": 3 * math.exp(-i / 12) + 0.2,
        }
        for i in range(60)
    ]
    low, high = (0.52, 0.84) if task == CLICK else (0.05, 0.33)
    return warm + [
        {
            "stage": task,
            "task": task,
            "phase": "grpo",
            "step": i,
            "loss": rng.gauss(0, 0.02),
            "reward_mean": low + (high - low) * (1 - math.exp(-i / 14)) + rng.gauss(0, 0.02),
            "reward_std": 0.22 if task == CLICK else 0.08,
            "success": None if task == GAME else min(1.0, low + 0.3 * (1 - math.exp(-i / 14))),
            "valid_tool_calls": 0.96 + rng.gauss(0, 0.01) - (0.08 if i == 20 else 0),
            "zero_variance_groups": max(0, round(8 * 0.02 * i / 4)),
            "groups": 8,
            "entropy": 0.45 * math.exp(-i / 60) + rng.gauss(0, 0.01),
            "ratio_mean": 1 + rng.gauss(0, 0.004),
            "ratio_max": 1.3 + abs(rng.gauss(0, 0.1)),
            "clip_fraction": 0.03,
            "grad_norm": 0.6,
            "logprob_gap_max": 2.9e-6,
            "keys_per_turn": None if task == CLICK else 4 + 12 * (1 - math.exp(-i / 14)),
            "seconds": 2.4,
        }
        for i in range(steps)
    ]


def _episodes(path: Path, rng: random.Random) -> list[dict]:
    records = []
    for phase, offset in (("eval_before", 160), ("eval_after", 15)):
        for n in range(4):
            records.append(_click_episode(path, rng, phase, n, offset))
        records.append(_game_episode(path, rng, phase, 3 if phase == "eval_before" else 16))
    return records


def _click_episode(path: Path, rng: random.Random, phase: str, n: int, offset: int) -> dict:
    x, y = rng.randrange(150, 850), rng.randrange(150, 850)
    image = Image.new("RGB", (128, 128), (236, 236, 232))
    draw = ImageDraw.Draw(image)
    px, py = x * 128 // 1000, y * 128 // 1000
    draw.rounded_rectangle((px - 14, py - 9, px + 14, py + 9), 3, fill=(208, 40, 40))
    draw.rounded_rectangle(
        (128 - px - 12, (py + 50) % 110, 140 - px, (py + 64) % 124 + 8), 3, fill=(60, 110, 180)
    )
    name = f"frames/{phase}-{n}.png"
    image.save(path / name)
    at = {
        "x": min(999, max(0, x + rng.randrange(-offset, offset))),
        "y": min(999, max(0, y + rng.randrange(-offset, offset))),
    }
    hit = abs(at["x"] - x) < 110 and abs(at["y"] - y) < 70
    turn = {
        "action": {"action": "click", **at},
        "valid": True,
        "keys": [],
        "text": "<tool_call>",
        "frame": name,
    }
    return {
        "stage": CLICK,
        "task": CLICK,
        "phase": phase,
        "step": None,
        "group": f"g{n}",
        "episode": f"click-{n}",
        "reward": 1.0 if hit else 0.3,
        "success": hit,
        "status": "completed",
        "turns": [turn],
    }


def _game_episode(path: Path, rng: random.Random, phase: str, keys: int) -> dict:
    turns = []
    for t in range(4):
        image = Image.new("RGB", (128, 128), (187, 173, 160))
        draw = ImageDraw.Draw(image)
        for cell in range(16):
            value = rng.choice([0, 0, 2, 4, 8, 16])
            x, y = 4 + cell % 4 * 31, 4 + cell // 4 * 31
            draw.rounded_rectangle(
                (x, y, x + 27, y + 27), 3, fill=(238, 228 - value * 6, 218 - value * 9)
            )
            if value:
                draw.text((x + 8, y + 8), str(value), fill=(60, 50, 40))
        name = f"frames/{phase}-2048-{t}.png"
        image.save(path / name)
        pressed = [rng.choice(KEYS[: 2 if keys > 5 else 4]) for _ in range(keys)]
        turns.append(
            {
                "action": {"action": "press", "keys": pressed},
                "valid": True,
                "keys": pressed,
                "text": "",
                "frame": name,
            }
        )
    return {
        "stage": GAME,
        "task": GAME,
        "phase": phase,
        "episode": "game-0",
        "reward": 0.04 * keys / 3,
        "success": None,
        "status": "completed",
        "turns": turns,
    }


def _e(mean: float, se: float, n: int = 256) -> dict:
    return {"mean": mean, "se": se, "n": n}


def _summary() -> dict:
    return {
        "recipe": "laptop",
        "seed": 0,
        "versions": {
            "python": "3.11.9",
            "torch": "2.13.0",
            "transformers": "5.24.0",
            "hud": "0.6.21",
            "cua_lab": "0.1.0",
        },
        "machine": {
            "cpu": "a laptop",
            "cores": 2,
            "memory_gib": 7.7,
            "python": "3.11",
            "threads": 1,
        },
        "tasks": {
            CLICK: {
                "reward_before": _e(0.61, 0.02),
                "reward_after": _e(0.88, 0.013),
                "success_before": _e(0.53, 0.031),
                "success_after": _e(0.84, 0.023),
                "valid_tool_calls_before": 0.97,
                "valid_tool_calls_after": 0.99,
                "keys_per_turn_before": None,
                "keys_per_turn_after": None,
                "ablations": {"shuffled": _e(0.19, 0.02), "blank": _e(0.12, 0.02)},
                "ablations_success": {"shuffled": _e(0.06, 0.015), "blank": _e(0.03, 0.01)},
                "learnt": "It looks: 84 of 100 clicks inside, 6 of 100 on somebody else's screen.",
            },
            GAME: {
                "reward_before": _e(0.045, 0.004),
                "reward_after": _e(0.33, 0.011),
                "success_before": _e(0.0, 0.0),
                "success_after": _e(0.01, 0.006),
                "valid_tool_calls_before": 0.98,
                "valid_tool_calls_after": 0.95,
                "keys_per_turn_before": 3.4,
                "keys_per_turn_after": 15.8,
                "direction_shares_before": {"left": 0.26, "down": 0.25, "right": 0.24, "up": 0.25},
                "direction_shares_after": {"left": 0.48, "down": 0.44, "right": 0.05, "up": 0.03},
                "ablations": {
                    "shuffled": _e(0.33, 0.012),
                    "blank": _e(0.32, 0.012),
                    "random": _e(0.30, 0.011),
                },
                "learnt": "15.8 keys per turn instead of 3.4. It does not read the board.",
            },
        },
        "logprob_gap_max": 2.9e-6,
        "first_ratio_max_error": 1.2e-6,
        "episodes": {"completed": 5120, "truncated": 12, "failed": 0},
        "divergences": {"white_space": 31, "json": 0, "resplit": 2, "rewrite": 0},
        "tokens": {
            "sampled": 412345,
            "trained": 412001,
            "masked": 0,
            "resynced": 344,
            "dropped": 0,
        },
        "seconds": {
            "sft": 46.0,
            "prefill": 21.0,
            "decode": 95.0,
            "env": 18.0,
            "train": 97.0,
            "eval": 34.0,
            "total": 324.0,
        },
        "tokens_per_s": {"sft": 9800, "prefill": 17000, "decode": 4100, "train": 10400},
        "peak_rss_gib": 1.9,
    }
