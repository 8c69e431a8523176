"""The score of an exercise tells a right answer from those that are nearly right."""

import torch

from cua_lab.lessons.scored import imitations_agree, losses_agree


def loss(now, old, A, mask, low, high, *, both=True, mean=True):
    r = torch.where(mask, now - old, 0.0).exp()
    a = A[:, None]
    clipped = r.clamp(1 - low if both else None, 1 + high) * a
    kept = torch.where(mask, torch.minimum(r * a, clipped), 0.0)
    return -(kept.sum() / mask.sum() if mean else (kept.sum(1) / mask.sum(1).clamp(1)).mean())


def test_the_right_loss_agrees_everywhere() -> None:
    assert losses_agree(loss) == 200


def test_a_clip_on_one_side_and_a_mean_of_means_do_not() -> None:
    assert losses_agree(lambda *a: loss(*a, both=False)) < 150
    assert losses_agree(lambda *a: loss(*a, mean=False)) < 50


def test_a_loss_that_multiplies_by_the_mask_meets_the_nan() -> None:
    def naive(now, old, A, mask, low, high):
        r = (now - old).exp()
        return -(
            torch.minimum(r * A[:, None], r.clamp(1 - low, 1 + high) * A[:, None]) * mask
        ).sum()

    assert losses_agree(naive, 20) == 0


def imitation(logits, ids, mask, *, shift=1, mean=True):
    logprobs = logits.log_softmax(-1)
    nll = [-logprobs[t - shift, ids[t]] for t in range(1, len(ids)) if mask[t]]
    return sum(nll) / (len(nll) if mean else 1)


def test_a_warm_up_loss_needs_the_shift_and_the_mean() -> None:
    assert imitations_agree(imitation, 50) == 50
    assert imitations_agree(lambda *a: imitation(*a, shift=0), 50) == 0
    assert imitations_agree(lambda *a: imitation(*a, mean=False), 50) < 25
    assert imitations_agree(lambda x, i, m: imitation(x, i, m | True), 50) < 5
