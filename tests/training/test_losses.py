"""The policy loss against hand calculations; what must never reach it; how it adds up."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cua_lab.training.losses import merge_metrics, policy_loss, row_weights

LOW, HIGH = 0.2, 0.28


def tensor(*rows) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def gradient(logprobs: Tensor, *args, **options) -> tuple[float, Tensor]:
    """The loss and its gradient with respect to the log-probabilities."""
    leaf = logprobs.clone().requires_grad_()
    result = policy_loss(leaf, *args, **options)
    result.loss.backward()
    assert leaf.grad is not None
    return float(result.loss.detach()), leaf.grad


def with_ratio(*ratios: float) -> tuple[Tensor, Tensor]:
    """(logprobs, old_logprobs) of one row with these ratios."""
    old = torch.full((1, len(ratios)), -1.5, dtype=torch.float64)
    return old + torch.tensor([ratios], dtype=torch.float64).log(), old


def test_at_the_first_update_the_ratio_is_one_and_the_gradient_is_the_policy_gradient():
    """trl#4159, trl#6789: a wrong temperature or top_p shows as a ratio other than 1."""
    logprobs = tensor([-1.0, -2.0], [-0.5, -3.0])
    advantages, mask = torch.tensor([2.0, -1.0]), tensor([1, 1], [1, 0])
    leaf = logprobs.clone().requires_grad_()
    result = policy_loss(leaf, logprobs, advantages, mask)
    result.loss.backward()
    metrics = result.metrics
    assert (metrics.ratio_mean, metrics.ratio_min, metrics.ratio_max) == (1.0, 1.0, 1.0)
    assert metrics.clip_fraction == 0.0
    assert float(result.loss.detach()) == pytest.approx(-(2 + 2 - 1) / 3)
    torch.testing.assert_close(leaf.grad, -tensor([2, 2], [-1, 0]) / 3)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "slope", "cut"),
    [
        (1.1, 1.0, -1.1, -1.1, 0.0),
        (1.5, 1.0, -1.28, 0.0, 1.0),  # already much likelier: no further push
        (1.5, -1.0, 1.5, 1.5, 0.0),  # likelier although bad: the full push back
        (0.5, 1.0, -0.5, -0.5, 0.0),  # rarer although good: the full push up
        (0.5, -1.0, 0.8, 0.0, 1.0),  # already much rarer: no further push
        (0.9, -1.0, 0.9, 0.9, 0.0),
    ],
)
def test_the_clip_stops_a_push_only_in_the_direction_already_gone(
    ratio, advantage, loss, slope, cut
):
    """d/dlogprob of -(ratio * A) is -(ratio * A), and 0 where the clipped branch is smaller."""
    logprobs, old = with_ratio(ratio)
    value, grad = gradient(logprobs, old, torch.tensor([advantage]), torch.ones(1, 1))
    assert value == pytest.approx(loss)
    assert float(grad) == pytest.approx(slope)
    metrics = policy_loss(logprobs, old, torch.tensor([advantage]), torch.ones(1, 1)).metrics
    assert metrics.clip_fraction == cut


@pytest.mark.parametrize(
    ("kl", "value", "slope"),
    [
        ("k1", lambda d: -d, lambda d: 1.0),
        ("k2", lambda d: d * d / 2, lambda d: -d),
        ("k3", lambda d: math.exp(d) - 1 - d, lambda d: 1 - math.exp(d)),
    ],
)
def test_each_kl_estimator_has_its_value_and_its_gradient(kl, value, slope):
    """With no advantage only the penalty is left; d = ref - logprob = 0.7."""
    logprobs, ref = tensor([-2.0]), tensor([-1.3])
    loss, grad = gradient(
        logprobs,
        logprobs,
        torch.zeros(1),
        torch.ones(1, 1),
        kl=kl,
        kl_coef=0.5,
        ref_logprobs=ref,
    )
    assert loss == pytest.approx(0.5 * value(0.7))
    assert float(grad) == pytest.approx(0.5 * slope(0.7))


def test_the_sequence_ratio_is_the_geometric_mean_and_pushes_all_tokens_alike():
    """GSPO: s = sqrt(1.2 * 1.1), and d(-s * A)/dlogprob_t = -s * A / 2."""
    logprobs, old = with_ratio(1.2, 1.1)
    value, grad = gradient(
        logprobs, old, torch.tensor([1.0]), torch.ones(1, 2), ratio="sequence", normalise="sequence"
    )
    s = math.sqrt(1.2 * 1.1)
    assert value == pytest.approx(-s)
    torch.testing.assert_close(grad, tensor([-s / 2, -s / 2]))


def test_the_sequence_ratio_clips_whole_sequences():
    logprobs, old = with_ratio(2.0, 1.0)
    args = (logprobs, old, torch.tensor([1.0]), torch.ones(1, 2))
    _, grad = gradient(*args, ratio="sequence")
    assert grad.tolist() == [[0.0, 0.0]]
    _, grad = gradient(*args, ratio="token")
    assert grad[0, 0] == 0.0
    assert grad[0, 1] == pytest.approx(-0.5)


def test_truncated_importance_sampling_weighs_by_the_engines_gap_up_to_the_cap():
    """Weights exp(old - engine) = 1.5 and 4, the latter cut to 2; they carry no gradient."""
    old = tensor([-1.0, -1.0])
    engine = old - tensor([1.5, 4.0]).log()
    value, grad = gradient(
        old, old, torch.tensor([1.0]), torch.ones(1, 2), tis_cap=2.0, engine_logprobs=engine
    )
    assert value == pytest.approx(-(1.5 + 2.0) / 2)
    torch.testing.assert_close(grad, tensor([-0.75, -1.0]))


def test_entropy_lowers_the_loss_and_pushes_up():
    entropy = tensor([1.0, 3.0]).requires_grad_()
    result = policy_loss(
        tensor([-1.0, -1.0]),
        tensor([-1.0, -1.0]),
        torch.zeros(1),
        torch.ones(1, 2),
        entropy=entropy,
        entropy_coef=0.1,
    )
    result.loss.backward()
    assert float(result.loss.detach()) == pytest.approx(-0.2)
    assert entropy.grad is not None
    assert entropy.grad.tolist() == [[pytest.approx(-0.05)] * 2]
    assert result.metrics.entropy == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("normalise", "constant", "weights"),
    [
        ("token", None, [1 / 6, 1 / 6, 1 / 6]),
        ("sequence", None, [1 / (2 * 4), 1 / (2 * 2), 1 / 2]),
        ("constant", 10.0, [1 / 20, 1 / 20, 1 / 20]),
    ],
)
def test_the_three_ways_to_normalise(normalise, constant, weights):
    """The third row has no token: it takes part in no denominator."""
    found = row_weights([4, 2, 0], normalise=normalise, constant=constant)
    assert found.tolist() == pytest.approx(weights)


def test_the_parts_of_a_split_episode_weigh_as_one_episode():
    found = row_weights([1, 3, 2], normalise="sequence", episodes=["a", "a", "b"])
    assert found.tolist() == pytest.approx([1 / 8, 1 / 8, 1 / 4])
    assert 1 * found[0] + 3 * found[1] == pytest.approx(float(2 * found[2]))


def every_option(rows: int, columns: int) -> dict:
    generator = torch.Generator().manual_seed(5)

    def draw(scale: float) -> Tensor:
        return -1.5 + scale * torch.randn((rows, columns), generator=generator, dtype=torch.float64)

    return {
        "logprobs": draw(0.4),
        "old_logprobs": draw(0.3),
        "advantages": torch.randn(rows, generator=generator, dtype=torch.float64),
        "ref_logprobs": draw(0.3),
        "engine_logprobs": draw(0.3),
        "entropy": draw(0.1) + 3,
        "kl": "k3",
        "kl_coef": 0.1,
        "tis_cap": 2.0,
        "entropy_coef": 0.01,
    }


@pytest.mark.parametrize("ratio", ["token", "sequence"])
@pytest.mark.parametrize("kl", ["k1", "k2", "k3"])
@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf, 1e30])
def test_values_at_masked_positions_reach_neither_loss_nor_metrics_nor_gradient(ratio, kl, poison):
    mask = torch.tensor([[1, 0, 1], [0, 0, 0], [1, 1, 0]]).bool()
    clean = every_option(3, 3) | {"kl": kl, "ratio": ratio}
    dirty = dict(clean)
    for name in ("logprobs", "old_logprobs", "ref_logprobs", "engine_logprobs", "entropy"):
        dirty[name] = torch.where(mask, clean[name], poison)
    dirty["advantages"] = torch.where(mask.any(dim=1), clean["advantages"], poison)
    outcomes = []
    for options in (clean, dirty):
        options["logprobs"] = options["logprobs"].clone().requires_grad_()
        result = policy_loss(mask=mask, **options)
        result.loss.backward()
        outcomes.append((float(result.loss.detach()), options["logprobs"].grad, result.metrics))
    assert outcomes[0][0] == outcomes[1][0]
    assert torch.equal(outcomes[0][1], outcomes[1][1])
    assert bool((outcomes[1][1][~mask] == 0).all())
    assert outcomes[0][2] == outcomes[1][2]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=5),
    st.sampled_from(["token", "sequence", "constant"]),
    st.sampled_from(["token", "sequence"]),
    st.integers(0, 1000),
)
def test_micro_batches_add_up_to_the_batch_whatever_the_split(sizes, normalise, ratio, seed):
    """A mean of means is another loss; the denominators must be those of the whole batch."""
    rows, columns = sum(sizes), 4
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(rows, columns, generator=generator) < 0.6
    options = every_option(rows, columns)
    constant = 7.0 if normalise == "constant" else None
    weights = row_weights(mask.sum(dim=1).tolist(), normalise=normalise, constant=constant)
    leaf = options.pop("logprobs").clone().requires_grad_()
    whole = policy_loss(
        leaf, mask=mask, normalise=normalise, constant=constant, ratio=ratio, **options
    )
    (expected,) = torch.autograd.grad(whole.loss, leaf)
    total, metrics, start = torch.zeros_like(leaf), [], 0
    loss = 0.0
    for size in sizes:
        part = slice(start, start + size)
        cut = {k: v[part] if isinstance(v, Tensor) else v for k, v in options.items()}
        result = policy_loss(leaf[part], mask=mask[part], weights=weights[part], ratio=ratio, **cut)
        (grad,) = torch.autograd.grad(result.loss, leaf)
        total, loss = total + grad, loss + float(result.loss.detach())
        metrics.append(result.metrics)
        start += size
    torch.testing.assert_close(total, expected, rtol=1e-12, atol=1e-14)
    assert loss == pytest.approx(float(whole.loss.detach()), abs=1e-12)
    merged = merge_metrics(metrics)
    assert merged.tokens == whole.metrics.tokens
    if merged.tokens:
        for name in ("policy_loss", "kl", "entropy", "ratio_mean", "clip_fraction", "tis_mean"):
            assert getattr(merged, name) == pytest.approx(getattr(whole.metrics, name))
        assert merged.ratio_max == whole.metrics.ratio_max


def test_a_far_off_ratio_gives_finite_numbers():
    """exp(1000) is infinite, and a zero gradient times infinity is NaN."""
    logprobs, old = tensor([-1.0, -1000.0]).float(), tensor([-1000.0, -1.0]).float()
    for advantage in (1.0, -1.0):
        value, grad = gradient(logprobs, old, torch.tensor([advantage]), torch.ones(1, 2))
        assert math.isfinite(value)
        assert bool(torch.isfinite(grad).all())


def test_a_batch_without_a_sampled_token_costs_nothing():
    value, grad = gradient(
        torch.zeros(2, 3), torch.zeros(2, 3), torch.full((2,), math.nan), torch.zeros(2, 3)
    )
    assert value == 0.0
    assert not grad.any()
    metrics = policy_loss(
        torch.zeros(1, 1), torch.zeros(1, 1), torch.zeros(1), torch.zeros(1, 1)
    ).metrics
    assert metrics.tokens == 0
    assert math.isnan(metrics.ratio_mean)


@pytest.mark.parametrize("name", ["logprobs", "old_logprobs", "ref_logprobs", "engine_logprobs"])
def test_a_missing_value_that_the_mask_counts_is_refused_with_its_place(name):
    """A missing logprob is not 0.0: that would say probability 1."""
    options = every_option(2, 3)
    options[name] = options[name].clone()
    options[name][1, 2] = math.nan
    with pytest.raises(ValueError, match=rf"{name} is nan at row 1, token 2"):
        policy_loss(mask=torch.ones(2, 3), **options)


def test_an_advantage_of_nan_with_tokens_is_refused():
    with pytest.raises(ValueError, match="advantages is nan at row 0"):
        policy_loss(
            torch.zeros(1, 2), torch.zeros(1, 2), torch.tensor([math.nan]), torch.ones(1, 2)
        )


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"kl": "k4"}, 'use "none", "k1", "k2" or "k3"'),
        ({"kl": "k3", "kl_coef": 0.1}, "needs ref_logprobs"),
        ({"kl_coef": 0.1}, 'but kl is "none"'),
        ({"ratio": "word"}, 'use "token" or "sequence"'),
        ({"normalise": "batch"}, 'use "token", "sequence" or "constant"'),
        ({"normalise": "constant"}, "give a positive number"),
        ({"tis_cap": 2.0}, "needs engine_logprobs"),
        ({"entropy_coef": 0.1}, "no entropies were given"),
        ({"old_logprobs": torch.zeros(2, 3)}, r"\(2, 3\) but the mask is \(2, 2\)"),
    ],
)
def test_options_that_do_not_fit_are_refused_in_words(options, says):
    arguments = {"old_logprobs": torch.zeros(2, 2), **options}
    with pytest.raises(ValueError, match=says):
        policy_loss(
            torch.zeros(2, 2), advantages=torch.zeros(2), mask=torch.ones(2, 2), **arguments
        )


def gradient_at(logprob: float, other: float, **options) -> float:
    """The gradient of the loss by one token's log-probability; float64, so that e^25 is exact."""
    logprobs = torch.tensor([[logprob]], dtype=torch.float64, requires_grad=True)
    options = {"kl": "none", "advantage": 0.0} | options
    if options["kl"] != "none":
        options |= {"ref_logprobs": torch.tensor([[other]], dtype=torch.float64), "kl_coef": 1.0}
        other = logprob
    old = torch.tensor([[other]], dtype=torch.float64)
    advantage = torch.tensor([options.pop("advantage")])
    policy_loss(logprobs, old, advantage, torch.ones(1, 1), **options).loss.backward()
    assert logprobs.grad is not None
    return float(logprobs.grad)


@pytest.mark.parametrize(("kl", "gradient"), [("k1", 1.0), ("k2", 25.0), ("k3", 1.0)])
def test_kl_pulls_a_token_that_the_reference_gives_almost_no_chance(kl, gradient):
    """Nothing overflows there, so nothing is clamped: a clamp's gradient is 0."""
    assert gradient_at(0.0, -25.0, kl=kl) == pytest.approx(gradient, rel=1e-9)


@pytest.mark.parametrize("kl", ["k1", "k2", "k3"])
@pytest.mark.parametrize("reference", [-1000.0, -40.0, 40.0, 1000.0])
def test_a_kl_gradient_is_finite_and_points_to_the_reference_however_far_off_it_is(kl, reference):
    """Except k1, which is a number to watch: its gradient is 1 whatever the reference says."""
    gradient = gradient_at(0.0, reference, kl=kl)
    assert math.isfinite(gradient)
    assert gradient == 1.0 if kl == "k1" else gradient * -reference > 0


@pytest.mark.parametrize("log_ratio", [21.0, 25.0, 29.0, 60.0, 500.0])
def test_a_token_that_became_far_likelier_with_a_negative_advantage_is_pushed_down(log_ratio):
    """min(r A, clip(r) A) is r A there: the clip does not act, and no clamp may."""
    gradient = gradient_at(0.0, -log_ratio, advantage=-1.0)
    assert gradient == pytest.approx(math.exp(min(log_ratio, 30.0)), rel=1e-6)
    assert gradient_at(0.0, -log_ratio, advantage=1.0) == 0.0, "the clip's side"


@pytest.mark.parametrize("ratio", ["token", "sequence"])
def test_a_loss_far_off_is_finite_in_float32(ratio):
    logprobs = torch.zeros(1, 2, requires_grad=True)
    far = torch.full((1, 2), -300.0)
    result = policy_loss(logprobs, far, torch.tensor([-1.0]), torch.ones(1, 2), ratio=ratio)
    result.loss.backward()
    assert math.isfinite(float(result.loss.detach()))
    assert bool(torch.isfinite(logprobs.grad.norm()))


def test_an_entropy_of_nan_that_the_mask_counts_is_refused():
    entropy = torch.tensor([[1.0, math.nan]])
    zeros = torch.zeros(1, 2)
    with pytest.raises(ValueError, match="entropy is nan at row 0, token 1"):
        policy_loss(zeros, zeros, torch.ones(1), torch.ones(1, 2), entropy=entropy)
    mask = torch.tensor([[1, 0]])
    assert policy_loss(zeros, zeros, torch.ones(1), mask, entropy=entropy).metrics.entropy == 1.0


def test_groups_that_tell_nothing_stand_in_the_denominator_or_not():
    """trl#6367: with a dead group of equal size, counting it halves the gradient of the other."""
    tokens, dead = [3, 1, 2, 2], [True, True, False, False]
    for normalise, options in (("token", {}), ("sequence", {}), ("constant", {"constant": 4.0})):
        every = row_weights(tokens, normalise=normalise, **options)
        alive = row_weights(tokens, normalise=normalise, counted=dead, **options)
        assert alive.tolist() == pytest.approx([2 * weight for weight in every.tolist()])
    nobody = row_weights(tokens, counted=[False] * 4)
    assert nobody.tolist() == row_weights(tokens).tolist(), "no row left: all count"
    with pytest.raises(ValueError, match="4 rows but 1 `counted`"):
        row_weights(tokens, counted=[True])
