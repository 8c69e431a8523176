"""The knobs in a real browser: their numbers are the package's, sliders and dots move them."""

import json
import math

import pytest
import torch

from cua_lab.lessons import knobs
from cua_lab.lessons.knobs import FIRST, STATIC, knob
from cua_lab.training.advantages import group_advantages
from cua_lab.training.losses import policy_loss


@pytest.fixture
def shown(page, tmp_path, theme):
    """All of them below each other, each as `render` draws it."""
    page.emulate_media(color_scheme=theme)
    places = "".join(f"<div id={kind}></div>" for kind in FIRST)
    held = json.dumps({kind: {"kind": kind, "values": values} for kind, values in FIRST.items()})
    draw = (
        "window.formulas = formulas;"
        f"for (const [id, data] of Object.entries({held}))"
        " render({ model: { get: (name) => data[name] }, el: document.getElementById(id) });"
    )
    script = (STATIC / "knobs.js").read_text() + draw
    html = (
        '<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,">'
        f"<style>{(STATIC / 'knobs.css').read_text()}</style>"
        f'{places}<script type="module">{script}</script>'
    )
    (tmp_path / "knobs.html").write_text(html, encoding="utf-8")
    page.goto((tmp_path / "knobs.html").as_uri())
    page.wait_for_selector("#kl .dot")
    yield page
    assert page.complaints == []


def test_a_page_of_its_own_works_from_a_file_under_a_strict_policy(page, tmp_path) -> None:
    knob("silent").save_html(tmp_path / "knob.html")
    assert "default-src 'none'" in (tmp_path / "knob.html").read_text()
    page.goto((tmp_path / "knob.html").as_uri())
    page.get_by_role("slider", name="success rate p").focus()
    page.keyboard.press("Home")
    assert page.locator(".said").inner_text() == "100.0 % of the groups are silent"
    assert page.complaints == []


def loss_and_push(ratio: float, advantage: float) -> tuple[float, float]:
    now = torch.tensor([[math.log(ratio)]], dtype=torch.float64, requires_grad=True)
    mask = torch.ones(1, 1, dtype=torch.bool)
    sign = torch.tensor([advantage], dtype=torch.float64)
    loss = policy_loss(now, torch.zeros_like(now), sign, mask, clip_low=0.2, clip_high=0.28).loss
    loss.backward()
    return float(loss.detach()), -float(now.grad)


def test_numbers_are_those_of_the_package(shown, artefacts, theme) -> None:
    ask = shown.evaluate
    for ratio in (0.5, 0.79, 1.0, 1.27, 1.5):
        for advantage in (-1.5, 0.7):
            loss, push = loss_and_push(ratio, advantage)
            said = ask(f"[formulas.loss({ratio},{advantage},.2,.28), "
                       f"formulas.push({ratio},{advantage},.2,.28)]")  # fmt: skip
            assert said == pytest.approx([loss, push], abs=1e-6)
    for rewards in ([0.1, 0.3, 0.3, 0.9], [1, 1, 1]):
        ours = group_advantages(rewards, ["g"] * len(rewards)).values
        assert ask(f"formulas.advantages({rewards})") == pytest.approx(ours, abs=1e-5)
    assert ask("formulas.silent(.1, 8)") == pytest.approx(knobs.silent_share(0.1, 8))
    assert ask("formulas.drifted(.2, .5)") == pytest.approx(knobs.drifted(0.2, 0.5))
    for width in range(96, 1921, 160):
        assert ask(f"formulas.imageTokens({width}, {width * 0.75})") == knobs.image_tokens(
            width, width * 0.75
        )
    box = FIRST["aim"]["box"]
    for x, y in ((30, 50), (52, 50), (0, 0), (95, 95), (19, 64)):
        assert ask(f"formulas.reward({x},{y},{box},96)") == pytest.approx(knobs.paid_for(x, y, box))
    shown.screenshot(path=artefacts / f"knobs-{theme}.png", full_page=True)


def test_a_slider_and_a_dot_move_what_is_said(shown) -> None:
    said = shown.locator("#clip .said")
    assert "held by the clip" in said.inner_text()
    slider = shown.locator("#clip input").first
    slider.focus()
    shown.keyboard.press("Home")
    assert "likelier" in said.inner_text()
    shown.locator("#clip svg").scroll_into_view_if_needed()
    dot = shown.locator("#clip .dot").bounding_box()
    shown.mouse.move(dot["x"] + 4, dot["y"] + 4)
    shown.mouse.down()
    shown.mouse.move(dot["x"] + 400, dot["y"], steps=4)
    shown.mouse.up()
    assert "held by the clip" in said.inner_text()
    moved = float(slider.input_value())
    assert moved > 1.5
    shown.mouse.move(dot["x"], dot["y"])
    assert float(slider.input_value()) == moved, "it was let go"


def test_rewards_are_dragged(shown) -> None:
    svg = shown.locator("#advantages svg")
    svg.scroll_into_view_if_needed()
    dots = [shown.locator("#advantages .dot").nth(i).bounding_box() for i in range(4)]
    target = dots[1]
    for index in (0, 3):
        shown.mouse.move(dots[index]["x"] + 4, dots[index]["y"] + 4)
        shown.mouse.down()
        shown.mouse.move(dots[index]["x"] + 4, target["y"] + target["height"] / 2, steps=3)
        shown.mouse.up()
    assert "silent group" in shown.locator("#advantages .said").inner_text()
