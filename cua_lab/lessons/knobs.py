"""Knobs: an idea as sliders and a drawing beside a cell, computed in the page.

    knob("clip") ──kind, values──▶ knobs.js        (no kernel is needed once it is drawn)
                 └──▶ a PNG of the first values    (GitHub, a page without scripts)

Invariant: the picture is drawn from the package's own functions; that the JavaScript agrees with
them is a test in a real browser.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anywidget
import numpy as np
import traitlets

from cua_lab.envs.lab.grading import click_distance
from cua_lab.errors import LabError
from cua_lab.lessons.clip_plot import clipped_losses
from cua_lab.training.advantages import group_advantages
from cua_lab.viz import page
from cua_lab.viz.picture import Picture
from cua_lab.viz.style import COLOURS, INK, paper

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STATIC = Path(__file__).parent / "static"
KV_BYTES = 2 * 36 * 8 * 128 * 2
"""Of KV cache per token of a Qwen3-VL-8B: keys and values, 36 layers, 8 heads of 128, bf16."""
FIRST: dict[str, dict[str, Any]] = {
    "clip": {"ratio": 1.5, "advantage": 1.0, "low": 0.2, "high": 0.28},
    "advantages": {"rewards": [0.1, 0.3, 0.3, 0.9]},
    "silent": {"p": 0.1, "members": 8},
    "tokens": {"width": 640, "turns": 8, "bytes": KV_BYTES},
    "aim": {"x": 70, "y": 30, "box": [20, 40, 52, 64]},
    "kl": {"weight": 0.5, "reference": 0.2},
}
"""What each kind shows at first."""
BACKDROP = "body{margin:0;background:light-dark(#fff,#111)}:root{color-scheme:light dark}"


class Knob(anywidget.AnyWidget):
    """One idea; made by `knob`."""

    _esm = STATIC / "knobs.js"
    _css = STATIC / "knobs.css"
    kind = traitlets.Unicode().tag(sync=True)
    values = traitlets.Dict().tag(sync=True)

    def save_html(self, path: str | Path) -> Path:
        """Write a page that works offline, from `file://`, under `default-src 'none'`."""
        html = page.page_of(
            "widget.html.jinja",
            title=f"Knob: {self.kind}",
            style=(STATIC / "knobs.css").read_text(encoding="utf-8") + BACKDROP,
            script=(STATIC / "knobs.js").read_text(encoding="utf-8") + "\nboot();\n",
            data=page.json_text({"kind": self.kind, "values": self.values}),
        )
        return page.write_page(path, html)

    def __repr__(self) -> str:
        return f"Knob({self.kind!r})"

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        bundle = super()._repr_mimebundle_(**kwargs)
        data, metadata = bundle if bundle is not None else ({}, {})
        static, described = knob_picture(self.kind, self.values)._repr_mimebundle_()
        return {**data, **static, "text/plain": repr(self)}, {**metadata, **described}


def knob(kind: str, **values: Any) -> Knob:
    """The knob of a kind: clip, advantages, silent, tokens, aim or kl; `values` replace its first
    ones."""
    if kind not in FIRST:
        raise LabError(f"there is no knob {kind!r}; there are {', '.join(FIRST)}")
    if unknown := sorted(set(values) - set(FIRST[kind])):
        raise LabError(f"the knob {kind} has {', '.join(FIRST[kind])}; got {', '.join(unknown)}")
    return Knob(kind=kind, values=FIRST[kind] | values)


def knob_picture(kind: str, values: dict[str, Any]) -> Picture:
    """The drawing as a picture, with words for whoever cannot see it."""
    with paper():
        figure = Picture(figsize=(6.4, 3.2), layout="constrained")
        figure.alt = DRAWN[kind](figure.subplots(), **values)
    return figure


def silent_share(p: float | np.ndarray, members: int) -> Any:
    """Of groups whose members all succeed or all fail, where each succeeds with probability p."""
    return p**members + (1 - p) ** members


def drifted(reference: float, weight: float | np.ndarray) -> Any:
    """Where the probability of an answer paid 1, against others paid 0, settles under a KL weight:
    the reference times exp(reward / weight), normalised (arXiv 1909.08593, eq. 2)."""
    return 1 / (1 + (1 - reference) / reference * np.exp(-1 / weight))


def _clip(axes: Axes, ratio: float, advantage: float, low: float, high: float) -> str:
    ratios = np.linspace(0.3, 2, 97)
    axes.plot(ratios, -ratios * advantage, color=INK, linestyle=":", label="no clip")
    axes.plot(ratios, clipped_losses(ratios, advantage, low, high), label="clipped")
    (at,) = clipped_losses(np.array([ratio]), advantage, low, high)
    _dot(axes, ratio, at)
    _named(axes, "The clip", "ratio: probability now / when sampled", "loss of the token")
    axes.legend()
    return (
        f"A token's loss against its ratio, for an advantage of {advantage:+g}; with a clip of"
        f" {low:g} and {high:g} the dot at ratio {ratio:g} has the loss {at:+.2f}."
    )


def _advantages(axes: Axes, rewards: list[float]) -> str:
    values = group_advantages(rewards, ["g"] * len(rewards)).values
    axes.scatter(range(len(rewards)), rewards, s=70, color=COLOURS[1], zorder=3)
    for index, (reward, value) in enumerate(zip(rewards, values, strict=True)):
        axes.annotate(f"{value:+.2f}", (index, reward), (0, 9), textcoords="offset points")
    axes.set_ylim(-0.05, 1.15)
    _named(axes, "Rewards and their advantages", "members of a group", "reward")
    said = ", ".join(f"{r:g} is {v:+.2f}" for r, v in zip(rewards, values, strict=True))
    return f"Rewards of a group and the advantage of each: {said}."


def _silent(axes: Axes, p: float, members: int) -> str:
    rates = np.linspace(0, 1, 97)
    axes.plot(rates, silent_share(rates, members))
    share = silent_share(p, members)
    _dot(axes, p, share)
    _named(axes, f"Groups of {members} that teach nothing", "success rate p", "share of groups")
    return (
        f"The share of silent groups of {members} against the success rate: at {p:g} it is"
        f" {share:.0%}; it is least at one half."
    )


def _tokens(axes: Axes, width: int, turns: int, bytes: int) -> str:
    widths = np.arange(96, 1921, 32)
    counts = np.array([image_tokens(float(w), float(w) * 3 / 4) * turns for w in widths])
    axes.plot(widths, counts)
    count = image_tokens(width, width * 3 / 4) * turns
    _dot(axes, width, count)
    _named(axes, f"Image tokens of {turns} turns", "screenshot width, px", "tokens")
    return (
        f"Image tokens of an episode of {turns} turns grow with the square of the width: at {width}"
        f" px they are {count}, {count * bytes / 2**30:.2f} GiB of KV cache."
    )


def image_tokens(width: float, height: float) -> int:
    """One token per 32x32 px: patches of 16, merged two by two."""
    return round(width / 32) * int(height / 32 + 0.5)


def paid_for(x: int, y: int, box: list[int]) -> float:
    """The reward of a click on a screen of 96 px, as the env `targets-click` pays it."""
    left, top, right, bottom = box
    inside = left <= x < right and top <= y < bottom
    state = {"hit": inside, "clicks": 1, "last_click": [x, y], "target": box}
    return click_distance(state, (96, 96)).reward


def _aim(axes: Axes, x: int, y: int, box: list[int]) -> str:
    map = np.array([[paid_for(u, v, box) for u in range(96)] for v in range(96)])
    axes.imshow(map, cmap="Blues", vmin=0, vmax=1.4)
    axes.plot(x, y, "+", color=INK, markersize=13, markeredgewidth=2)
    axes.grid(False)
    reward = paid_for(x, y, box)
    _named(axes, f"Click ({x}, {y}): reward {reward:.2f}", "x, px", "y, px")
    return (
        f"The reward of a click anywhere on a screen of 96 px: 1 inside the button {box}, outside"
        f" from 0.5 down with the distance; at ({x}, {y}) it is {reward:.2f}."
    )


def _kl(axes: Axes, weight: float, reference: float) -> str:
    weights = np.linspace(0.05, 3, 97)
    axes.plot(weights, drifted(reference, weights))
    axes.axhline(reference, color=INK, linestyle=":", linewidth=1.2)
    at = float(drifted(reference, weight))
    _dot(axes, weight, at)
    axes.set_ylim(0, 1.03)
    _named(axes, "Where a policy settles", "KL weight", "probability of the paid answer")
    return (
        f"Where the probability of a paid answer settles against the KL weight: from {reference:g}"
        f" in the reference to {at:.2f} at a weight of {weight:g}, and less far the larger it is."
    )


def _dot(axes: Axes, x: float, y: float) -> None:
    axes.plot([x], [y], "o", color=COLOURS[1], markersize=9)


def _named(axes: Axes, title: str, across: str, up: str) -> None:
    axes.set_title(title)
    axes.set_xlabel(across)
    axes.set_ylabel(up)


DRAWN: dict[str, Callable[..., str]] = {
    "clip": _clip,
    "advantages": _advantages,
    "silent": _silent,
    "tokens": _tokens,
    "aim": _aim,
    "kl": _kl,
}
